//! The slow twin: plain loops that state the order.

use super::case::{Case, Results, bits};
use unisono_kernels::attention::BLOCK;
use unisono_kernels::math::{exp, ln};
use unisono_kernels::order::{LEAF, Units, dot, fold_lanes};

/// What the order depends on.
#[derive(Clone, Copy)]
pub struct Order {
    /// Keys, and queries, of a block.
    pub block: usize,
    /// Whether the backward pass is given the output as it was stored.
    pub out_stored: bool,
    /// Whether the sums of `dk` and `dv` are stored after each query head of a group.
    pub heads_stored: bool,
    /// Whether the forward pass takes the scores of bf16 in pairs of elements.
    pub pairs: bool,
    /// Whether it then rounds probabilities to bf16.
    pub probabilities_stored: bool,
    /// Whether it then takes values in pairs of keys.
    pub key_pairs: bool,
}

impl Order {
    /// The kernels' order.
    pub const TRUE: Order = Order {
        block: BLOCK,
        out_stored: true,
        heads_stored: false,
        pairs: true,
        probabilities_stored: true,
        key_pairs: true,
    };
}

impl Case {
    /// The results.
    pub fn slow(&self, order: Order) -> Results {
        let block = order.block;
        let x = self.inputs();
        let (d, heads) = (self.d, self.heads);
        let whole = Units::whole(d);
        let d_out = self.d_out();
        let nothing = vec![0.0f32; d];
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
                            let exact: Vec<f32> = k.iter().map(|k| dot(&q, k, whole)).collect();
                            let dots: Vec<f32> = match self.half && order.pairs {
                                true => k.iter().map(|k| pair_dot(&q, k)).collect(),
                                false => exact.clone(),
                            };
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
                                // The last pair may lack its second.
                                let mut p = vec![0.0f32; self.keys + 1];
                                for j in &seen {
                                    p[*j] = exp(dots[*j].mul_add(self.scale, -m));
                                    block_lanes[(j - kb) % 16] += p[*j];
                                }
                                if self.half && order.probabilities_stored {
                                    p.iter_mut().for_each(|p| *p = self.stored(*p));
                                }
                                let mut order_of_keys = seen.clone();
                                if self.half && order.key_pairs {
                                    // Of a pair that is seen, the half that is not is +0 · +0.
                                    let mut pairs: Vec<usize> = seen.iter().map(|j| j / 2).collect();
                                    pairs.dedup();
                                    order_of_keys = pairs.iter().flat_map(|pair| [2 * pair + 1, 2 * pair]).collect();
                                }
                                for j in order_of_keys {
                                    let v = if seen.contains(&j) { &v[j] } else { &nothing };
                                    for c in 0..d {
                                        let sum = &mut block_acc[c];
                                        *sum = match self.half && order.key_pairs {
                                            true => fma_flushed(p[j], v[c], *sum),
                                            false => p[j].mul_add(v[c], *sum),
                                        };
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
                                    if order.out_stored {
                                        out[at + c] = self.stored(out[at + c]);
                                    }
                                }
                            }
                            // Backward.
                            let delta = row_dot(&d_out[at..at + d], &out[at..at + d]);
                            let mut sum_q = vec![0.0f32; d];
                            for kb in (0..self.keys).step_by(block) {
                                let mut block_q = vec![0.0f32; d];
                                for j in seen(kb) {
                                    let p = exp(exact[j].mul_add(self.scale, -lse[at_lse]));
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
                                dq[at + c] = self.stored(sum_q[c] * self.scale + 0.0);
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
                            if order.heads_stored {
                                (dk[at], dv[at]) = (self.stored(dk[at]), self.stored(dv[at]));
                            }
                        }
                    }
                }
                for j in 0..self.keys {
                    for c in 0..d {
                        let at = key(b, j, g) + c;
                        dk[at] = self.stored(dk[at] * self.scale + 0.0);
                        dv[at] = self.stored(dv[at] + 0.0);
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

/// `Σ x·y` of bf16 in pairs, the second of each first.
fn pair_dot(x: &[f32], y: &[f32]) -> f32 {
    if x.len().is_multiple_of(2) && x.len() / 2 >= LEAF {
        let middle = x.len() / 2;
        return pair_dot(&x[..middle], &y[..middle]) + pair_dot(&x[middle..], &y[middle..]);
    }
    let mut sum = 0.0f32;
    for pair in 0..x.len().div_ceil(2) {
        for at in [2 * pair + 1, 2 * pair] {
            if at < x.len() {
                sum = fma_flushed(x[at], y[at], sum);
            }
        }
    }
    sum
}

/// `a · b + c` where denormal factors are zeros, as is a result that is below 2⁻¹²⁶ when it is rounded to 24 bits.
fn fma_flushed(a: f32, b: f32, c: f32) -> f32 {
    let flushed = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    let (a, b) = (flushed(a), flushed(b));
    let r = a.mul_add(b, c);
    if r.is_nan() || r.abs() > f32::MIN_POSITIVE {
        return r;
    }
    // So near to zero the sum is exact in f64, or at least on the same side of the limit.
    let exact = f64::from(a) * f64::from(b) + f64::from(c);
    match exact != 0.0 && exact.abs() < 2f64.powi(-126) - 2f64.powi(-151) {
        true => 0f32.copysign(exact as f32),
        false => r,
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
