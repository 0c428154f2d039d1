//! A digest of a buffer, to compare replicas without reading them.

use super::{CHUNK, bytes, chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::element::Floats;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// Two words for every 16 Ki elements: a 64-bit multiply-xor hash of the bits of each in order.
#[derive(Clone, Debug)]
pub struct Digest {
    /// What is hashed.
    pub x: BufferRef,
    /// [`Digest::words`] words.
    pub to: BufferRef,
}

impl Digest {
    /// Words that the digest of `len` elements takes.
    pub fn words(len: usize) -> usize {
        2 * len.div_ceil(CHUNK)
    }
}

fn hash(elements: impl Iterator<Item = u32>) -> u64 {
    elements.fold(0xcbf2_9ce4_8422_2325, |hash, bits| {
        (hash ^ u64::from(bits))
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
    })
}

impl Op for Digest {
    fn name(&self) -> &'static str {
        "digest"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: bytes(&[self.x]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.x.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let range = chunk(tile, self.x.len);
        let hash = match place.floats(self.x).range(range) {
            Floats::F32(x) => hash(x.iter().map(|x| x.to_bits())),
            Floats::Bf16(x) => hash(x.iter().map(|x| u32::from(x.to_bits()))),
        };
        place
            .write_u32(self.to, 2 * tile, 2)
            .copy_from_slice(&[hash as u32, (hash >> 32) as u32]);
    }
}
