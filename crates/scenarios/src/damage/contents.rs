//! What the pool that is damaged has in it, and where.

use pmem::{Options, PPtr, Persist};

/// Longest file a mutation makes.
pub(crate) const CAPACITY: usize = 256 << 10;
pub(crate) const SLOTS: usize = 12;

/// A value longer than a line.
pub(crate) type Value = [u64; 10];

/// The root object.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(crate) struct Table {
    pub(crate) slots: [PPtr<u8>; SLOTS],
    pub(crate) lens: [u64; SLOTS],
}

/// An object of the reference pool.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) ptr: PPtr<u8>,
    pub(crate) len: u64,
    /// Made live by the last publication. Unless the pool was closed, recovery carries that out again: the contents are checksummed, and the
    /// object may be gone when the publication is in doubt.
    pub(crate) recent: bool,
}

/// Where checksummed records stand in their region, of which kind and length.
pub(crate) const CHECKSUMMED: [(u64, u32, usize); 4] = [(0, 1, 0), (64, 2, 40), (512, 3, 1000), (3000, 4, 1064)];

pub(crate) fn options() -> Options {
    Options::new().size(8 << 10).layout("damage").engine("reference", [7; 64])
}
