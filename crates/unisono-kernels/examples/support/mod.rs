//! What the benches of products share: memory, time and medians.

use std::alloc::Layout;
use unisono_kernels::element::Element;

/// Memory as the runtime's arena gives it: aligned, and on huge pages where the system has them.
pub struct Memory<E> {
    ptr: *mut E,
    len: usize,
    layout: Layout,
}

impl<E: Element> Memory<E> {
    pub fn new(len: usize) -> Memory<E> {
        let bytes = len * size_of::<E>();
        let layout = Layout::from_size_align(bytes.next_multiple_of(1 << 21).max(1 << 21), 1 << 21).expect("a size");
        // SAFETY: the layout is not empty.
        let ptr = unsafe { std::alloc::alloc(layout) }.cast::<E>();
        assert!(!ptr.is_null(), "no memory for {len} numbers");
        #[cfg(target_os = "linux")]
        if std::env::var_os("SMALL_PAGES").is_none() {
            unsafe extern "C" {
                fn madvise(at: *mut std::ffi::c_void, len: usize, advice: i32) -> i32;
            }
            const MADV_HUGEPAGE: i32 = 14;
            // SAFETY: advice about memory that was just allocated.
            unsafe { madvise(ptr.cast(), layout.size(), MADV_HUGEPAGE) };
        }
        // SAFETY: `len` elements were allocated, and zeros are numbers of either kind.
        unsafe { ptr.write_bytes(0, len) };
        Memory { ptr, len, layout }
    }

    pub fn numbers(len: usize, seed: u32) -> Memory<E> {
        let mut memory = Memory::new(len);
        let mut x = seed;
        for v in memory.slice() {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            *v = E::from_f32((x >> 8) as f32 / 16777216.0 - 0.5);
        }
        memory
    }

    pub fn slice(&mut self) -> &mut [E] {
        // SAFETY: `len` initialised elements, borrowed as long as `self` is.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

impl<E> Drop for Memory<E> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.ptr.cast(), self.layout) }
    }
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Seconds that the calling thread has run, not counting waits for a core.
#[cfg(target_os = "linux")]
pub fn thread_time() -> f64 {
    #[repr(C)]
    struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
    }
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: the C library fills in the structure that it is given.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.seconds as f64 + time.nanoseconds as f64 * 1e-9
}

/// Wall time, where no better is at hand.
#[cfg(not(target_os = "linux"))]
pub fn thread_time() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}
