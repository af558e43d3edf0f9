//! The border: no panic crosses it, and the thread keeps the message of its last error.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::cairn_code::{self, CAIRN_OK, CAIRN_POISONED};
use crate::code::cairn_status;
use crate::failure::{Failure, Result};

thread_local! {
    /// The last error's message and its system's number; none yet.
    static LAST: RefCell<Option<(CString, i32)>> = const { RefCell::new(None) };
}

/// Runs a function of the interface: what it returns, or the code of what went wrong, whose message the thread keeps.
pub(crate) fn status(body: impl FnOnce() -> Result<cairn_status>) -> cairn_status {
    match caught(body).flatten() {
        Ok(status) => status,
        Err(failure) => {
            let status = failure.code as cairn_status;
            keep(failure);
            status
        }
    }
}

/// As [`status`], of what has more than one good end.
pub(crate) fn call(body: impl FnOnce() -> Result<cairn_code>) -> cairn_status {
    status(|| body().map(|code| code as cairn_status))
}

/// As [`status`], of what is done or fails.
pub(crate) fn done(body: impl FnOnce() -> Result<()>) -> cairn_status {
    status(|| body().map(|()| CAIRN_OK as cairn_status))
}

/// A panic becomes a failure. What it left half done is never used again: the handle is poisoned, by [`handles`](crate::handles).
pub(crate) fn caught<R>(body: impl FnOnce() -> R) -> Result<R> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let said = said(&*panic);
        let message = format!("a bug of the library, please report it: {said}; close the handle and open it again");
        // Dropping what was thrown may throw again.
        std::mem::forget(panic);
        Failure::new(CAIRN_POISONED, message)
    })
}

fn said(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}

fn keep(failure: Failure) {
    let bytes: Vec<u8> = failure.message.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    let message = CString::new(bytes).unwrap_or_default();
    // A thread that ends has no caller to tell.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some((message, failure.errno)));
}

/// The message of the thread's last error. It stays until the thread's next one.
pub(crate) fn last_message() -> *const c_char {
    const NONE: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ref().map_or(NONE.as_ptr(), |last| last.0.as_ptr())).unwrap_or(NONE.as_ptr())
}

/// The system's number of the thread's last error; 0 if it was no system call.
pub(crate) fn last_errno() -> i32 {
    LAST.try_with(|last| last.borrow().as_ref().map_or(0, |last| last.1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_and_a_message() {
        let status = done(|| panic!("the {} broke", "cable"));
        assert_eq!(status, CAIRN_POISONED as i32);
        let message = LAST.with(|last| last.borrow().clone()).map(|last| last.0.into_string().unwrap()).unwrap();
        assert!(message.contains("the cable broke"), "{message}");
    }

    #[test]
    fn a_zero_byte_does_not_cut_a_message() {
        done(|| Err(Failure { errno: 5, ..Failure::new(CAIRN_POISONED, "a\0b") }));
        assert_eq!(LAST.with(|last| last.borrow().clone()), Some((CString::from(c"ab"), 5)));
        assert_eq!(last_errno(), 5);
    }
}
