//! The functions of an MPI library, bound by hand: some twenty of them, so that no compiler of C is needed to build or to run.
//!
//! Two binary interfaces are in use. A handle of Open MPI is a pointer, and its constants are the addresses of data symbols; a handle of
//! MPICH and its kin (Intel MPI, MVAPICH, Cray MPICH) is a C `int`, and its constants are numbers. All else is the same for both. Sources: `mpi.h` of Open MPI 4.1.4 (the same names in 5.0) and of MPICH 4.0.2 (fixed by the
//! MPICH ABI Compatibility Initiative).

use libloading::Library;
use std::ffi::{c_char, c_int, c_void};

/// `MPI_THREAD_SERIALIZED`: any thread may call, one at a time.
pub const THREAD_SERIALIZED: c_int = 2;

/// Room for a library's words: `MPI_MAX_LIBRARY_VERSION_STRING` is 256 in Open MPI and 8192 in MPICH; an error is shorter.
const TEXT: usize = 8192;

/// A handle of Open MPI.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub struct Pointer(*mut c_void);

// SAFETY: a handle is a name for the library, which may be called from any thread, one at a time (`MPI_THREAD_SERIALIZED`).
unsafe impl Send for Pointer {}

/// Room for an `MPI_Status`, which only the library looks into: 24 bytes in Open MPI, 20 in MPICH.
#[derive(Debug, Default)]
#[repr(C, align(8))]
pub struct Status([u64; 8]);

/// The functions that take no handle, or one of a type that depends on the library.
#[derive(Debug)]
pub struct Functions<H> {
    pub init_thread: unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int,
    pub initialized: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub finalize: unsafe extern "C" fn() -> c_int,
    pub abort: unsafe extern "C" fn(H, c_int) -> c_int,
    pub comm_rank: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    pub comm_size: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    pub comm_set_errhandler: unsafe extern "C" fn(H, H) -> c_int,
    pub isend: unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    pub improbe: unsafe extern "C" fn(c_int, c_int, H, *mut c_int, *mut H, *mut Status) -> c_int,
    pub imrecv: unsafe extern "C" fn(*mut c_void, c_int, H, *mut H, *mut H) -> c_int,
    pub ibarrier: unsafe extern "C" fn(H, *mut H) -> c_int,
    pub test: unsafe extern "C" fn(*mut H, *mut c_int, *mut Status) -> c_int,
    pub get_count: unsafe extern "C" fn(*const Status, H, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int,
    /// `MPI_COMM_WORLD`.
    pub world: H,
    /// `MPI_BYTE`.
    pub byte: H,
    /// `MPI_ERRORS_RETURN`.
    pub errors_return: H,
    /// `MPI_REQUEST_NULL`.
    pub no_request: H,
    /// `MPI_MESSAGE_NULL`.
    pub no_message: H,
}

/// The symbol `name` of the library.
///
/// # Safety
/// `T` must be the type of the symbol, and the library must stay loaded.
unsafe fn bind<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller knows the type.
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|error| error.to_string())
}

impl Functions<Pointer> {
    /// The functions of Open MPI.
    ///
    /// # Safety
    /// The library is Open MPI, and stays loaded.
    pub unsafe fn open_mpi(library: &Library) -> Result<Self, String> {
        // The symbol's address is the handle.
        // SAFETY: only addresses are taken.
        let address = |name| unsafe { bind::<Pointer>(library, name) };
        let constants = (
            address("ompi_mpi_comm_world")?,
            address("ompi_mpi_byte")?,
            address("ompi_mpi_errors_return")?,
            address("ompi_request_null")?,
            address("ompi_message_null")?,
        );
        // SAFETY: as the caller promises.
        unsafe { Self::of(library, constants) }
    }
}

impl Functions<c_int> {
    /// The functions of MPICH.
    ///
    /// # Safety
    /// The library has MPICH's binary interface, and stays loaded.
    pub unsafe fn mpich(library: &Library) -> Result<Self, String> {
        let constants = (0x4400_0000, 0x4c00_010d, 0x5400_0001, 0x2c00_0000, 0x2c00_0000);
        // SAFETY: as the caller promises.
        unsafe { Self::of(library, constants) }
    }
}

impl<H: Copy> Functions<H> {
    /// # Safety
    /// `H` is the library's type of handles, and the library stays loaded.
    unsafe fn of(library: &Library, constants: (H, H, H, H, H)) -> Result<Self, String> {
        let (world, byte, errors_return, no_request, no_message) = constants;
        // SAFETY: the types are those of the MPI standard with the library's handles.
        unsafe {
            Ok(Self {
                init_thread: bind(library, "MPI_Init_thread")?,
                initialized: bind(library, "MPI_Initialized")?,
                finalize: bind(library, "MPI_Finalize")?,
                abort: bind(library, "MPI_Abort")?,
                comm_rank: bind(library, "MPI_Comm_rank")?,
                comm_size: bind(library, "MPI_Comm_size")?,
                comm_set_errhandler: bind(library, "MPI_Comm_set_errhandler")?,
                isend: bind(library, "MPI_Isend")?,
                improbe: bind(library, "MPI_Improbe")?,
                imrecv: bind(library, "MPI_Imrecv")?,
                ibarrier: bind(library, "MPI_Ibarrier")?,
                test: bind(library, "MPI_Test")?,
                get_count: bind(library, "MPI_Get_count")?,
                error_string: bind(library, "MPI_Error_string")?,
                world,
                byte,
                errors_return,
                no_request,
                no_message,
            })
        }
    }

    /// The library's words for an error.
    pub fn words(&self, error: c_int) -> String {
        // SAFETY: there is room for any text that the library has.
        let text = text_of(|to, len| unsafe { (self.error_string)(error, to, len) });
        text.unwrap_or_else(|| format!("error {error}, for which it has no words"))
    }
}

/// What a library calls itself, in its own words; it may be asked before MPI is initialised.
///
/// # Safety
/// The library is one of MPI.
pub unsafe fn version(library: &Library) -> Result<String, String> {
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: that is its type in every library.
    let version: Version = unsafe { bind(library, "MPI_Get_library_version")? };
    // SAFETY: there is room for any version.
    let text = text_of(|to, len| unsafe { version(to, len) });
    text.ok_or_else(|| "it does not tell its version".to_string())
}

/// Lets a function of the library write a text.
fn text_of(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    let mut text = vec![0u8; TEXT];
    let mut len = 0;
    if write(text.as_mut_ptr().cast(), &mut len) != 0 {
        return None;
    }
    // Some count the final zero.
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(TEXT);
    Some(String::from_utf8_lossy(&text[..end]).trim().to_string())
}
