//! What stands before key and value of a record.

use pmem::Persist;

use crate::media::key::{KEY_MAX, VALUE_MAX};

/// Records begin at multiples of this.
pub(crate) const GRAIN: u64 = 16;

/// What stands before key and value.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub(crate) struct Header {
    /// Over everything behind it, and its location.
    pub(crate) checksum: u64,
    /// Commit timestamp.
    pub(crate) ts: u64,
    /// Where the version before this one was, 0 for none; of no meaning after a restart, when no reader can need it.
    pub(crate) prev: u64,
    pub(crate) value_len: u32,
    /// Length of the key in the lower 24 bits, flags above.
    pub(crate) key_len_flags: u32,
    /// The lower half of the pool's, when it was written.
    pub(crate) generation: u16,
    /// Of the first record of a transaction: of the checksum of the one before it in its writer's log, to prove that nothing is missing.
    pub(crate) link: u16,
    /// Records of the transaction that follow.
    pub(crate) rest: u32,
}

pub(crate) const HEADER: u64 = size_of::<Header>() as u64;
const _: () = assert!(HEADER == 40);

/// First record of a transaction.
pub(crate) const FIRST: u32 = 1 << 24;
/// The key is deleted.
pub(crate) const TOMBSTONE: u32 = 1 << 25;
/// Eight bytes behind the header say when the key expires, in milliseconds of Unix time.
pub(crate) const EXPIRES: u32 = 1 << 26;
/// A version moved here from elsewhere, with the timestamp it has.
pub(crate) const MOVED: u32 = 1 << 27;
/// Sixteen bytes behind that number the commit among all commits, and say through which all were durable: see `durable`.
pub(crate) const NUMBERED: u32 = 1 << 28;
/// Written as a part of the transaction before it, with a timestamp of its own: see `durable`.
pub(crate) const JOINED: u32 = 1 << 29;
const KNOWN: u32 = FIRST | TOMBSTONE | EXPIRES | MOVED | NUMBERED | JOINED;

/// Clocks and other counts of 64 bits stay below: none gets there by being counted.
pub(crate) const COUNT_MAX: u64 = 1 << 62;
impl Header {
    pub(crate) fn new(key: &[u8], value: &[u8], flags: u32) -> Self {
        Self {
            checksum: 0,
            ts: 0,
            prev: 0,
            value_len: value.len() as u32,
            key_len_flags: key.len() as u32 | flags,
            generation: 0,
            link: 0,
            rest: 0,
        }
    }

    #[inline]
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.key_len_flags & flag != 0
    }

    #[inline]
    pub(crate) fn key_len(&self) -> u64 {
        u64::from(self.key_len_flags & (FIRST - 1))
    }

    /// Where the key begins.
    #[inline]
    pub(crate) fn key_at(&self) -> u64 {
        HEADER + 8 * u64::from(self.has(EXPIRES)) + 16 * u64::from(self.has(NUMBERED))
    }

    /// Whether it was written in this generation or a later one: as far as sixteen bits tell.
    pub(crate) fn is_since(&self, generation: u16) -> bool {
        self.generation.wrapping_sub(generation) < 1 << 15
    }

    /// Bytes up to the end of the value.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.key_at() + self.key_len() + u64::from(self.value_len)
    }

    /// Whether a record can look like this at all.
    pub(crate) fn is_sound(&self) -> bool {
        self.key_len() <= KEY_MAX as u64
            && self.value_len as usize <= VALUE_MAX
            && self.ts < COUNT_MAX
            && self.key_len_flags & !(KNOWN | (FIRST - 1)) == 0
    }
}
