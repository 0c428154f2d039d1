//! Attention against plain loops that state its order, bit by bit: ragged shapes, masks, positions, every instruction set.

use proptest::prelude::*;
use unisono_kernels::attention::{Attention, AttentionGrad, BLOCK, Layout};
use unisono_kernels::isa::Isa;
use unisono_kernels::math::{exp, ln};
use unisono_kernels::order::{LEAF, Units, dot, fold_lanes};
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;

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

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Shapes and inputs of one call; q, k and v lie in one array `[batch, tokens, groups, [q…, k, v], d]`.
#[derive(Clone, Debug)]
struct Case {
    batch: usize,
    groups: usize,
    heads: usize,
    d: usize,
    queries: usize,
    keys: usize,
    causal: bool,
    scale: f32,
    first: Option<Vec<u32>>,
    mask: Option<Vec<u8>>,
    shared_mask: bool,
    seed: u32,
}

/// The results, all laid out `[batch, tokens, groups, [heads or 1], d]` and `lse` `[batch, groups, heads, queries]`.
#[derive(Clone, Debug, PartialEq)]
struct Results {
    out: Vec<u32>,
    lse: Vec<u32>,
    dq: Vec<u32>,
    dk: Vec<u32>,
    dv: Vec<u32>,
}

impl Case {
    fn fused(&self) -> (Vec<f32>, Layout) {
        let tokens = self.queries.max(self.keys);
        let group = (self.heads + 2) * self.d;
        let layout = Layout {
            batch: tokens * self.groups * group,
            token: self.groups * group,
            group,
            head: self.d,
        };
        (
            numbers(self.batch * layout.batch + (self.heads + 2) * self.d, self.seed),
            layout,
        )
    }

    fn out_layout(&self) -> Layout {
        let group = self.heads * self.d;
        Layout {
            batch: self.queries * self.groups * group,
            token: self.groups * group,
            group,
            head: self.d,
        }
    }

    fn q(&self, x: &[f32], b: usize, t: usize, g: usize, part: usize) -> Vec<f32> {
        let (_, l) = self.fused();
        x[b * l.batch + t * l.token + g * l.group + part * self.d..][..self.d].to_vec()
    }

    fn sees(&self, b: usize, i: usize, j: usize) -> bool {
        let first = self.first.as_ref().map_or(0, |f| f[b] as usize);
        let mask_batch = if self.shared_mask { 0 } else { self.queries * self.keys };
        (!self.causal || j <= first + i)
            && self
                .mask
                .as_ref()
                .is_none_or(|m| m[b * mask_batch + i * self.keys + j] != 0)
    }

    fn d_out(&self) -> Vec<f32> {
        numbers(self.batch * self.out_layout().batch, self.seed ^ 77)
    }

    /// The slow twin.
    fn slow(&self, block: usize) -> Results {
        let (x, _) = self.fused();
        let (d, heads) = (self.d, self.heads);
        let whole = Units::whole(d);
        let d_out = self.d_out();
        let row = |b, i, g, r| (((b * self.queries + i) * self.groups + g) * heads + r) * d;
        let key = |b, j, g| ((b * self.keys + j) * self.groups + g) * d;
        let mut out = vec![0.0f32; d_out.len()];
        let mut lse = vec![0.0f32; self.batch * self.groups * heads * self.queries];
        let mut dq = vec![0.0f32; d_out.len()];
        let mut dk = vec![0.0f32; self.batch * self.keys * self.groups * d];
        let mut dv = dk.clone();
        for b in 0..self.batch {
            for g in 0..self.groups {
                let k: Vec<_> = (0..self.keys).map(|j| self.q(&x, b, j, g, heads)).collect();
                let v: Vec<_> = (0..self.keys).map(|j| self.q(&x, b, j, g, heads + 1)).collect();
                for r in 0..heads {
                    let mut sum_k = vec![vec![0.0f32; d]; self.keys];
                    let mut sum_v = sum_k.clone();
                    for qb in (0..self.queries).step_by(block) {
                        let mut block_k = vec![vec![0.0f32; d]; self.keys];
                        let mut block_v = block_k.clone();
                        for i in qb..(qb + block).min(self.queries) {
                            let q = self.q(&x, b, i, g, r);
                            let at = row(b, i, g, r);
                            let seen = |from: usize| {
                                let end = (from + block).min(self.keys);
                                (from..end).filter(|j| self.sees(b, i, *j)).collect::<Vec<_>>()
                            };
                            let dots: Vec<f32> = k.iter().map(|k| dot(&q, k, whole)).collect();
                            // Forward.
                            let (mut top, mut lanes, mut acc) = (f32::NEG_INFINITY, [0.0f32; 16], vec![0.0f32; d]);
                            for kb in (0..self.keys).step_by(block) {
                                let seen: Vec<usize> = (kb..(kb + block).min(self.keys))
                                    .filter(|j| self.sees(b, i, *j))
                                    .collect();
                                if seen.is_empty() {
                                    continue;
                                }
                                let before = top * self.scale;
                                for j in &seen {
                                    top = top.max(dots[*j]);
                                }
                                let m = top * self.scale;
                                let factor = exp(before - m);
                                let (mut block_lanes, mut block_acc) = ([0.0f32; 16], vec![0.0f32; d]);
                                for j in &seen {
                                    let p = exp(dots[*j].mul_add(self.scale, -m));
                                    block_lanes[(j - kb) % 16] += p;
                                    for c in 0..d {
                                        block_acc[c] = p.mul_add(v[*j][c], block_acc[c]);
                                    }
                                }
                                for l in 0..16 {
                                    lanes[l] = lanes[l].mul_add(factor, block_lanes[l]);
                                }
                                for c in 0..d {
                                    acc[c] = acc[c].mul_add(factor, block_acc[c]);
                                }
                            }
                            let total = fold_lanes(lanes);
                            let at_lse = ((b * self.groups + g) * heads + r) * self.queries + i;
                            lse[at_lse] = f32::NEG_INFINITY;
                            if total != 0.0 {
                                lse[at_lse] = top * self.scale + ln(total);
                                for c in 0..d {
                                    out[at + c] = acc[c] * (1.0 / total) + 0.0;
                                }
                            }
                            // Backward.
                            let delta = row_dot(&d_out[at..at + d], &out[at..at + d]);
                            let mut sum_q = vec![0.0f32; d];
                            for kb in (0..self.keys).step_by(block) {
                                let mut block_q = vec![0.0f32; d];
                                for j in seen(kb) {
                                    let p = exp(dots[j].mul_add(self.scale, -lse[at_lse]));
                                    let ds = p * (dot(&d_out[at..at + d], &v[j], whole) - delta);
                                    for c in 0..d {
                                        block_q[c] = ds.mul_add(k[j][c], block_q[c]);
                                        block_k[j][c] = ds.mul_add(q[c], block_k[j][c]);
                                        block_v[j][c] = p.mul_add(d_out[at + c], block_v[j][c]);
                                    }
                                }
                                for c in 0..d {
                                    sum_q[c] += block_q[c];
                                }
                            }
                            for c in 0..d {
                                dq[at + c] = sum_q[c] * self.scale + 0.0;
                            }
                        }
                        for j in 0..self.keys {
                            for c in 0..d {
                                sum_k[j][c] += block_k[j][c];
                                sum_v[j][c] += block_v[j][c];
                            }
                        }
                    }
                    for j in 0..self.keys {
                        for c in 0..d {
                            let at = key(b, j, g) + c;
                            dk[at] = if r == 0 { sum_k[j][c] } else { dk[at] + sum_k[j][c] };
                            dv[at] = if r == 0 { sum_v[j][c] } else { dv[at] + sum_v[j][c] };
                        }
                    }
                }
                for j in 0..self.keys {
                    for c in 0..d {
                        let at = key(b, j, g) + c;
                        dk[at] = dk[at] * self.scale + 0.0;
                        dv[at] += 0.0;
                    }
                }
            }
        }
        Results {
            out: bits(&out),
            lse: bits(&lse),
            dq: bits(&dq),
            dk: bits(&dk),
            dv: bits(&dv),
        }
    }

    fn fast(&self, isa: Isa, backwards: bool) -> Results {
        let (x, layout) = self.fused();
        let (d, heads) = (self.d, self.heads);
        let out_layout = self.out_layout();
        let mut out = vec![f32::NAN; self.batch * out_layout.batch];
        let mut lse = vec![f32::NAN; self.batch * self.groups * heads * self.queries];
        let mut scratch = Scratch::new(isa);
        // What an earlier kernel left must not matter.
        scratch.floats(200_000).fill(f32::NAN);
        let mask_batch = if self.shared_mask { 0 } else { self.queries * self.keys };
        let order = |tiles: usize| -> Vec<usize> {
            if backwards {
                (0..tiles).rev().collect()
            } else {
                (0..tiles).collect()
            }
        };
        let forward = Attention {
            batch: self.batch,
            groups: self.groups,
            heads_per_group: heads,
            head_dim: d,
            queries: self.queries,
            keys: self.keys,
            q: &x,
            q_layout: layout,
            k: &x[heads * d..],
            k_layout: layout,
            v: &x[(heads + 1) * d..],
            v_layout: layout,
            causal: self.causal,
            scale: self.scale,
            first_query: self.first.as_deref(),
            mask: self.mask.as_deref(),
            mask_batch,
            out: Out::new(&mut out),
            out_layout,
            lse: Some(Out::new(&mut lse)),
        };
        for tile in order(forward.tiles()) {
            forward.run(tile, &mut scratch);
        }
        let mut dx = vec![f32::NAN; x.len()];
        let (dx_ptr, dx_len) = (dx.as_mut_ptr(), dx.len());
        // SAFETY: one array, of which the three views write different elements, from this thread only.
        let view = |from: usize| unsafe { Out::shared(dx_ptr.add(from), dx_len - from) };
        let d_out = self.d_out();
        let backward = AttentionGrad {
            batch: self.batch,
            groups: self.groups,
            heads_per_group: heads,
            head_dim: d,
            queries: self.queries,
            keys: self.keys,
            q: &x,
            q_layout: layout,
            k: &x[heads * d..],
            k_layout: layout,
            v: &x[(heads + 1) * d..],
            v_layout: layout,
            causal: self.causal,
            scale: self.scale,
            first_query: self.first.as_deref(),
            mask: self.mask.as_deref(),
            mask_batch,
            out: &out,
            d_out: &d_out,
            out_layout,
            lse: &lse,
            dq: view(0),
            dk: view(heads * d),
            dv: view((heads + 1) * d),
        };
        for tile in order(backward.tiles()) {
            backward.run(tile, &mut scratch);
        }
        let (mut dq, mut dk, mut dv) = (Vec::new(), Vec::new(), Vec::new());
        for b in 0..self.batch {
            for t in 0..self.queries.max(self.keys) {
                for g in 0..self.groups {
                    if t < self.queries {
                        (0..heads).for_each(|r| dq.extend(self.q(&dx, b, t, g, r)));
                    }
                    if t < self.keys {
                        dk.extend(self.q(&dx, b, t, g, heads));
                        dv.extend(self.q(&dx, b, t, g, heads + 1));
                    }
                }
            }
        }
        Results {
            out: bits(&out),
            lse: bits(&lse),
            dq: bits(&dq),
            dk: bits(&dk),
            dv: bits(&dv),
        }
    }
}

/// `Σ x·y` in the order of `row_sum`, fused.
fn row_dot(x: &[f32], y: &[f32]) -> f32 {
    if x.len().is_multiple_of(2) && x.len() / 2 >= LEAF {
        let middle = x.len() / 2;
        return row_dot(&x[..middle], &y[..middle]) + row_dot(&x[middle..], &y[middle..]);
    }
    let mut lanes = [0.0f32; 16];
    for i in 0..x.len() {
        lanes[i % 16] = x[i].mul_add(y[i], lanes[i % 16]);
    }
    fold_lanes(lanes)
}

fn case() -> impl Strategy<Value = Case> {
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
        any::<u32>(),
    )
        .prop_map(
            |((batch, groups, heads), d, (queries, keys, square), (causal, first, shared_mask), mask, seed)| {
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
                }
            },
        )
}

fn compare(case: &Case) {
    let want = case.slow(BLOCK);
    for isa in Isa::available() {
        // Both directions on the fastest only: portable multiply-adds are slow.
        for backwards in [true, false].into_iter().take(if isa == Isa::detect() { 2 } else { 1 }) {
            let got = case.fast(isa, backwards);
            let shape = format!("{} of {case:?}", isa.name());
            assert!(got.out == want.out, "out on {shape}");
            assert!(got.lse == want.lse, "lse on {shape}");
            assert!(got.dq == want.dq, "dq on {shape}");
            assert!(got.dk == want.dk, "dk on {shape}");
            assert!(got.dv == want.dv, "dv on {shape}");
        }
    }
}

fn square(batch: usize, groups: usize, heads: usize, d: usize, tokens: usize) -> Case {
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
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_slow_twin(case in case()) {
        compare(&case);
    }
}

#[test]
fn known_shapes() {
    compare(&square(1, 1, 1, 64, 150));
    compare(&square(16, 1, 1, 16, 70));
    compare(&square(1, 1, 2, 128, 70));
    compare(&square(1, 1, 1, 256, 65));
    compare(&Case {
        causal: false,
        ..square(1, 1, 1, 48, 96)
    });
    compare(&square(1, 1, 1, 1, 1));
    // Nothing to see, nobody to see it.
    compare(&Case {
        keys: 0,
        ..square(1, 1, 1, 16, 100)
    });
    compare(&Case {
        queries: 0,
        ..square(1, 1, 1, 16, 100)
    });
}

/// The outputs of queries `from..to` of a causal case with a cache of `keys` tokens.
fn chunk(case: &Case, from: usize, to: usize, keys: usize) -> Vec<u32> {
    let (x, layout) = case.fused();
    let (d, heads) = (case.d, case.heads);
    let out_layout = Layout {
        batch: (to - from) * case.out_layout().token,
        ..case.out_layout()
    };
    let mut out = vec![f32::NAN; case.batch * out_layout.batch];
    let first = vec![from as u32; case.batch];
    let mut scratch = Scratch::new(Isa::detect());
    let call = Attention {
        batch: case.batch,
        groups: case.groups,
        heads_per_group: heads,
        head_dim: d,
        queries: to - from,
        keys,
        q: &x[from * layout.token..],
        q_layout: layout,
        k: &x[heads * d..],
        k_layout: layout,
        v: &x[(heads + 1) * d..],
        v_layout: layout,
        causal: true,
        scale: case.scale,
        first_query: Some(&first),
        mask: None,
        mask_batch: 0,
        out: Out::new(&mut out),
        out_layout,
        lse: None,
    };
    (0..call.tiles()).for_each(|tile| call.run(tile, &mut scratch));
    bits(&out)
}

#[test]
fn a_prompt_at_once_in_chunks_and_token_by_token() {
    for (heads, d) in [(1, 64), (3, 20)] {
        let case = square(1, 2, heads, d, 150);
        let whole = chunk(&case, 0, 150, 150);
        assert_eq!(whole, case.slow(BLOCK).out);
        for step in [1, 7, 64, 100] {
            let mut parts = Vec::new();
            for from in (0..150).step_by(step) {
                let to = (from + step).min(150);
                // A cache of just the tokens so far, and one that is longer than what is filled.
                parts.extend(chunk(&case, from, to, if from % 2 == 0 { to } else { 150 }));
            }
            assert!(whole == parts, "in chunks of {step}");
        }
    }
}

#[test]
fn what_is_not_seen_is_not_touched() {
    // NaN and infinity in keys and values after the last position: a cache that was never filled.
    let case = square(1, 1, 1, 16, 80);
    let (x, layout) = case.fused();
    let mut dirty = x.clone();
    for t in 40..80 {
        dirty[t * layout.token + case.d..(t + 1) * layout.token].fill(f32::NAN);
    }
    let run = |x: &[f32]| {
        let mut out = vec![f32::NAN; 40 * case.d];
        let call = Attention {
            batch: 1,
            groups: 1,
            heads_per_group: 1,
            head_dim: 16,
            queries: 40,
            keys: 80,
            q: x,
            q_layout: layout,
            k: &x[16..],
            k_layout: layout,
            v: &x[32..],
            v_layout: layout,
            causal: true,
            scale: 0.25,
            first_query: None,
            mask: None,
            mask_batch: 0,
            out: Out::new(&mut out),
            out_layout: case.out_layout(),
            lse: None,
        };
        (0..call.tiles()).for_each(|tile| call.run(tile, &mut Scratch::new(Isa::detect())));
        bits(&out)
    };
    assert_eq!(run(&x), run(&dirty));
}

#[test]
fn another_order_gives_other_bits() {
    // The broken control: blocks of another length.
    let case = square(1, 1, 1, 16, 150);
    let (fast, other) = (case.fast(Isa::detect(), false), case.slow(48));
    assert_ne!(fast.out, other.out);
    assert_ne!(fast.dq, other.dq);
    assert_ne!(fast.dk, other.dk);
}
