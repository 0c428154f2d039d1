//! Calls of the kernels.

use super::case::{Case, Results, bits};
use unisono_kernels::attention::{Attention, AttentionGrad, Inputs, Layout, Shape};
use unisono_kernels::element::{Bf16, Element, Floats, OutFloats};
use unisono_kernels::isa::Isa;
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;

impl Case {
    /// Forward and backward pass, by tiles in either order.
    pub fn fast(&self, isa: Isa, backwards: bool) -> Results {
        self.fast_of(&self.inputs(), isa, backwards)
    }

    /// The same of other inputs.
    pub fn fast_of(&self, x: &[f32], isa: Isa, backwards: bool) -> Results {
        match self.half {
            true => self.fast_in::<Bf16>(x, isa, backwards),
            false => self.fast_in::<f32>(x, isa, backwards),
        }
    }

    fn fast_in<E: Element>(&self, x: &[f32], isa: Isa, backwards: bool) -> Results
    where
        for<'a> Floats<'a>: From<&'a [E]>,
        for<'a> OutFloats<'a>: From<Out<'a, E>>,
    {
        let (x, layout): (Vec<E>, _) = (elements(x), self.layout());
        let (d, heads) = (self.d, self.heads);
        let out_layout = self.out_layout();
        let mut out = vec![E::from_f32(f32::NAN); self.batch * out_layout.batch];
        let mut lse = vec![f32::NAN; self.batch * self.groups * heads * self.queries];
        let mut scratch = Scratch::new(isa);
        // What an earlier kernel left must not matter.
        scratch.floats(200_000).fill(f32::NAN);
        let order = |tiles: usize| -> Vec<usize> {
            if backwards {
                (0..tiles).rev().collect()
            } else {
                (0..tiles).collect()
            }
        };
        let forward = Attention {
            inputs: self.inputs_of((&x, layout), out_layout),
            out: Out::new(&mut out).into(),
            lse: Some(Out::new(&mut lse)),
        };
        for tile in order(forward.tiles()) {
            forward.run(tile, &mut scratch);
        }
        let mut dx = vec![E::from_f32(f32::NAN); x.len()];
        let (dx_ptr, dx_len) = (dx.as_mut_ptr(), dx.len());
        // SAFETY: one array, of which the three views write different elements, from this thread only.
        let view = |from: usize| unsafe { Out::shared(dx_ptr.add(from), dx_len - from) };
        let d_out: Vec<E> = elements(&self.d_out());
        let backward = AttentionGrad {
            inputs: self.inputs_of((&x, layout), out_layout),
            out: out[..].into(),
            d_out: d_out[..].into(),
            lse: &lse,
            dq: view(0).into(),
            dk: view(heads * d).into(),
            dv: view((heads + 1) * d).into(),
        };
        for tile in order(backward.tiles()) {
            backward.run(tile, &mut scratch);
        }
        let dx = floats(&dx);
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
            out: bits(&floats(&out)),
            lse: bits(&lse),
            dq: bits(&dq),
            dk: bits(&dk),
            dv: bits(&dv),
        }
    }

    /// The array `[batch, tokens, groups, [q…, k, v], d]`.
    fn inputs_of<'a, E>(&'a self, (x, layout): (&'a [E], Layout), out_layout: Layout) -> Inputs<'a>
    where
        Floats<'a>: From<&'a [E]>,
    {
        let (d, heads) = (self.d, self.heads);
        Inputs {
            shape: Shape {
                batch: self.batch,
                groups: self.groups,
                heads_per_group: heads,
                head_dim: d,
                queries: self.queries,
                keys: self.keys,
                causal: self.causal,
                scale: self.scale,
            },
            q: x.into(),
            q_layout: layout,
            k: x[heads * d..].into(),
            k_layout: layout,
            v: x[(heads + 1) * d..].into(),
            v_layout: layout,
            first_query: self.first.as_deref(),
            mask: self.mask.as_deref(),
            mask_batch: self.mask_batch(),
            out_layout,
        }
    }

    /// The outputs of queries `from..to` of a causal case on the inputs `x`, with a cache of `keys` tokens.
    pub fn chunk(&self, x: &[f32], from: usize, to: usize, keys: usize) -> Vec<u32> {
        match self.half {
            true => self.chunk_in::<Bf16>(x, from, to, keys),
            false => self.chunk_in::<f32>(x, from, to, keys),
        }
    }

    fn chunk_in<E: Element>(&self, x: &[f32], from: usize, to: usize, keys: usize) -> Vec<u32>
    where
        for<'a> Floats<'a>: From<&'a [E]>,
        for<'a> OutFloats<'a>: From<Out<'a, E>>,
    {
        let (x, layout): (Vec<E>, _) = (elements(x), self.layout());
        let out_layout = Layout {
            batch: (to - from) * self.out_layout().token,
            ..self.out_layout()
        };
        let mut out = vec![E::from_f32(f32::NAN); self.batch * out_layout.batch];
        let first = vec![from as u32; self.batch];
        let mut scratch = Scratch::new(Isa::detect());
        let whole = self.inputs_of((&x, layout), out_layout);
        let inputs = Inputs {
            shape: Shape {
                queries: to - from,
                keys,
                ..whole.shape
            },
            q: x[from * layout.token..].into(),
            first_query: Some(&first),
            ..whole
        };
        let call = Attention {
            inputs,
            out: Out::new(&mut out).into(),
            lse: None,
        };
        (0..call.tiles()).for_each(|tile| call.run(tile, &mut scratch));
        bits(&floats(&out))
    }
}

fn elements<E: Element>(x: &[f32]) -> Vec<E> {
    x.iter().map(|x| E::from_f32(*x)).collect()
}

fn floats<E: Element>(x: &[E]) -> Vec<f32> {
    x.iter().map(|x| x.to_f32()).collect()
}
