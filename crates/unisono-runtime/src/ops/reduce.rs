//! Sums over rows, columns and vectors.

use super::{SumShare, bytes, chunk, chunks, column_tiles, row_tiles, tile_columns, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::order::{Share, Units};
use unisono_kernels::reduce;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// Sums over the rows (tokens, sequences) of `x`, one a column: gradients of biases and of everything that was broadcast.
#[derive(Clone, Debug)]
pub struct ColumnSums {
    /// Rows of `cols` elements, of either kind.
    pub x: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// Which rows of the whole sum these are.
    pub sum: SumShare,
    /// Slots of `cols` sums, f32.
    pub to: BufferRef,
    /// Elements from one slot to the next.
    pub slot: usize,
}

impl Op for ColumnSums {
    fn name(&self) -> &'static str {
        "column_sums"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        if self.sum.skip > 0 {
            see(self.to);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.x.len as u64,
            bytes: bytes(&[self.x]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        column_tiles(self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let columns = tile_columns(tile, self.cols);
        let (share, x, to) = (self.sum.at(place), place.floats(self.x), place.out(self.to));
        let isa = scratch.isa();
        reduce::column_sums(
            isa,
            &share,
            x,
            self.cols,
            columns.start,
            columns.end,
            to,
            self.slot,
            scratch,
        );
    }
}

/// The sum of each row.
#[derive(Clone, Debug)]
pub struct RowSums {
    /// Rows of `cols` elements.
    pub x: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// One sum a row.
    pub to: BufferRef,
}

impl Op for RowSums {
    fn name(&self) -> &'static str {
        "row_sums"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.x.len as u64,
            bytes: bytes(&[self.x]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.to.len, self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.to.len, self.cols);
        let x = &place.f32(self.x)[rows.start * self.cols..rows.end * self.cols];
        reduce::row_sums(
            scratch.isa(),
            x,
            self.cols,
            Units::whole(self.cols),
            place.write(self.to, rows.start, rows.len()),
        );
    }
}

/// The sum of squares of each row of a shard, as slots over the units of its columns.
#[derive(Clone, Debug)]
pub struct RowSquares {
    /// Rows of `sum.addends()` elements.
    pub x: BufferRef,
    /// Rows.
    pub rows: usize,
    /// Units of the columns and this device's share.
    pub sum: SumShare,
    /// Slots of `rows` sums.
    pub to: BufferRef,
}

impl Op for RowSquares {
    fn name(&self) -> &'static str {
        "row_squares"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 2 * self.x.len as u64,
            bytes: bytes(&[self.x]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.rows, self.sum.addends())
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let cols = self.sum.addends();
        let rows = tile_rows(tile, self.rows, cols);
        let (share, x, to) = (self.sum.at(place), place.f32(self.x), place.out(self.to));
        reduce::row_squares(scratch.isa(), x, cols, &share, to, self.rows, rows.start, rows.len());
    }
}

/// The sum of a vector, or a device's share of it.
#[derive(Clone, Debug)]
pub struct VectorSum {
    /// `sum.addends()` elements.
    pub x: BufferRef,
    /// Units and share.
    pub sum: SumShare,
    /// Slots of one number.
    pub to: BufferRef,
    /// Elements from one slot to the next.
    pub slot: usize,
    /// The result of a complete sum is multiplied by this.
    pub scale: f32,
}

impl Op for VectorSum {
    fn name(&self) -> &'static str {
        "vector_sum"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.x.len as u64,
            bytes: bytes(&[self.x]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, place: &Place<'_>, _tile: usize, scratch: &mut Scratch) {
        let share = self.sum.at(place);
        reduce::tree_sum(scratch.isa(), place.f32(self.x), &share, place.out(self.to), self.slot);
        if self.scale != 1.0 {
            place.write(self.to, 0, 1)[0] *= self.scale;
        }
    }
}

/// The sum of each sequence's tokens: `to[s]` is the tree over the `tokens` values of sequence `s`.
#[derive(Clone, Debug)]
pub struct SegmentSums {
    /// `to.len * tokens` elements.
    pub x: BufferRef,
    /// Values of one sequence.
    pub tokens: usize,
    /// One sum a sequence.
    pub to: BufferRef,
}

impl Op for SegmentSums {
    fn name(&self) -> &'static str {
        "segment_sums"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.x.len as u64,
            bytes: bytes(&[self.x]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.to.len, self.tokens)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let share = Share::whole(Units::whole(self.tokens));
        for sequence in tile_rows(tile, self.to.len, self.tokens) {
            let x = &place.f32(self.x)[sequence * self.tokens..(sequence + 1) * self.tokens];
            let mut sum = [0.0];
            reduce::tree_sum(scratch.isa(), x, &share, unisono_kernels::out::Out::new(&mut sum), 1);
            place.write(self.to, sequence, 1)[0] = sum[0];
        }
    }
}

/// Index of the largest element of each row; the lowest index where several are equal.
#[derive(Clone, Debug)]
pub struct ArgMax {
    /// Rows of `cols` elements.
    pub x: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// One index a row.
    pub to: BufferRef,
}

impl Op for ArgMax {
    fn name(&self) -> &'static str {
        "argmax"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.x.len as u64,
            bytes: bytes(&[self.x]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.to.len, self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.to.len, self.cols);
        let x = &place.f32(self.x)[rows.start * self.cols..rows.end * self.cols];
        reduce::argmax_rows(x, self.cols, place.write_u32(self.to, rows.start, rows.len()));
    }
}

/// `to = from`, element by element.
#[derive(Clone, Debug)]
pub struct Move {
    /// Source.
    pub from: BufferRef,
    /// Destination, as many elements, as wide.
    pub to: BufferRef,
}

impl Op for Move {
    fn name(&self) -> &'static str {
        "move"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: bytes(&[self.from, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.to.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let range = chunk(tile, self.to.len);
        place
            .write_floats(self.to, range.start, range.len())
            .copy_from(place.floats(self.from).range(range));
    }
}
