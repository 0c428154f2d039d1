//! Activations in an epilogue: as functions of lanes, and of bf16 as tables.

use super::Activation;
use super::arithmetic::Arithmetic;
use super::kernel::{Kernel, Work};
use crate::element::{Bf16, Element};
use crate::elementwise;
use crate::simd::{LANES, Simd};
use std::sync::OnceLock;

/// An activation as a type: a function passed to the loop would not surely be inlined where the lanes' features are.
pub(super) trait Act {
    fn value<S: Simd>(s: S, x: S::F) -> S::F;

    /// What is stored for `x`: the activation takes what memory of this kind would hold, and so can be computed again from it.
    #[inline(always)]
    fn stored<S: Simd, E: Element>(s: S, x: S::F) -> S::F {
        Self::value(s, E::rounded(s, x))
    }
}

pub(super) struct Same;
pub(super) struct Relu;
pub(super) struct Gelu;
pub(super) struct GeluTanh;
pub(super) struct Silu;

impl Act for Same {
    #[inline(always)]
    fn value<S: Simd>(_: S, x: S::F) -> S::F {
        x
    }
    #[inline(always)]
    fn stored<S: Simd, E: Element>(_: S, x: S::F) -> S::F {
        x
    }
}

impl Act for Relu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::relu(s, x)
    }
}

impl Act for Gelu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::gelu_erf(s, x)
    }
}

impl Act for GeluTanh {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::gelu_tanh(s, x)
    }
}

impl Act for Silu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::silu(s, x)
    }
}

/// The bf16 result of an activation for each bf16 argument, by its bits, where an activation costs more than to look it up:
/// of 2¹⁶ arguments the usual ones stay in the first cache. The results are those of the function.
pub(super) struct Table {
    activation: Activation,
    results: OnceLock<Box<[Bf16; 1 << 16]>>,
}

static TABLES: [Table; 3] = [
    Table::new(Activation::Gelu),
    Table::new(Activation::GeluTanh),
    Table::new(Activation::Silu),
];

impl Table {
    const fn new(activation: Activation) -> Table {
        Table {
            activation,
            results: OnceLock::new(),
        }
    }

    /// The table of an activation that has one.
    pub fn of(activation: Activation) -> Option<&'static Table> {
        TABLES.iter().find(|table| table.activation == activation)
    }

    /// Its results, which the first call computes.
    pub fn get<K: Kernel, A: Arithmetic<K>>(&self) -> &[Bf16; 1 << 16] {
        self.results.get_or_init(|| {
            let mut results = Box::new([Bf16::default(); 1 << 16]);
            // SAFETY: whoever chose the arithmetic made sure of its instructions.
            unsafe { K::call::<A, _>(Fill(self.activation, &mut results)) };
            results
        })
    }
}

/// Computes a table.
struct Fill<'a>(Activation, &'a mut [Bf16; 1 << 16]);

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for Fill<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        match self.0 {
            Activation::Gelu => fill::<K, Gelu>(s, self.1),
            Activation::GeluTanh => fill::<K, GeluTanh>(s, self.1),
            Activation::Silu => fill::<K, Silu>(s, self.1),
            Activation::None | Activation::Relu => panic!("bug in unisono: a table of {:?}", self.0),
        }
    }
}

#[inline(always)]
fn fill<S: Simd, A: Act>(s: S, results: &mut [Bf16; 1 << 16]) {
    for (first, results) in (0..).step_by(LANES).zip(results.chunks_exact_mut(LANES)) {
        let arguments = std::array::from_fn(|lane| (first + lane as u32) << 16);
        Bf16::write(s, results, A::value(s, s.from_bits(s.from_array_u(arguments))));
    }
}
