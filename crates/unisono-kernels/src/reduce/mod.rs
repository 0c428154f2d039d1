//! Reductions: over rows (tokens), along rows, of vectors; the largest element; whether all is finite.

mod columns;
mod extremes;
mod rows;
pub(crate) mod slots;
mod vector;

pub use columns::column_sums;
pub use extremes::{all_finite, argmax_rows, row_max};
pub use rows::{row_squares, row_sums};
pub use vector::tree_sum;
