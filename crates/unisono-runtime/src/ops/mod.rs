//! The operations, one a file; the list in [`crate::command`] has a line for each.

pub mod fill;

/// Elements of an elementwise operation that one tile handles: large enough to pay for itself, small enough to share out.
pub const CHUNK: usize = 16 * 1024;

/// The elements that tile `tile` of an elementwise operation over `len` elements handles.
pub fn chunk(tile: usize, len: usize) -> std::ops::Range<usize> {
    let from = (tile * CHUNK).min(len);
    from..(from + CHUNK).min(len)
}
