//! Host arrays for tests.

use unisono_kernels::element::Bf16;
use unisono_tensor::HostTensor;

/// An array of kind `kind % 5` with arbitrary bits, NaNs of every sort among them.
pub fn arbitrary(kind: usize, shape: &[usize], seed: u32) -> HostTensor {
    let bits: Vec<u32> = (0..shape.iter().product::<usize>() as u32)
        .map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9).rotate_left(13))
        .collect();
    match kind % 5 {
        0 => HostTensor::new(&bits.iter().map(|b| f32::from_bits(*b)).collect::<Vec<_>>(), shape),
        1 => HostTensor::new(
            &bits.iter().map(|b| Bf16::from_bits(*b as u16)).collect::<Vec<_>>(),
            shape,
        ),
        2 => HostTensor::new(&bits, shape),
        3 => HostTensor::new(&bits.iter().map(|b| *b as i32).collect::<Vec<_>>(), shape),
        _ => HostTensor::new(&bits.iter().map(|b| *b as u8).collect::<Vec<_>>(), shape),
    }
    .expect("valid")
}
