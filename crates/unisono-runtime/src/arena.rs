//! The devices' memory: one range of address space a device, filled by the system as it is touched.

use crate::error::RuntimeError;
use crate::place::Arena;

/// Every device's arena, unmapped when dropped.
pub(crate) struct Arenas {
    arenas: Box<[Arena]>,
    bytes: usize,
}

impl Arenas {
    /// Reserves `bytes` (rounded up to 2 MiB) for each of `devices`. Nothing is committed until it is touched; fresh memory
    /// reads as zero.
    pub(crate) fn reserve(devices: usize, bytes: u64) -> Result<Arenas, RuntimeError> {
        let refuse = |reason: String| RuntimeError::NoAddressSpace { bytes, devices, reason };
        let rounded = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| bytes.max(1).checked_next_multiple_of(HUGE_PAGE))
            .ok_or_else(|| refuse("that is more than an address can name".to_string()))?;
        let mut arenas = Vec::with_capacity(devices);
        for _ in 0..devices {
            match map(rounded) {
                Ok(base) => arenas.push(Arena {
                    base: base.cast::<f32>(),
                    len: rounded / 4,
                }),
                Err(reason) => {
                    drop(Arenas {
                        arenas: arenas.into(),
                        bytes: rounded,
                    });
                    return Err(refuse(reason));
                }
            }
        }
        Ok(Arenas {
            arenas: arenas.into(),
            bytes: rounded,
        })
    }

    /// The arenas, indexed by logical device.
    pub(crate) fn all(&self) -> &[Arena] {
        &self.arenas
    }
}

impl Drop for Arenas {
    fn drop(&mut self) {
        for arena in &self.arenas {
            unmap(arena.base.cast(), self.bytes);
        }
    }
}

/// The size of a huge page, and the alignment of an arena.
const HUGE_PAGE: usize = 2 << 20;

#[cfg(unix)]
fn map(bytes: usize) -> Result<*mut u8, String> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let flags = MapFlags::PRIVATE;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = flags | MapFlags::NORESERVE;
    // One huge page more, so that the base can be moved up to a border; the rest is given back.
    let longer = bytes + HUGE_PAGE;
    // SAFETY: a new private mapping at an address of the system's choice touches no existing memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), longer, ProtFlags::READ | ProtFlags::WRITE, flags) }
        .map_err(|error| error.to_string())?
        .cast::<u8>();
    let skip = start.align_offset(HUGE_PAGE);
    // SAFETY: `skip` is below HUGE_PAGE, so base and base + bytes lie in the mapping.
    let (base, end) = unsafe { (start.add(skip), start.add(skip + bytes)) };
    unmap(start, skip);
    unmap(end, HUGE_PAGE - skip);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Without huge pages the program is slower and as right, so a refusal is no error.
        // SAFETY: the range is the mapping just made; the advice changes no contents.
        let _ = unsafe { rustix::mm::madvise(base.cast(), bytes, rustix::mm::Advice::LinuxHugepage) };
    }
    Ok(base)
}

#[cfg(unix)]
fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the range belongs to a mapping made in `map` and nobody uses it: either it is the surplus there, or the
        // workers have been joined. A refusal would only leak address space.
        let _ = unsafe { rustix::mm::munmap(start.cast(), bytes) };
    }
}

#[cfg(not(unix))]
fn layout(bytes: usize) -> Result<std::alloc::Layout, String> {
    std::alloc::Layout::from_size_align(bytes, HUGE_PAGE).map_err(|error| error.to_string())
}

#[cfg(not(unix))]
fn map(bytes: usize) -> Result<*mut u8, String> {
    // SAFETY: the layout has a size above zero.
    let base = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
    if base.is_null() {
        return Err("out of memory".to_string());
    }
    Ok(base)
}

#[cfg(not(unix))]
fn unmap(start: *mut u8, bytes: usize) {
    if let Ok(layout) = layout(bytes) {
        // SAFETY: allocated in `map` with this very layout.
        unsafe { std::alloc::dealloc(start, layout) };
    }
}
