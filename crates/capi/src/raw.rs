//! The functions of the interface, and all the unsafe code: memory that C names, and what borrows from what is kept beside it.
//!
//! What each function asks of its caller is in the header: pointers are null, or lead to as much as is said, which nothing changes during the call; strings end with a zero.

mod about;
mod array;
mod held;
mod kv;
mod log;
mod replicas;
mod tx;

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

use crate::code::cairn_code::{CAIRN_FULL, CAIRN_INVALID, CAIRN_NOT_UTF8};
use crate::failure::{Failure, Result};

/// Bytes of the caller's. Null is no bytes, if there are to be none.
///
/// # Safety
/// `at` is null or leads to `len` bytes, which nothing changes while `'a` lasts.
unsafe fn bytes<'a>(at: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    if at.is_null() {
        return if len == 0 { Ok(&[]) } else { Err(Failure::null(what)) };
    }
    if len > isize::MAX as usize {
        return Err(Failure::new(CAIRN_INVALID, format!("{what} cannot have {len} bytes")));
    }
    // SAFETY: the caller's.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), len) })
}

/// A string.
///
/// # Safety
/// `at` is null or leads to a string that ends with a zero, which nothing changes while `'a` lasts.
unsafe fn text<'a>(at: *const c_char, what: &str) -> Result<&'a str> {
    if at.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: the caller's.
    let string = unsafe { CStr::from_ptr(at) };
    string.to_str().map_err(|error| Failure::new(CAIRN_NOT_UTF8, format!("{what} {string:?}: {error}")))
}

/// A path.
///
/// # Safety
/// `at` is null or leads to a string that ends with a zero, which nothing changes while `'a` lasts.
unsafe fn path<'a>(at: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's.
    unsafe { text(at, "the path") }.map(Path::new)
}

/// A place of the caller's for a result.
struct Out<T>(*mut T);

impl<T> Out<T> {
    /// It must be there.
    ///
    /// # Safety
    /// `at` is null or leads to an aligned place for a `T`, which nothing else uses while this lives.
    unsafe fn new(at: *mut T, what: &str) -> Result<Self> {
        if at.is_null() { Err(Failure::null(what)) } else { Ok(Self(at)) }
    }

    /// Null if the caller does not want to know.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    unsafe fn wanted(at: *mut T) -> Self {
        Self(at)
    }

    fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller that made this promised the place.
            unsafe { self.0.write(value) };
        }
    }
}

/// Room of the caller's for bytes, left alone until there are some.
struct Room(*mut u8, usize);

impl Room {
    /// Null is no room, if there is to be none.
    ///
    /// # Safety
    /// `at` is null or leads to `len` bytes, which nothing else uses while this lives.
    unsafe fn new(at: *mut c_void, len: usize, what: &str) -> Result<Self> {
        match at.is_null() {
            true if len > 0 => Err(Failure::null(what)),
            _ if len > isize::MAX as usize => {
                Err(Failure::new(CAIRN_INVALID, format!("{what} cannot have {len} bytes")))
            }
            _ => Ok(Self(at.cast(), len)),
        }
    }

    /// What `read` puts there.
    fn fill(&self, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let mut bytes = Vec::new();
        let full = |_| Failure::new(CAIRN_FULL, format!("no memory for {} bytes", self.1));
        bytes.try_reserve_exact(self.1).map_err(full)?;
        bytes.resize(self.1, 0);
        read(&mut bytes)?;
        if self.1 > 0 {
            // SAFETY: the caller that made this promised the place; `bytes` is ours.
            unsafe { self.0.copy_from_nonoverlapping(bytes.as_ptr(), self.1) };
        }
        Ok(())
    }
}

/// A struct of numbers alone that begins with its length: any bytes are one, and later versions have more of them.
///
/// # Safety
/// It is `repr(C)`, of integers without padding, and its first field is `size: usize`.
unsafe trait Growing: Copy + Default {}

/// What the caller set, the rest as by default.
///
/// # Safety
/// `at` is null or leads to a struct whose first field is its length, and to that many bytes.
unsafe fn options<T: Growing>(at: *const T) -> Result<T> {
    let mut all = T::default();
    if at.is_null() {
        return Ok(all);
    }
    // SAFETY: the first field, which is there; the caller may have aligned it for less.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=SIZE_MAX).contains(&size) || !size.is_multiple_of(size_of::<u32>()) {
        let message = format!("options of {size} bytes: have them filled by their init function, which sets the size");
        return Err(Failure::new(CAIRN_INVALID, message));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's, of `size` bytes.
    let given = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) };
    if given[known..].iter().any(|byte| *byte != 0) {
        let message = format!("options of {size} bytes, of which this version knows {known}: the others must be zero");
        return Err(Failure::new(CAIRN_INVALID, message));
    }
    // SAFETY: any bytes are a `T`, and nothing else has `all`.
    let target = unsafe { std::slice::from_raw_parts_mut((&raw mut all).cast::<u8>(), known) };
    target.copy_from_slice(&given[..known]);
    Ok(all)
}

/// Fills as much of the caller's struct as it has, and sets what this version does not know to zero.
///
/// # Safety
/// `at` is null or leads to `size` bytes, which nothing else uses during the call.
unsafe fn fill<T: Growing>(at: *mut T, size: usize, value: T, what: &str) -> Result<()> {
    if at.is_null() {
        return Err(Failure::null(what));
    }
    if !(size_of::<usize>()..=SIZE_MAX).contains(&size) {
        return Err(Failure::new(CAIRN_INVALID, format!("{what} cannot have {size} bytes: pass its sizeof")));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: `T` has no padding, so all its bytes are there.
    let from = unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), known) };
    // SAFETY: the caller's place, made of bytes before it is looked at.
    unsafe { at.cast::<u8>().write_bytes(0, size) };
    // SAFETY: as above.
    let target = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), size) };
    target[..known].copy_from_slice(from);
    target[..size_of::<usize>()].copy_from_slice(&size.to_ne_bytes());
    Ok(())
}

/// No struct of ours will be longer: a length beyond is no length.
const SIZE_MAX: usize = 4096;
