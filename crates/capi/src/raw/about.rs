//! Errors.

use std::ffi::{c_char, c_int};

use crate::call::{last_errno, last_message};
use crate::code::{cairn_group, cairn_status, group};

/// The message of this thread's last error: what happened, where, and what to do next. Empty if there was none; it stays until the thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn cairn_last_error() -> *const c_char {
    last_message()
}

/// The number of the system's error behind this thread's last error; 0 if it was no system call.
#[unsafe(no_mangle)]
pub extern "C" fn cairn_last_errno() -> c_int {
    last_errno()
}

/// What the caller can do about it.
#[unsafe(no_mangle)]
pub extern "C" fn cairn_group_of(status: cairn_status) -> cairn_group {
    group(status)
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn cairn_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
