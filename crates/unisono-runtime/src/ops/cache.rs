//! The key/value cache of generation.

use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// Where a head's elements lie in a fused projection: `groups` groups of `[q…, k, v]`, `head_dim` elements each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    /// Key/value groups on a device.
    pub groups: usize,
    /// Query heads of a group.
    pub heads_per_group: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl Fused {
    /// Elements of one group: its queries, its key and its value.
    pub fn group(&self) -> usize {
        (self.heads_per_group + 2) * self.head_dim
    }

    /// Elements of one token.
    pub fn token(&self) -> usize {
        self.groups * self.group()
    }
}

/// Copies the keys and values of new tokens behind those that the cache holds:
/// `cache[s][g][position[s] + t] = fused[s][t][g]`. A group's tokens lie side by side, so that decoding reads them in one run.
#[derive(Clone, Debug)]
pub struct CacheAppend {
    /// Sequences of new tokens, as the fused projection gives them.
    pub fused: BufferRef,
    /// Its layout.
    pub layout: Fused,
    /// New tokens of each sequence.
    pub tokens: usize,
    /// Tokens that each sequence has in the cache already.
    pub positions: BufferRef,
    /// Tokens that the cache has room for, for each sequence.
    pub capacity: usize,
    /// Keys, `[sequence, group, capacity, head_dim]`, as wide as `fused`.
    pub keys: BufferRef,
    /// Values, likewise.
    pub values: BufferRef,
}

impl Op for CacheAppend {
    fn name(&self) -> &'static str {
        "cache_append"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.fused, self.positions, self.keys, self.values] {
            see(buffer);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.keys);
        see(self.values);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: 2 * super::bytes(&[self.fused]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.positions.len
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let Fused {
            groups,
            heads_per_group,
            head_dim,
        } = self.layout;
        let (fused, position) = (place.floats(self.fused), place.u32(self.positions)[tile] as usize);
        for token in 0..self.tokens {
            for group in 0..groups {
                let from = (tile * self.tokens + token) * self.layout.token() + group * self.layout.group();
                let key = from + heads_per_group * head_dim;
                let at = ((tile * groups + group) * self.capacity + position + token) * head_dim;
                place
                    .write_floats(self.keys, at, head_dim)
                    .copy_from(fused.range(key..key + head_dim));
                place
                    .write_floats(self.values, at, head_dim)
                    .copy_from(fused.range(key + head_dim..key + 2 * head_dim));
            }
        }
    }
}
