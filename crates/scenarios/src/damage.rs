//! Damaged pools: what opening and reading one may come to.
//!
//! A [`Reference`] pool is built in memory, [`Mutation`]s change its bytes, and a [`Judge`] opens the result, walks every structure and
//! compares it with what the reference holds. There are two claims:
//!
//! * [`Claim::Detected`], for bytes changed by a medium: each structure gives an error, or says what is in doubt, or was repaired, or
//!   is equal. Outside of this claim are bytes that no checksum covers:
//!   1. *payload*: object contents at rest (checksummed while their publication is in the log, not later) and the program's raw regions;
//!   2. *an erased chunk*: its table word and its whole bitmap are zeros, as if it had never been used (both stand in one page only in
//!      small heaps). Objects in it are then errors when they are used;
//!   3. *an erased tail*: where all last records of a ring were replaced by what looks like no record at all, the ring is the one from
//!      before their append. No record says that a later one was written.
//! * [`Claim::Sane`], for bytes whose checksums were made to fit again, and for bytes that were never a pool: no panic, no endless work,
//!   no access outside of the pool, and the invariants of the structures hold (blocks inside the heap and apart from each other).
//!   Which values they hold cannot be told: to recompute a checksum is to sign them.
//!
//! The test suite and the fuzz target `open` share all of this.

pub(crate) mod checksums;
mod contents;
mod judge;
mod mutation;
pub(crate) mod reference;
pub(crate) mod steps;
mod use_on;
mod walk;

pub use judge::{Claim, Failure, Judge, Outcome};
pub use mutation::Mutation;
pub use reference::{Reference, Variant};

/// Places of structures and regions in the file are counted in bytes from its start.
pub(crate) type Range = std::ops::Range<usize>;

/// The 8 bytes at `at`, zero behind the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Stores 8 bytes at `at`; nothing behind the end.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(to) = bytes.get_mut(at..at.saturating_add(8)) {
        to.copy_from_slice(&value.to_le_bytes());
    }
}
