//! The C interface of the log, the key-value store and the array: `libcairn.so`, `libcairn.a`, and `include/cairn.h`, which `cargo xtask header` writes from what is here.
//!
//! A C program has *handles*: pointers that are never followed. Each is a number of a slot and of its use, so that one that is null, was closed, or was never given out is told
//! from a live one, whatever it is. Nothing that goes wrong crosses the border but as a code and a message; a panic is one of these, and ends the use of the handle.
//!
//! # The way of a call
//!
//! | module | what it does with it |
//! |---|---|
//! | `raw` | the functions; what C passes becomes slices and references there, and nowhere else |
//! | `call` | catches panics, keeps the message for the thread |
//! | `handles` | from a handle to what it stands for, which stays while it is used |
//! | `failure`, `code` | what went wrong, and what the caller can do about it |
//! | `options` | structs that can grow |
//! | `log_side`, `kv_side`, `array_side`, `replicas_side` | what the handles stand for |
//! | `types` | what C names: the handles, and the structs and enums of the calls |
//!
//! # One call from C
//!
//! `cairn_log_append(log, "17 apples", 9, &lsn)`
//!
//! 1. `raw/log`: pointer and length become a slice, `&lsn` a place for a result; null is an error.
//!    A panic from here on is one, too (`call`).
//! 2. `handles` `with`: the handle is a number, never followed: kind, slot, generation. The slot
//!    has the log, or another generation: then the handle was closed. Closing does not wait:
//!    while a call holds the slot it is refused.
//! 3. The crate's own `append`. Its error becomes a code, grouped by what the caller can do
//!    (`code`), and a message that the thread keeps.
//!
//! What borrows from a log, store or array (a reservation, an iterator, a transaction with its scans) is
//! kept together with it in `raw/held`. The header is made from the sources by `xtask`.

#![deny(unsafe_code)]

mod array_side;
mod call;
mod code;
mod failure;
mod handles;
mod kv_side;
mod log_side;
mod options;
#[allow(unsafe_code)]
mod raw;
mod replicas_side;
mod types;
