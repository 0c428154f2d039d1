//! Numbers in memory that belongs to someone else, as a mapped file of weights, and how a device's part of them is copied.

use crate::error::RuntimeError;
use std::fmt;
use std::sync::Arc;
use unisono_kernels::cast::cast;
use unisono_kernels::element::{Bf16, Floats, FloatsMut};
use unisono_kernels::isa::Isa;

/// What stored numbers are; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredDtype {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point of IEEE 754.
    F16,
    /// 16-bit floating point with the exponent of f32.
    Bf16,
}

impl StoredDtype {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            StoredDtype::F32 => 4,
            StoredDtype::F16 | StoredDtype::Bf16 => 2,
        }
    }
}

/// Memory that is shared with its owner until the copy is made.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A matrix in shared memory, and the part of it that each device takes.
#[derive(Clone)]
pub struct Stored {
    /// The memory.
    pub bytes: SharedBytes,
    /// Byte of the first number.
    pub start: usize,
    /// What the numbers are.
    pub dtype: StoredDtype,
    /// Numbers from one row to the next.
    pub stride: usize,
    /// Elements of a row on a device.
    pub cols: usize,
    /// Each device's part, in the order of device ids. Devices that take the same share it.
    pub parts: Vec<Arc<StoredPart>>,
}

/// What one device takes of a matrix: its own row `r` is row `first_row + r`, for `r < rows`. Everything else becomes zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// The first row.
    pub first_row: usize,
    /// Rows that there are.
    pub rows: usize,
    /// Which numbers of a row go where, in ascending order of `to` and without overlap.
    pub runs: Vec<Run>,
}

/// Neighbours in a stored row that are neighbours on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Place of the first one in the row on the device.
    pub to: usize,
    /// Place of the first one in the stored row.
    pub from: usize,
    /// How many.
    pub len: usize,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("start", &self.start)
            .field("dtype", &self.dtype)
            .field("stride", &self.stride)
            .finish_non_exhaustive()
    }
}

impl Stored {
    /// Checks that there are rows for `len` elements on each of `devices` devices, and that all runs lie in the memory.
    pub(crate) fn check(&self, len: usize, devices: usize) -> Result<(), RuntimeError> {
        if self.parts.len() != devices {
            return Err(RuntimeError::Length {
                what: "parts of stored values, one a device",
                given: self.parts.len(),
                expected: devices,
            });
        }
        let available = (*self.bytes).as_ref().len();
        for part in &self.parts {
            let rows = len.checked_div(self.cols).unwrap_or(0);
            let columns = part.runs.iter().map(|run| run.to + run.len).max().unwrap_or(0);
            if part.rows > rows || rows * self.cols != len || columns > self.cols {
                return Err(RuntimeError::Length {
                    what: "elements of stored rows",
                    given: part.rows * self.cols.max(columns),
                    expected: len,
                });
            }
            let end = part.runs.iter().map(|run| run.from + run.len).max().unwrap_or(0);
            let last = (part.first_row + part.rows).saturating_sub(1);
            let needed = match part.rows {
                0 => 0,
                _ => self.start + self.dtype.bytes() * (last * self.stride + end),
            };
            if needed > available {
                return Err(RuntimeError::Length {
                    what: "bytes of stored values",
                    given: available,
                    expected: needed,
                });
            }
        }
        Ok(())
    }

    /// Elements `from..from + to.len()` of the device's part.
    pub(crate) fn copy(&self, isa: Isa, device: usize, from: usize, mut to: FloatsMut<'_>) {
        let (part, cols) = (&*self.parts[device], self.cols);
        let mut at = from;
        while !to.is_empty() {
            let (row, first) = (at / cols, at % cols);
            let len = (cols - first).min(to.len());
            let (now, later) = split(to, len);
            self.copy_row(isa, part, row, first, now);
            (at, to) = (at + len, later);
        }
    }

    /// The elements of `row` from column `first` on.
    fn copy_row(&self, isa: Isa, part: &StoredPart, row: usize, first: usize, mut to: FloatsMut<'_>) {
        let end = first + to.len();
        let runs: &[Run] = if row < part.rows { &part.runs } else { &[] };
        let mut at = first;
        for run in &runs[runs.partition_point(|run| run.to + run.len <= first)..] {
            if run.to >= end {
                break;
            }
            let (start, stop) = (run.to.max(at), (run.to + run.len).min(end));
            let (gap, rest) = split(to, start - at);
            fill_zero(gap);
            let (now, later) = split(rest, stop - start);
            let number = (part.first_row + row) * self.stride + run.from + (start - run.to);
            self.convert(isa, number, now);
            (at, to) = (stop, later);
        }
        fill_zero(to);
    }

    /// The numbers from `number` on, in the order of the memory.
    fn convert(&self, isa: Isa, number: usize, to: FloatsMut<'_>) {
        let size = self.dtype.bytes();
        let bytes = &(*self.bytes).as_ref()[self.start + size * number..][..size * to.len()];
        match (self.dtype, to) {
            (StoredDtype::F32, FloatsMut::F32(to)) => each(bytes, to, f32::from_le_bytes),
            (StoredDtype::Bf16, FloatsMut::F32(to)) => {
                each(bytes, to, |b| Bf16::from_bits(u16::from_le_bytes(b)).to_f32())
            }
            (StoredDtype::F16, FloatsMut::F32(to)) => each(bytes, to, |b| f16_to_f32(u16::from_le_bytes(b))),
            (StoredDtype::Bf16, FloatsMut::Bf16(to)) => each(bytes, to, |b| Bf16::from_bits(u16::from_le_bytes(b))),
            (StoredDtype::F32 | StoredDtype::F16, FloatsMut::Bf16(to)) => {
                // Through f32, a piece at a time, so that rounding is done by the kernel that does it everywhere.
                let mut wide = [0.0; 512];
                for (bytes, to) in bytes.chunks(wide.len() * size).zip(to.chunks_mut(512)) {
                    let wide = &mut wide[..to.len()];
                    match self.dtype {
                        StoredDtype::F32 => each(bytes, wide, f32::from_le_bytes),
                        _ => each(bytes, wide, |b| f16_to_f32(u16::from_le_bytes(b))),
                    }
                    cast(isa, Floats::F32(wide), FloatsMut::Bf16(to));
                }
            }
        }
    }
}

#[inline(always)]
fn each<const N: usize, T>(bytes: &[u8], to: &mut [T], read: impl Fn([u8; N]) -> T) {
    let (numbers, _) = bytes.as_chunks::<N>();
    for (to, number) in to.iter_mut().zip(numbers) {
        *to = read(*number);
    }
}

fn fill_zero(mut to: FloatsMut<'_>) {
    to.fill(0.0);
}

/// The first `mid` elements and the others.
fn split(x: FloatsMut<'_>, mid: usize) -> (FloatsMut<'_>, FloatsMut<'_>) {
    match x {
        FloatsMut::F32(x) => {
            let (a, b) = x.split_at_mut(mid);
            (FloatsMut::F32(a), FloatsMut::F32(b))
        }
        FloatsMut::Bf16(x) => {
            let (a, b) = x.split_at_mut(mid);
            (FloatsMut::Bf16(a), FloatsMut::Bf16(b))
        }
    }
}

/// The same number; exact. NaNs keep their bits.
#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    // The exponent is moved by a product with 2^112, which makes denormals normal; those of infinities and NaNs is filled up.
    let wide = u32::from(bits & 0x7fff) << 13;
    let magnitude = (f32::from_bits(wide) * f32::from_bits(239 << 23)).to_bits();
    let magnitude = if bits & 0x7c00 == 0x7c00 {
        wide | 0x7f80_0000
    } else {
        magnitude
    };
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of f16, beside its definition.
    #[test]
    fn f16_becomes_f32_exactly() {
        for bits in 0..=u16::MAX {
            let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let magnitude = match exponent {
                0 => mantissa * 2f64.powi(-24),
                31 if mantissa == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
            };
            let expected = if bits >> 15 == 1 { -magnitude } else { magnitude };
            let found = f16_to_f32(bits);
            assert!(
                (found.is_nan() && expected.is_nan()) || f64::from(found).to_bits() == expected.to_bits(),
                "{bits:#06x}: {found} {expected}"
            );
        }
    }

    /// A matrix of 4 × 6 that begins at an odd byte, cut, permuted and padded, in pieces of every length.
    #[test]
    fn parts_are_cut_permuted_padded_and_converted() {
        let number = |row: usize, col: usize| (10 * row + col) as f32;
        for dtype in [StoredDtype::F32, StoredDtype::F16, StoredDtype::Bf16] {
            let mut bytes = vec![0xff];
            for (row, col) in (0..4).flat_map(|row| (0..6).map(move |col| (row, col))) {
                match dtype {
                    StoredDtype::F32 => bytes.extend(number(row, col).to_le_bytes()),
                    StoredDtype::Bf16 => bytes.extend(Bf16::from_f32(number(row, col)).to_bits().to_le_bytes()),
                    StoredDtype::F16 => {
                        let bits = (0..=u16::MAX).find(|bits| f16_to_f32(*bits) == number(row, col));
                        bytes.extend(bits.expect("f16 has every whole number up to 2048").to_le_bytes());
                    }
                }
            }
            let part = StoredPart {
                first_row: 2,
                rows: 2,
                runs: vec![Run { to: 1, from: 4, len: 2 }, Run { to: 3, from: 0, len: 1 }],
            };
            let stored = Stored {
                bytes: Arc::new(bytes),
                start: 1,
                dtype,
                stride: 6,
                cols: 5,
                parts: vec![Arc::new(part)],
            };
            stored.check(15, 1).expect("it fits");
            let expected = [[0.0, 24.0, 25.0, 20.0, 0.0], [0.0, 34.0, 35.0, 30.0, 0.0], [0.0; 5]].concat();
            for (from, len) in (0..15).flat_map(|from| (1..=15 - from).map(move |len| (from, len))) {
                let mut to = vec![f32::NAN; len];
                stored.copy(Isa::detect(), 0, from, FloatsMut::F32(&mut to));
                assert_eq!(to, expected[from..from + len], "{dtype:?} {from} {len}");
                let mut to = vec![Bf16::from_f32(f32::NAN); len];
                stored.copy(Isa::detect(), 0, from, FloatsMut::Bf16(&mut to));
                let to: Vec<f32> = to.into_iter().map(Bf16::to_f32).collect();
                assert_eq!(to, expected[from..from + len], "{dtype:?} {from} {len}");
            }
        }
    }

    #[test]
    fn parts_outside_of_the_memory_are_refused() {
        let of = |rows, len, bytes: usize, parts: usize| Stored {
            bytes: Arc::new(vec![0; bytes]),
            start: 4,
            dtype: StoredDtype::F32,
            stride: 3,
            cols: 3,
            // Each device has a part of its own.
            parts: (0..parts)
                .map(|_| {
                    Arc::new(StoredPart {
                        first_row: 0,
                        rows,
                        runs: vec![Run { to: 0, from: 0, len }],
                    })
                })
                .collect(),
        };
        of(2, 3, 28, 2).check(6, 2).expect("it fits");
        of(2, 3, 28, 1).check(6, 2).expect_err("a device lacks a part");
        of(2, 3, 27, 2).check(6, 2).expect_err("a byte is missing");
        of(3, 3, 40, 2).check(6, 2).expect_err("there are more rows than room");
        of(2, 4, 40, 2)
            .check(6, 2)
            .expect_err("a row is longer than the device's");
    }
}
