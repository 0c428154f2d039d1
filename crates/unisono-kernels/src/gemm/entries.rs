//! Entries of the stack of sums on their way from and to the slots of C.

/// Reads an entry, whose rows lie `width` apart, from a slot, whose rows lie `stride` apart; columns that are not there become
/// +0.
///
/// # Safety
/// `cols ≤ width` floats of each row of the slot, and `width` of the entry.
pub(super) unsafe fn load_entry(
    from: *const f32,
    stride: usize,
    (entry, width): (*mut f32, usize),
    (rows, cols): (usize, usize),
) {
    for r in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            let row = entry.add(r * width);
            std::ptr::copy_nonoverlapping(from.add(r * stride), row, cols);
            std::ptr::write_bytes(row.add(cols), 0, width - cols);
        }
    }
}

/// Writes an entry to a slot. +0 is added, as entries from inside a block may be −0.
///
/// # Safety
/// `cols` floats of each row of both.
pub(super) unsafe fn store_entry(
    (entry, width): (*const f32, usize),
    to: *mut f32,
    stride: usize,
    (rows, cols): (usize, usize),
) {
    for r in 0..rows {
        for j in 0..cols {
            // SAFETY: the caller's promise.
            unsafe { *to.add(r * stride + j) = *entry.add(r * width + j) + 0.0 };
        }
    }
}
