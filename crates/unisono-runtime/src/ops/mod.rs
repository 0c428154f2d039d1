//! The operations, one a file; the list in [`crate::command`] has a line for each.
//!
//! What several of them need stands here: how an operation is cut into tiles, which share of a sum a device holds, and
//! where a device's shard lies in the global tensor.

pub mod all_reduce;
pub mod attention;
pub mod bucket;
pub mod cache;
pub mod cast;
pub mod copy;
pub mod cross_entropy;
pub mod digest;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod exchange;
pub mod fill;
pub mod gather;
pub mod matmul;
pub mod nll;
pub mod norm;
pub mod optimizer;
pub mod random;
pub mod reduce;
pub mod reduce_scatter;
pub mod rope;
pub mod softmax;
pub(crate) mod span;
pub mod swiglu;

use crate::buffer::BufferRef;
use crate::place::Place;
use std::ops::Range;
use unisono_kernels::order::{Share, Units};
use unisono_mesh::AxisHandle;

/// Elements of an elementwise operation that one tile handles: large enough to pay for itself, small enough to share out.
pub const CHUNK: usize = 16 * 1024;

/// Number of tiles of [`CHUNK`] elements.
pub(crate) fn chunks(len: usize) -> usize {
    len.div_ceil(CHUNK)
}

/// The elements that tile `tile` of an elementwise operation over `len` elements handles.
pub(crate) fn chunk(tile: usize, len: usize) -> Range<usize> {
    let from = (tile * CHUNK).min(len);
    from..(from + CHUNK).min(len)
}

/// Rows of `cols` elements that one tile handles.
fn rows_a_tile(cols: usize) -> usize {
    (CHUNK / cols.max(1)).max(1)
}

/// Number of tiles of an operation over `rows` rows of `cols` elements.
pub(crate) fn row_tiles(rows: usize, cols: usize) -> usize {
    rows.div_ceil(rows_a_tile(cols))
}

/// The rows that tile `tile` handles.
pub(crate) fn tile_rows(tile: usize, rows: usize, cols: usize) -> Range<usize> {
    let each = rows_a_tile(cols);
    let from = (tile * each).min(rows);
    from..(from + each).min(rows)
}

/// Number of tiles of an operation over `rows` rows in which each of `members` devices has a part of `inner` elements: several rows a
/// tile, or several tiles a row where a part is large.
pub(crate) fn part_tiles(rows: usize, inner: usize, members: usize) -> usize {
    match chunks(inner) {
        0 | 1 => row_tiles(rows, inner * members),
        pieces => rows * pieces,
    }
}

/// What tile `tile` of such an operation handles: rows, and elements of each part.
pub(crate) fn tile_parts(
    tile: usize,
    rows: usize,
    inner: usize,
    members: usize,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let (rows, part) = match chunks(inner) {
        0 | 1 => (tile_rows(tile, rows, inner * members), 0..inner),
        pieces => (tile / pieces..tile / pieces + 1, chunk(tile % pieces, inner)),
    };
    rows.map(move |row| (row, part.clone()))
}

/// Columns that one tile of a sum over rows handles.
const COLUMNS: usize = 96;

/// Number of tiles of a sum over rows.
pub(crate) fn column_tiles(cols: usize) -> usize {
    cols.div_ceil(COLUMNS)
}

/// The columns that tile `tile` handles.
pub(crate) fn tile_columns(tile: usize, cols: usize) -> Range<usize> {
    let from = (tile * COLUMNS).min(cols);
    from..(from + COLUMNS).min(cols)
}

/// Position of `device` on `axis`; 0 where there is no axis.
pub fn position(axis: Option<AxisHandle>, device: usize) -> usize {
    axis.map_or(0, |axis| device / axis.stride % axis.size)
}

/// Which share of a sum each device of a mesh adds in one command.
///
/// The units of the dimension are dealt out along `axis`, `per_position` consecutive units to each position; the command
/// adds `count` of them, beginning `skip` units into the device's own share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SumShare {
    /// How the whole dimension is grouped.
    pub units: Units,
    /// The axis that the units are dealt out along; `None` where every device holds them all.
    pub axis: Option<AxisHandle>,
    /// Units of one position.
    pub per_position: usize,
    /// Units of the device's share that earlier commands have added.
    pub skip: usize,
    /// Units that this command adds.
    pub count: usize,
}

impl SumShare {
    /// The whole sum on each device.
    pub fn whole(units: Units) -> SumShare {
        SumShare {
            units,
            axis: None,
            per_position: units.count,
            skip: 0,
            count: units.count,
        }
    }

    /// The share of the device at `place`.
    pub fn at(&self, place: &Place<'_>) -> Share {
        let open = position(self.axis, place.device) * self.per_position;
        Share {
            units: self.units,
            open,
            from: open + self.skip,
            to: open + self.skip + self.count,
        }
    }

    /// Addends that the command reads on each device.
    pub fn addends(&self) -> usize {
        self.count * self.units.len
    }
}

/// One dimension of a device's shard within the global tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionDim {
    /// Elements of the shard along this dimension.
    pub local: usize,
    /// Elements of the global tensor along this dimension, padding included.
    pub global: usize,
    /// Elements of the global tensor that are not padding.
    pub valid: usize,
    /// First global element on position 0 of `axis`.
    pub base: usize,
    /// Global elements from one position of `axis` to the next.
    pub step: usize,
    /// The axis that the dimension is sharded along.
    pub axis: Option<AxisHandle>,
}

impl RegionDim {
    /// A dimension that every device holds whole.
    pub fn whole(len: usize) -> RegionDim {
        RegionDim {
            local: len,
            global: len,
            valid: len,
            base: 0,
            step: 0,
            axis: None,
        }
    }
}

/// Where a device's shard lies in a global tensor of three dimensions (smaller ones have leading dimensions of 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The dimensions, outermost first.
    pub dims: [RegionDim; 3],
}

/// A run of elements that lie side by side in the shard and in the global tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First element in the shard.
    pub local: usize,
    /// First element in the global tensor, by row-major position with padding counted.
    pub global: u64,
    /// Elements of the run.
    pub len: usize,
    /// Elements of the run that are not padding; they come first.
    pub valid: usize,
}

impl Region {
    /// A tensor of `len` elements that every device holds whole.
    pub fn whole(len: usize) -> Region {
        Region {
            dims: [RegionDim::whole(1), RegionDim::whole(1), RegionDim::whole(len)],
        }
    }

    /// Elements of one device's shard.
    pub fn len(&self) -> usize {
        self.dims.iter().map(|dim| dim.local).product()
    }

    /// Whether the shard has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of the shard: runs that are contiguous in both views.
    pub fn rows(&self) -> usize {
        self.dims[0].local * self.dims[1].local
    }

    /// The run that is row `row` of the shard of `device`.
    pub fn row(&self, device: usize, row: usize) -> Run {
        let [outer, middle, inner] = self.dims;
        let start = |dim: RegionDim| dim.base + position(dim.axis, device) * dim.step;
        let i = start(outer) + row / middle.local;
        let j = start(middle) + row % middle.local;
        let k = start(inner);
        let real = i < outer.valid && j < middle.valid;
        Run {
            local: row * inner.local,
            global: ((i * middle.global + j) * inner.global + k) as u64,
            len: inner.local,
            valid: if real {
                inner.valid.saturating_sub(k).min(inner.local)
            } else {
                0
            },
        }
    }
}

/// Bytes of the buffers.
pub(crate) fn bytes(buffers: &[BufferRef]) -> u64 {
    buffers.iter().map(BufferRef::bytes).sum()
}
