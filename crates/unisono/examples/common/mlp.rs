//! What the mesh examples share: an MLP `gelu(x · up) · down`, its sizes, numbers for it, and the same by plain loops.

// Each example uses a part.
#![allow(dead_code)]

use unisono::prelude::*;

/// The sizes of the MLP; it is four times as wide inside.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Sequences.
    pub batch: usize,
    /// Tokens of a sequence.
    pub tokens: usize,
    /// Features outside.
    pub hidden: usize,
}

/// Small enough for a test.
pub const SMALL: Sizes = Sizes {
    batch: 8,
    tokens: 2,
    hidden: 64,
};

/// An MLP of Falcon-7B, 660 MB of weights. Its 18,176 inner features are 8 units of 2,272.
pub const FALCON_7B: Sizes = Sizes {
    batch: 8,
    tokens: 32,
    hidden: 4544,
};

impl Sizes {
    /// Falcon-7B's where the program was called with the word `falcon`.
    pub fn chosen() -> Sizes {
        match std::env::args().any(|word| word == "falcon") {
            true => FALCON_7B,
            false => SMALL,
        }
    }

    /// Features inside.
    pub fn inner(self) -> usize {
        4 * self.hidden
    }

    /// Input number `which`, [batch, tokens, hidden].
    pub fn x(self, which: u32) -> Result<HostTensor> {
        numbers(which, 1.0, &[self.batch, self.tokens, self.hidden])
    }

    /// The first weight, [hidden, inner].
    pub fn up(self) -> Result<HostTensor> {
        numbers(1001, 1.0 / (self.hidden as f32).sqrt(), &[self.hidden, self.inner()])
    }

    /// The second weight, [inner, hidden].
    pub fn down(self) -> Result<HostTensor> {
        numbers(1002, 1.0 / (self.inner() as f32).sqrt(), &[self.inner(), self.hidden])
    }

    /// The first `rows` rows of the output for input `which`, by plain loops in f64.
    pub fn plain(self, which: u32, rows: usize) -> Result<Vec<f32>> {
        let (x, up, down) = (self.x(which)?.to_vec()?, self.up()?.to_vec()?, self.down()?.to_vec()?);
        let mut result = Vec::new();
        for x in x.chunks_exact(self.hidden).take(rows) {
            let x: Vec<f64> = x.iter().map(|x: &f32| f64::from(*x)).collect();
            let inner: Vec<f64> = product(&x, &up).into_iter().map(gelu).collect();
            result.extend(product(&inner, &down).into_iter().map(|y| y as f32));
        }
        Ok(result)
    }
}

/// Numbers in ±`scale` that look drawn: a hash of the index (MurmurHash3's last step).
fn numbers(seed: u32, scale: f32, shape: &[usize]) -> Result<HostTensor> {
    let number = |i: u32| {
        let mut h = i.wrapping_add(seed.wrapping_mul(0x9E37_79B9));
        h = (h ^ (h >> 16)).wrapping_mul(0x85EB_CA6B);
        h = (h ^ (h >> 13)).wrapping_mul(0xC2B2_AE35);
        ((h ^ (h >> 16)) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let len: usize = shape.iter().product();
    let values: Vec<f32> = (0..len as u32).map(|i| scale * number(i)).collect();
    HostTensor::new(&values, shape)
}

/// A row times a matrix whose rows are as many as the row has elements.
fn product(row: &[f64], matrix: &[f32]) -> Vec<f64> {
    let cols = matrix.len() / row.len();
    let mut sums = vec![0.0; cols];
    for (x, weights) in row.iter().zip(matrix.chunks_exact(cols)) {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum += x * f64::from(*weight);
        }
    }
    sums
}

/// GELU, in its approximation by tanh.
fn gelu(x: f64) -> f64 {
    let inside = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inside.tanh())
}
