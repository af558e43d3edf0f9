//! The functions of libpmemlog that are used.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::slice;

use super::{EIO, c_path, text};
use crate::{Error, Result};

#[repr(C)]
struct Plp {
    _opaque: [u8; 0],
}

type Chunk = extern "C" fn(*const c_void, usize, *mut c_void) -> c_int;

unsafe extern "C" {
    fn pmemlog_create(path: *const c_char, bytes: usize, mode: c_uint) -> *mut Plp;
    fn pmemlog_open(path: *const c_char) -> *mut Plp;
    fn pmemlog_close(plp: *mut Plp);
    fn pmemlog_nbyte(plp: *mut Plp) -> usize;
    fn pmemlog_append(plp: *mut Plp, data: *const c_void, bytes: usize) -> c_int;
    fn pmemlog_tell(plp: *mut Plp) -> c_longlong;
    fn pmemlog_rewind(plp: *mut Plp);
    fn pmemlog_walk(plp: *mut Plp, chunk_bytes: usize, each: Chunk, arg: *mut c_void);
    fn pmemlog_errormsg() -> *const c_char;
    fn pmem_is_pmem(addr: *const c_void, bytes: usize) -> c_int;
}

/// Owner only.
const MODE: c_uint = 0o600;

/// An open log.
pub struct Handle(NonNull<Plp>);

// SAFETY: the library has a lock in each log; all of its functions but close may be called from all threads at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by `started`, closed only here, when nothing borrows it.
        unsafe { pmemlog_close(self.0.as_ptr()) }
    }
}

impl Handle {
    pub fn create(path: &Path, bytes: usize) -> Result<Self> {
        let name = c_path(LIBRARY, path)?;
        // SAFETY: `name` ends in a zero byte.
        Self::started(path, unsafe { pmemlog_create(name.as_ptr(), bytes, MODE) })
    }

    pub fn open(path: &Path) -> Result<Self> {
        let name = c_path(LIBRARY, path)?;
        // SAFETY: `name` ends in a zero byte.
        Self::started(path, unsafe { pmemlog_open(name.as_ptr()) })
    }

    fn started(path: &Path, plp: *mut Plp) -> Result<Self> {
        NonNull::new(plp).map(Self).ok_or_else(|| refused().at(path))
    }

    pub fn capacity(&self) -> usize {
        // SAFETY: the log is open.
        unsafe { pmemlog_nbyte(self.0.as_ptr()) }
    }

    #[inline]
    pub fn append(&self, data: &[u8]) -> Result<()> {
        // SAFETY: the log is open; the library reads `data` within its length.
        let rc = unsafe { pmemlog_append(self.0.as_ptr(), data.as_ptr().cast(), data.len()) };
        if rc == 0 { Ok(()) } else { Err(refused()) }
    }

    pub fn tell(&self) -> u64 {
        // SAFETY: the log is open.
        u64::try_from(unsafe { pmemlog_tell(self.0.as_ptr()) }).unwrap_or(0)
    }

    pub fn rewind(&self) {
        // SAFETY: the log is open; no slice into it outlives a `walk`, and the library's lock keeps the two apart.
        unsafe { pmemlog_rewind(self.0.as_ptr()) }
    }

    pub fn walk(&self, chunk_bytes: usize, mut each: &mut dyn FnMut(&[u8]) -> bool) {
        let arg: *mut &mut dyn FnMut(&[u8]) -> bool = &raw mut each;
        // SAFETY: the log is open; `called` gets the `arg` it expects, which lives until the library is done with it.
        unsafe { pmemlog_walk(self.0.as_ptr(), chunk_bytes, called, arg.cast()) }
    }

    pub fn flushes(&self) -> bool {
        // SAFETY: a log's handle is the first byte of its mapping; nothing is read through it.
        unsafe { pmem_is_pmem(self.0.as_ptr().cast(), 1) != 0 }
    }
}

/// Called by [`Handle::walk`] alone. A panic in here ends the process: it cannot pass through C.
extern "C" fn called(data: *const c_void, bytes: usize, arg: *mut c_void) -> c_int {
    // SAFETY: `walk` passes a pointer to such a reference, and nothing else uses it meanwhile.
    let each = unsafe { &mut *arg.cast::<&mut dyn FnMut(&[u8]) -> bool>() };
    // SAFETY: the library says where the bytes are, and holds its lock, so that no thread changes them.
    let data = unsafe { slice::from_raw_parts(data.cast(), bytes) };
    c_int::from(each(data))
}

const LIBRARY: &str = "libpmemlog";

/// With the library's own words about this thread's last error.
#[cold]
fn refused() -> Error {
    let errno = std::io::Error::last_os_error().raw_os_error().filter(|errno| *errno != 0).unwrap_or(EIO);
    // SAFETY: the library's string is valid until this thread calls it again.
    Error::of(LIBRARY, errno, unsafe { text(pmemlog_errormsg()) })
}
