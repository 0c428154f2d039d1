//! Attention without the T×T matrix.

use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::attention as kernel;
pub use unisono_kernels::attention::{Layout, Shape};
use unisono_kernels::element::Floats;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// An operand of attention, f32 or bf16 as the others of the call: a buffer and its strides.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// The buffer; queries, keys and values may share one.
    pub buffer: BufferRef,
    /// Strides.
    pub layout: Layout,
}

/// `out = softmax(q kᵀ · scale) v`, by head.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Sizes.
    pub shape: Shape,
    /// Queries.
    pub q: Heads,
    /// Keys.
    pub k: Heads,
    /// Values.
    pub v: Heads,
    /// Position of each sequence's first query, `None` for 0.
    pub first_query: Option<BufferRef>,
    /// Bytes [batch or 1, queries, keys] packed into words, 0 where a key is not seen.
    pub mask: Option<BufferRef>,
    /// Bytes from one sequence's mask to the next; 0 for a shared mask.
    pub mask_batch: usize,
    /// Result.
    pub out: Heads,
    /// Log of each query's sum of exponentials, f32, for the backward pass.
    pub lse: Option<BufferRef>,
}

impl Attention {
    /// Floating-point operations of the forward pass, masked scores not counted.
    fn flops(&self) -> u64 {
        let s = &self.shape;
        let scores = if s.causal && s.queries == s.keys {
            s.queries * (s.queries + 1) / 2
        } else {
            s.queries * s.keys
        };
        4 * (s.batch * s.groups * s.heads_per_group * scores * s.head_dim) as u64
    }

    /// Elements of queries (as many as of the output) and of keys (as many as of values).
    fn elements(&self) -> (usize, usize) {
        let s = &self.shape;
        let head = s.batch * s.groups * s.head_dim;
        (head * s.heads_per_group * s.queries, head * s.keys)
    }

    /// What the kernels are given.
    fn inputs<'a>(&self, place: &Place<'a>) -> kernel::Inputs<'a> {
        kernel::Inputs {
            q: place.floats(self.q.buffer),
            k: place.floats(self.k.buffer),
            v: place.floats(self.v.buffer),
            first_query: self.first_query.map(|b| place.u32(b)),
            mask: self.mask.map(|b| place.u8(b)),
            ..self.bare()
        }
    }

    /// The same without memory: enough to count tiles.
    fn bare<'a>(&self) -> kernel::Inputs<'a> {
        kernel::Inputs {
            shape: self.shape,
            q: Floats::F32(&[]),
            q_layout: self.q.layout,
            k: Floats::F32(&[]),
            k_layout: self.k.layout,
            v: Floats::F32(&[]),
            v_layout: self.v.layout,
            first_query: None,
            mask: None,
            mask_batch: self.mask_batch,
            out_layout: self.out.layout,
        }
    }
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for heads in [self.q, self.k, self.v] {
            see(heads.buffer);
        }
        self.first_query.map(&mut *see);
        self.mask.map(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.out.buffer);
        self.lse.map(see);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let (q, k) = self.elements();
        Cost {
            flops: self.flops(),
            bytes: (self.out.buffer.dtype.bytes() * (2 * q + 2 * k)) as u64,
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.bare().tiles()
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let call = kernel::Attention {
            inputs: self.inputs(place),
            out: place.out_floats(self.out.buffer),
            lse: self.lse.map(|b| place.out(b)),
        };
        call.run(tile, scratch);
    }
}

/// The gradient of [`Attention`] with respect to queries, keys and values.
#[derive(Clone, Debug)]
pub struct AttentionGrad {
    /// The forward pass.
    pub forward: Attention,
    /// Its log-sums, as it wrote them.
    pub lse: BufferRef,
    /// Gradient of its result, laid out like the result.
    pub d_out: BufferRef,
    /// Gradient of the queries, laid out like the queries.
    pub dq: BufferRef,
    /// Gradient of the keys.
    pub dk: BufferRef,
    /// Gradient of the values.
    pub dv: BufferRef,
}

impl Op for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        self.forward.reads(see);
        for buffer in [self.forward.out.buffer, self.lse, self.d_out] {
            see(buffer);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.dq, self.dk, self.dv] {
            see(buffer);
        }
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let (q, k) = self.forward.elements();
        // Five products of the forward's size of two (the scores are computed again), as the field counts it.
        Cost {
            flops: self.forward.flops() / 2 * 5,
            bytes: (self.dq.dtype.bytes() * (4 * q + 4 * k)) as u64,
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.forward.bare().gradient_tiles()
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let call = kernel::AttentionGrad {
            inputs: self.forward.inputs(place),
            out: place.floats(self.forward.out.buffer),
            d_out: place.floats(self.d_out),
            lse: place.f32(self.lse),
            dq: place.out_floats(self.dq),
            dk: place.out_floats(self.dk),
            dv: place.out_floats(self.dv),
        };
        call.run(tile, scratch);
    }
}
