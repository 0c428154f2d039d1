//! One call: its shapes and inputs, drawn at random or by name.

use proptest::prelude::*;
use unisono_kernels::attention::Layout;
use unisono_kernels::element::Bf16;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2654435761).wrapping_add(1);
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let v = (x >> 8) as f32 / 8388608.0 - 1.0;
            2.0 * v * v * v
        })
        .collect()
}

/// What is compared.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Shapes and inputs of one call; q, k and v lie in one array `[batch, tokens, groups, [q…, k, v], d]`.
#[derive(Clone, Debug)]
pub struct Case {
    pub batch: usize,
    pub groups: usize,
    pub heads: usize,
    pub d: usize,
    pub queries: usize,
    pub keys: usize,
    pub causal: bool,
    pub scale: f32,
    pub first: Option<Vec<u32>>,
    pub mask: Option<Vec<u8>>,
    pub shared_mask: bool,
    pub seed: u32,
    /// Whether the arrays are bf16.
    pub half: bool,
}

/// The results, all laid out `[batch, tokens, groups, [heads or 1], d]` and `lse` `[batch, groups, heads, queries]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    pub out: Vec<u32>,
    pub lse: Vec<u32>,
    pub dq: Vec<u32>,
    pub dk: Vec<u32>,
    pub dv: Vec<u32>,
}

impl Case {
    /// The layout of the inputs and of their gradients.
    pub fn layout(&self) -> Layout {
        let tokens = self.queries.max(self.keys);
        let group = (self.heads + 2) * self.d;
        Layout {
            batch: tokens * self.groups * group,
            token: self.groups * group,
            group,
            head: self.d,
        }
    }

    /// The inputs.
    pub fn inputs(&self) -> Vec<f32> {
        self.numbers(self.batch * self.layout().batch + (self.heads + 2) * self.d, self.seed)
    }

    pub fn out_layout(&self) -> Layout {
        let group = self.heads * self.d;
        Layout {
            batch: self.queries * self.groups * group,
            token: self.groups * group,
            group,
            head: self.d,
        }
    }

    /// The head `part` of token `t` in an array like the inputs.
    pub fn q(&self, x: &[f32], b: usize, t: usize, g: usize, part: usize) -> Vec<f32> {
        let l = self.layout();
        x[b * l.batch + t * l.token + g * l.group + part * self.d..][..self.d].to_vec()
    }

    /// Whether query `i` sees key `j`.
    pub fn sees(&self, b: usize, i: usize, j: usize) -> bool {
        let first = self.first.as_ref().map_or(0, |f| f[b] as usize);
        let mask_batch = self.mask_batch();
        (!self.causal || j <= first + i)
            && self
                .mask
                .as_ref()
                .is_none_or(|m| m[b * mask_batch + i * self.keys + j] != 0)
    }

    pub fn mask_batch(&self) -> usize {
        if self.shared_mask { 0 } else { self.queries * self.keys }
    }

    pub fn d_out(&self) -> Vec<f32> {
        self.numbers(self.batch * self.out_layout().batch, self.seed ^ 77)
    }

    fn numbers(&self, count: usize, seed: u32) -> Vec<f32> {
        numbers(count, seed).into_iter().map(|x| self.stored(x)).collect()
    }

    /// What becomes of a number in an array.
    pub fn stored(&self, x: f32) -> f32 {
        match self.half {
            true => Bf16::from_f32(x).to_f32(),
            false => x,
        }
    }
}

/// A call of any kind.
pub fn case() -> impl Strategy<Value = Case> {
    let few = (1usize..3, 1usize..3, 1usize..4);
    let many = (8usize..9, 2usize..3, 1usize..3); // as many tiles as sequences and groups
    let d = prop_oneof![3 => 1usize..40, 1 => prop_oneof![Just(64usize), Just(100), Just(128), Just(130), Just(256)]];
    let tokens = prop_oneof![0usize..20, 0usize..140, Just(96), Just(128)];
    (
        prop_oneof![few, many],
        d,
        (tokens.clone(), tokens, any::<bool>()),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        prop_oneof![Just(0u8), Just(0), 1u8..4],
        (any::<u32>(), any::<bool>()),
    )
        .prop_map(
            |((batch, groups, heads), d, (queries, keys, square), (causal, first, shared_mask), mask, (seed, half))| {
                // The twin is slow: shorter sequences for the larger shapes.
                let most = (6000 / (batch * groups * heads * d)).clamp(3, 140);
                let queries = queries.min(most);
                let keys = if square { queries } else { keys.min(most) };
                let random = numbers(batch * queries * keys + batch, seed ^ 9);
                Case {
                    batch,
                    groups,
                    heads,
                    d,
                    queries,
                    keys,
                    causal,
                    scale: 1.0 / (d as f32).sqrt(),
                    first: first.then(|| (0..batch).map(|b| (random[b].abs() * 60.0) as u32).collect()),
                    // From few to nearly all keys seen.
                    mask: (mask > 0).then(|| {
                        random
                            .iter()
                            .map(|v| u8::from(*v > [0.5, 0.0, -1.0][mask as usize - 1]))
                            .collect()
                    }),
                    shared_mask,
                    seed,
                    half,
                }
            },
        )
}

/// A causal call, each token a query and a key.
pub fn square(batch: usize, groups: usize, heads: usize, d: usize, tokens: usize) -> Case {
    Case {
        batch,
        groups,
        heads,
        d,
        queries: tokens,
        keys: tokens,
        causal: true,
        scale: 1.0 / (d as f32).sqrt(),
        first: None,
        mask: None,
        shared_mask: false,
        seed: 5,
        half: false,
    }
}
