//! Table lookup and its gradient.

use super::{SumShare, bytes, position, row_tiles, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::embedding::{embedding_grad, gather};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::{AxisHandle, Mesh};

/// `to[t] = table[ids[t]]`; rows that another shard owns become zeros.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// Rows of `cols` elements, of either kind.
    pub table: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// The axis that the rows are dealt out along.
    pub axis: Option<AxisHandle>,
    /// Row numbers of the whole table.
    pub ids: BufferRef,
    /// One row an id, of the table's kind.
    pub to: BufferRef,
}

impl Op for Lookup {
    fn name(&self) -> &'static str {
        "lookup"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.table);
        see(self.ids);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: 2 * bytes(&[self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.ids.len, self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.ids.len, self.cols);
        let shard = self.table.len / self.cols;
        let first = position(self.axis, place.device) * shard;
        let to = place.write_floats(self.to, rows.start * self.cols, rows.len() * self.cols);
        gather(
            place.floats(self.table),
            self.cols,
            first as u32,
            shard,
            &place.u32(self.ids)[rows],
            to,
        );
    }
}

/// The gradient of the table: each row is the sum, over the tokens that looked it up, of the result's gradient.
#[derive(Clone, Debug)]
pub struct LookupGrad {
    /// Row numbers of the whole table.
    pub ids: BufferRef,
    /// Gradient of the lookup's result, of either kind.
    pub dy: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// Rows of this device's shard.
    pub rows: usize,
    /// The axis that the rows are dealt out along.
    pub axis: Option<AxisHandle>,
    /// Which tokens of the step's batch these are.
    pub sum: SumShare,
    /// Slots of the shard's gradient, f32.
    pub to: BufferRef,
    /// Elements from one slot to the next.
    pub slot: usize,
}

impl LookupGrad {
    /// Rows of the table that one tile handles: a share of all of them, whatever their width.
    fn rows_a_tile(&self) -> usize {
        self.rows.div_ceil(32).max(1)
    }
}

impl Op for LookupGrad {
    fn name(&self) -> &'static str {
        "lookup_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.ids);
        see(self.dy);
        if self.sum.skip > 0 {
            see(self.to);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.dy.len as u64,
            bytes: bytes(&[self.dy, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(self.rows_a_tile())
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let from = tile * self.rows_a_tile();
        let to = (from + self.rows_a_tile()).min(self.rows);
        let first = position(self.axis, place.device) * self.rows;
        embedding_grad(
            scratch.isa(),
            &self.sum.at(place),
            place.u32(self.ids),
            place.floats(self.dy),
            self.cols,
            first as u32,
            from,
            to,
            place.out(self.to),
            self.slot,
            scratch,
        );
    }
}
