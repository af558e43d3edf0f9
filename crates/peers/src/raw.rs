//! What is not safe by itself: C functions, and the types that hold what each of them needs to be.

#[cfg(feature = "bdb")]
pub mod bdb;
#[cfg(feature = "lmdb")]
pub mod lmdb;
#[cfg(feature = "pmemlog")]
pub mod pmemlog;
#[cfg(feature = "pmemobj")]
pub mod pmemobj;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb_wal;
#[cfg(any(feature = "rocksdb", feature = "bdb"))]
mod session;
pub mod sync;

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::{Error, Result};

// Linux, all architectures.
#[cfg(feature = "pmemobj")]
const ENOENT: c_int = 2;
#[cfg(any(feature = "pmemobj", feature = "pmemlog"))]
const EIO: c_int = 5;
const EINVAL: c_int = 22;

#[allow(dead_code)] // not with every feature
fn c_path(library: &'static str, path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::of(library, EINVAL, String::new()).at(path))
}

/// A C string, copied; null is empty.
///
/// # Safety
/// It is null or a string that stays while this runs.
#[allow(dead_code)] // not with every feature
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}
