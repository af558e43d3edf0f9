//! Editable atomic writes: what is written waits in a log that the caller can still edit; one barrier commits it, then it is applied (MARS, SOSP 2013).
//!
//! [`mod@array`] writes files atomically, in any number of places, beyond the size of memory. Objects under transactions of the same kind are the policy `eaw` of the
//! crate `cairn-heap`.
//!
//! [`records`] are kept by [`mars`], in an array, or by `aries`, a write-ahead log (feature `aries`).

#![forbid(unsafe_code)]

#[cfg(feature = "aries")]
pub mod aries;
pub mod array;
mod error;
pub mod mars;
pub mod records;
mod stamp;

pub use error::{Error, Result};
