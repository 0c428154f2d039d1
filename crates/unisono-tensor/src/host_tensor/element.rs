//! The kinds of numbers that host arrays hold, as types.

use crate::Dtype;
use unisono_kernels::element::Bf16;

/// A number that a [`HostTensor`](crate::HostTensor) can hold: `f32`, `Bf16`, `u32`, `i32` or `u8`.
pub trait HostElement: Copy + PartialEq + std::fmt::Debug + 'static {
    /// Its kind.
    const DTYPE: Dtype;

    /// Values as little-endian bytes.
    fn to_bytes(values: &[Self]) -> Vec<u8>;

    /// Values from little-endian bytes, whose number must be a multiple of the element's.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;

    /// The value as f64; exact.
    fn to_f64(self) -> f64;
}

/// `values` as bytes, `N` each.
fn pack<T: Copy, const N: usize>(values: &[T], le: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; N * values.len()];
    for (to, value) in bytes.chunks_exact_mut(N).zip(values) {
        to.copy_from_slice(&le(*value));
    }
    bytes
}

/// Values from bytes, `N` each.
fn unpack<T, const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks.iter().map(|chunk| value(*chunk)).collect()
}

impl HostElement for f32 {
    const DTYPE: Dtype = Dtype::F32;

    fn to_bytes(values: &[f32]) -> Vec<u8> {
        pack(values, f32::to_le_bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Vec<f32> {
        unpack(bytes, f32::from_le_bytes)
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl HostElement for Bf16 {
    const DTYPE: Dtype = Dtype::Bf16;

    fn to_bytes(values: &[Bf16]) -> Vec<u8> {
        pack(values, |value| value.to_bits().to_le_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Vec<Bf16> {
        unpack(bytes, |bytes| Bf16::from_bits(u16::from_le_bytes(bytes)))
    }

    fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }
}

impl HostElement for u32 {
    const DTYPE: Dtype = Dtype::U32;

    fn to_bytes(values: &[u32]) -> Vec<u8> {
        pack(values, u32::to_le_bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Vec<u32> {
        unpack(bytes, u32::from_le_bytes)
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl HostElement for i32 {
    const DTYPE: Dtype = Dtype::I32;

    fn to_bytes(values: &[i32]) -> Vec<u8> {
        pack(values, i32::to_le_bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Vec<i32> {
        unpack(bytes, i32::from_le_bytes)
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl HostElement for u8 {
    const DTYPE: Dtype = Dtype::U8;

    fn to_bytes(values: &[u8]) -> Vec<u8> {
        values.to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}
