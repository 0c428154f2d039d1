//! One update of a run of parameters, in one pass over memory.
//!
//! Element i depends on elements i only, so any cut of the parameters gives the same bits. Hyperparameters are f64 as the host
//! has them; what they combine to is worked out in f64 and rounded once to f32.

use crate::element::{Bf16, Element};
use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};

/// The hyperparameters of one AdamW step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moments.
    pub beta1: f64,
    /// Decay of the second moments.
    pub beta2: f64,
    /// Added to the root of the second moments.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// 1 − beta1ᵗ, t counted from 1.
    pub bias_correction1: f64,
    /// 1 − beta2ᵗ.
    pub bias_correction2: f64,
    /// What the gradient is multiplied by first (clipping).
    pub grad_scale: f32,
}

/// One AdamW step (Loshchilov and Hutter, *Decoupled weight decay regularization*, 2019; the formula is PyTorch's):
///
/// ```text
/// g = g · grad_scale
/// m = fma(1 − β1, g − m, m)
/// v = fma((1 − β2) · g, g, β2 · v)
/// p = fma(−lr / bc1, m / fma(√v, 1 / √bc2, eps), (1 − lr · weight_decay) · p)
/// ```
///
/// All slices have the same length; `g` is not changed. `copy`, where given, becomes `p` rounded to bf16.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn adamw(
    isa: Isa,
    hyper: &AdamW,
    p: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    g: &[f32],
    copy: Option<&mut [Bf16]>,
) {
    assert!(
        [p.len(), m.len(), v.len()] == [g.len(); 3] && copy.as_ref().is_none_or(|copy| copy.len() == p.len()),
        "bug in unisono: AdamW of {} parameters with {}, {} moments, {} gradients and a copy of {:?}",
        p.len(),
        m.len(),
        v.len(),
        g.len(),
        copy.map(|copy| copy.len())
    );
    let copy = copy.unwrap_or_default();
    dispatch!(
        isa,
        adamw_lanes(hyper: &AdamW, p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], copy: &mut [Bf16])
    );
}

/// The hyperparameters of one step of stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the momentum; of no meaning without a momentum buffer.
    pub momentum: f64,
    /// Part of the gradient that is kept out of the momentum.
    pub dampening: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Nesterov's momentum.
    pub nesterov: bool,
    /// What the gradient is multiplied by first (clipping).
    pub grad_scale: f32,
    /// In the first step the momentum becomes the gradient, whatever the buffer holds and the dampening is.
    pub first_step: bool,
}

/// One step of stochastic gradient descent, as PyTorch's:
///
/// ```text
/// g = fma(weight_decay, p, g · grad_scale)
/// b = g                                              in the first step, else
/// b = fma(1 − dampening, g, momentum · b)
/// d = b, or fma(momentum, b, g) by Nesterov; d = g without a buffer
/// p = fma(−lr, d, p)
/// ```
///
/// All slices have the same length; `g` is not changed. `copy`, where given, becomes `p` rounded to bf16.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn sgd(
    isa: Isa,
    hyper: &Sgd,
    p: &mut [f32],
    momentum_buf: Option<&mut [f32]>,
    g: &[f32],
    copy: Option<&mut [Bf16]>,
) {
    assert!(
        p.len() == g.len()
            && momentum_buf.as_ref().is_none_or(|b| b.len() == g.len())
            && copy.as_ref().is_none_or(|copy| copy.len() == p.len()),
        "bug in unisono: SGD of {} parameters with {:?} momenta, {} gradients and a copy of {:?}",
        p.len(),
        momentum_buf.as_ref().map(|b| b.len()),
        g.len(),
        copy.map(|copy| copy.len())
    );
    let copy = copy.unwrap_or_default();
    match momentum_buf {
        Some(b) => dispatch!(
            isa,
            momentum_lanes(hyper: &Sgd, p: &mut [f32], b: &mut [f32], g: &[f32], copy: &mut [Bf16])
        ),
        None => dispatch!(isa, sgd_lanes(hyper: &Sgd, p: &mut [f32], g: &[f32], copy: &mut [Bf16])),
    }
}

/// Rounds up to 16 updated parameters into the next part of a copy; there is none where no copy is kept.
#[inline(always)]
fn keep<S: Simd>(s: S, parts: &mut std::slice::ChunksMut<'_, Bf16>, new: S::F) {
    if let Some(part) = parts.next() {
        Bf16::write(s, part, new);
    }
}

#[inline(always)]
fn adamw_lanes<S: Simd>(
    s: S,
    hyper: &AdamW,
    p: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    g: &[f32],
    copy: &mut [Bf16],
) {
    let mut copies = copy.chunks_mut(LANES);
    let factors = AdamWFactors::new(s, hyper);
    let (p, p_tail) = p.as_chunks_mut::<LANES>();
    let (m, m_tail) = m.as_chunks_mut::<LANES>();
    let (v, v_tail) = v.as_chunks_mut::<LANES>();
    let (g, g_tail) = g.as_chunks::<LANES>();
    for (((p, m), v), g) in p.iter_mut().zip(m).zip(v).zip(g) {
        let new = factors.step(s, p, m, v, g);
        keep(s, &mut copies, new);
    }
    let new = factors.step(s, p_tail, m_tail, v_tail, g_tail);
    keep(s, &mut copies, new);
}

/// What a step of AdamW multiplies by, in each lane.
struct AdamWFactors<F> {
    grad_scale: F,
    kept: F,
    rate1: F,
    beta2: F,
    rate2: F,
    root: F,
    eps: F,
    step: F,
}

impl<F: Copy> AdamWFactors<F> {
    #[inline(always)]
    fn new<S: Simd<F = F>>(s: S, hyper: &AdamW) -> AdamWFactors<F> {
        AdamWFactors {
            grad_scale: s.splat(hyper.grad_scale),
            kept: s.splat((1.0 - hyper.lr * hyper.weight_decay) as f32),
            rate1: s.splat((1.0 - hyper.beta1) as f32),
            beta2: s.splat(hyper.beta2 as f32),
            rate2: s.splat((1.0 - hyper.beta2) as f32),
            root: s.splat((1.0 / hyper.bias_correction2.sqrt()) as f32),
            eps: s.splat(hyper.eps as f32),
            step: s.splat((-hyper.lr / hyper.bias_correction1) as f32),
        }
    }

    /// Up to 16 parameters, whose new values are returned.
    #[inline(always)]
    fn step<S: Simd<F = F>>(&self, s: S, p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) -> F {
        let g = s.mul(s.read(g), self.grad_scale);
        let old = s.read(m);
        let first = s.fma(self.rate1, s.sub(g, old), old);
        s.write(m, first);
        let second = s.fma(s.mul(self.rate2, g), g, s.mul(self.beta2, s.read(v)));
        s.write(v, second);
        let ratio = s.div(first, s.fma(s.sqrt(second), self.root, self.eps));
        let new = s.fma(self.step, ratio, s.mul(self.kept, s.read(p)));
        s.write(p, new);
        new
    }
}

#[inline(always)]
fn momentum_lanes<S: Simd>(s: S, hyper: &Sgd, p: &mut [f32], b: &mut [f32], g: &[f32], copy: &mut [Bf16]) {
    let mut copies = copy.chunks_mut(LANES);
    let factors = SgdFactors::new(s, hyper);
    let (p, p_tail) = p.as_chunks_mut::<LANES>();
    let (b, b_tail) = b.as_chunks_mut::<LANES>();
    let (g, g_tail) = g.as_chunks::<LANES>();
    for ((p, b), g) in p.iter_mut().zip(b).zip(g) {
        let new = factors.momentum_step(s, hyper, p, b, g);
        keep(s, &mut copies, new);
    }
    let new = factors.momentum_step(s, hyper, p_tail, b_tail, g_tail);
    keep(s, &mut copies, new);
}

#[inline(always)]
fn sgd_lanes<S: Simd>(s: S, hyper: &Sgd, p: &mut [f32], g: &[f32], copy: &mut [Bf16]) {
    let mut copies = copy.chunks_mut(LANES);
    let factors = SgdFactors::new(s, hyper);
    let (p, p_tail) = p.as_chunks_mut::<LANES>();
    let (g, g_tail) = g.as_chunks::<LANES>();
    for (p, g) in p.iter_mut().zip(g) {
        let new = factors.plain_step(s, p, g);
        keep(s, &mut copies, new);
    }
    let new = factors.plain_step(s, p_tail, g_tail);
    keep(s, &mut copies, new);
}

/// What a step of SGD multiplies by, in each lane.
struct SgdFactors<F> {
    grad_scale: F,
    weight_decay: F,
    momentum: F,
    rate: F,
    step: F,
}

impl<F: Copy> SgdFactors<F> {
    #[inline(always)]
    fn new<S: Simd<F = F>>(s: S, hyper: &Sgd) -> SgdFactors<F> {
        SgdFactors {
            grad_scale: s.splat(hyper.grad_scale),
            weight_decay: s.splat(hyper.weight_decay as f32),
            momentum: s.splat(hyper.momentum as f32),
            rate: s.splat((1.0 - hyper.dampening) as f32),
            step: s.splat(-hyper.lr as f32),
        }
    }

    /// The gradient with clipping and decay.
    #[inline(always)]
    fn gradient<S: Simd<F = F>>(&self, s: S, p: F, g: F) -> F {
        s.fma(self.weight_decay, p, s.mul(g, self.grad_scale))
    }

    /// Up to 16 parameters with momentum; their new values are returned.
    #[inline(always)]
    fn momentum_step<S: Simd<F = F>>(&self, s: S, hyper: &Sgd, p: &mut [f32], b: &mut [f32], g: &[f32]) -> F {
        let old = s.read(p);
        let g = self.gradient(s, old, s.read(g));
        let moved = s.fma(self.rate, g, s.mul(self.momentum, s.read(b)));
        let moved = if hyper.first_step { g } else { moved };
        s.write(b, moved);
        let ahead = s.fma(self.momentum, moved, g);
        let direction = if hyper.nesterov { ahead } else { moved };
        let new = s.fma(self.step, direction, old);
        s.write(p, new);
        new
    }

    /// Up to 16 parameters without; their new values are returned.
    #[inline(always)]
    fn plain_step<S: Simd<F = F>>(&self, s: S, p: &mut [f32], g: &[f32]) -> F {
        let old = s.read(p);
        let g = self.gradient(s, old, s.read(g));
        let new = s.fma(self.step, g, old);
        s.write(p, new);
        new
    }
}
