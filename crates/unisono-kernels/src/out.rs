//! An output that several workers write at once, each its own tiles.

use std::marker::PhantomData;

/// A shared view of an output array: tiles of one kernel call write disjoint parts of it from any worker.
///
/// It is plain data (`Copy`), so a kernel's argument struct that holds one can be built anew for every tile.
#[derive(Clone, Copy, Debug)]
pub struct Out<'a, T> {
    ptr: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: an `Out` is only a pointer and a length; that its users write disjoint parts is what `Out::shared` demands.
unsafe impl<T: Send> Send for Out<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Out<'_, T> {}

impl<'a, T> Out<'a, T> {
    /// The one owner's view of `memory`; its copies may still be used by one worker only.
    pub fn new(memory: &'a mut [T]) -> Out<'a, T> {
        Out {
            ptr: memory.as_mut_ptr(),
            len: memory.len(),
            memory: PhantomData,
        }
    }

    /// A view that several workers use at once.
    ///
    /// # Safety
    /// `ptr` must be valid for reads and writes of `len` elements for `'a`, and while the view is in use no two workers
    /// may touch the same element and nobody else may touch any.
    pub unsafe fn shared(ptr: *mut T, len: usize) -> Out<'a, T> {
        Out {
            ptr,
            len,
            memory: PhantomData,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element's address, for inner loops.
    pub fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// The elements `from..from + len`, to be written by this tile alone.
    ///
    /// # Safety
    /// No other tile may touch these elements while the slice lives, and no second slice of them may be made.
    ///
    /// # Panics
    /// If the range is not inside the view: a bug in unisono.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice(&self, from: usize, len: usize) -> &'a mut [T] {
        assert!(
            from.checked_add(len).is_some_and(|end| end <= self.len),
            "bug in unisono: elements {from}..{from}+{len} of an output of {}",
            self.len
        );
        // SAFETY: inside the view, as just checked; disjointness is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(from), len) }
    }
}
