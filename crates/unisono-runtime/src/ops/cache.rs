//! The key/value cache of generation.

use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::ops::attention::{Heads, Layout};
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

    /// The query heads in `buffer`, which holds sequences of `tokens` tokens.
    pub fn queries(&self, buffer: BufferRef, tokens: usize) -> Heads {
        self.heads(buffer, tokens, 0)
    }

    /// The keys.
    pub fn keys(&self, buffer: BufferRef, tokens: usize) -> Heads {
        self.heads(buffer, tokens, self.heads_per_group)
    }

    /// The values.
    pub fn values(&self, buffer: BufferRef, tokens: usize) -> Heads {
        self.heads(buffer, tokens, self.heads_per_group + 1)
    }

    /// What begins `first` heads into each group.
    fn heads(&self, buffer: BufferRef, tokens: usize, first: usize) -> Heads {
        let skipped = first * self.head_dim;
        Heads {
            buffer: buffer.part(skipped, buffer.len - skipped),
            layout: Layout {
                batch: tokens * self.token(),
                token: self.token(),
                group: self.group(),
                head: self.head_dim,
            },
        }
    }
}

/// Copies the keys and values of new tokens behind those that the cache holds:
/// `cache[s][g][position[s] + t] = new[s][t][g]`. A group's tokens lie side by side, so that decoding reads them in one run.
/// Tokens beyond the capacity are left out: they are padding, where devices hold sequences of different lengths.
#[derive(Clone, Debug)]
pub struct CacheAppend {
    /// Keys of the new tokens, one head a group.
    pub k: Heads,
    /// Their values.
    pub v: Heads,
    /// Key/value groups on a device.
    pub groups: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// New tokens of each sequence.
    pub tokens: usize,
    /// Tokens that each sequence has in the cache already.
    pub positions: BufferRef,
    /// Tokens that the cache has room for, for each sequence.
    pub capacity: usize,
    /// Keys, `[sequence, group, capacity, head_dim]`, of the kind of the new ones.
    pub keys: BufferRef,
    /// Values, likewise.
    pub values: BufferRef,
}

/// Fewer new tokens of a sequence are copied by one worker: two would take longer to meet.
const MANY: usize = 32;

impl CacheAppend {
    /// Tiles of a sequence.
    fn parts(&self) -> usize {
        if self.tokens < MANY { 1 } else { self.groups }
    }
}

impl Op for CacheAppend {
    fn name(&self) -> &'static str {
        "cache_append"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.k.buffer, self.v.buffer, self.positions, self.keys, self.values] {
            see(buffer);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.keys);
        see(self.values);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        // Keys and values, read and written.
        let elements = 4 * self.positions.len * self.tokens * self.groups * self.head_dim;
        Cost {
            flops: 0,
            bytes: (self.keys.dtype.bytes() * elements) as u64,
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.positions.len * self.parts()
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let (sequence, part) = (tile / self.parts(), tile % self.parts());
        let groups = part * self.groups / self.parts()..(part + 1) * self.groups / self.parts();
        let position = place.u32(self.positions)[sequence] as usize;
        let tokens = self.tokens.min(self.capacity.saturating_sub(position));
        if tokens == 0 {
            return;
        }
        for (new, cache) in [(self.k, self.keys), (self.v, self.values)] {
            let (from, layout) = (place.floats(new.buffer), new.layout);
            for group in groups.clone() {
                let first = (sequence * self.groups + group) * self.capacity + position;
                let mut to = place.write_floats(cache, first * self.head_dim, tokens * self.head_dim);
                for token in 0..tokens {
                    let at = sequence * layout.batch + token * layout.token + group * layout.group;
                    to.range(token * self.head_dim..(token + 1) * self.head_dim)
                        .copy_from(from.range(at..at + self.head_dim));
                }
            }
        }
    }
}
