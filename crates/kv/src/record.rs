//! Version records: what a transaction writes, once.
//!
//! A transaction is a run of records in its writer's log, the first one marked. Each says how many are still to come and has a checksum over all of itself and its
//! place, so that a transaction counts only if every one of its records arrived.

use pmem::{ChecksumKey, Persist};

use crate::error::{Error, Result};
use crate::raw::{self, Claim};
use crate::time::Now;
use crate::word::Word;

/// Records begin at multiples of this.
pub(crate) const GRAIN: u64 = 16;

/// What stands before key and value.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
pub(crate) struct Header {
    /// Over everything behind it, and the place.
    pub(crate) checksum: u64,
    /// Commit timestamp.
    pub(crate) ts: u64,
    /// Where the version before this one was, 0 for none; of no meaning after a restart, when nobody can need it.
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
/// Sixteen bytes behind that number the commit among all commits, and say through which all were durable: see `bounded`.
pub(crate) const NUMBERED: u32 = 1 << 28;
/// Written as a part of the transaction before it, with a timestamp of its own: see `group`.
pub(crate) const JOINED: u32 = 1 << 29;
const KNOWN: u32 = FIRST | TOMBSTONE | EXPIRES | MOVED | NUMBERED | JOINED;

/// Clocks and other counts of 64 bits stay below: none gets there by being counted.
pub(crate) const COUNT_MAX: u64 = 1 << 62;
/// Longest key.
pub const KEY_MAX: usize = 64 << 10;
/// Longest value.
pub const VALUE_MAX: usize = 1 << 30;

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

/// A record on media.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// From the start of the pool.
    pub(crate) offset: u64,
    pub(crate) header: &'a Header,
    bytes: &'a [u8],
}

/// What leads to a record, or its lengths, come from media: that they lead out of the pool is damage.
#[cold]
fn beyond(offset: u64, error: Error) -> Error {
    match error {
        Error::Pool(pmem::Error::OutOfBounds { .. }) => damaged(offset, "it would end behind the pool"),
        other => other,
    }
}

impl<'a> Record<'a> {
    /// The record at `offset`, whose extent is checked against the pool and nothing else; it stays while `by` is borrowed, as the claim says.
    #[inline]
    pub(crate) fn at(claim: Claim, by: &'a impl ?Sized, pool: &'a pmem::Pool, offset: u64) -> Result<Self> {
        let beyond = |error| beyond(offset, error);
        let head = raw::bytes(claim, by, pool, offset, HEADER).map_err(beyond)?;
        let Some(header) = pmem::view::<Header>(head) else {
            return Err(damaged(offset, "it does not begin where records do"));
        };
        Ok(Self { offset, header, bytes: raw::bytes(claim, by, pool, offset, header.len()).map_err(beyond)? })
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        let at = self.header.key_at() as usize;
        self.bytes.get(at..at + self.header.key_len() as usize).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        let at = self.header.key_at() + self.header.key_len();
        self.bytes.get(at as usize..).unwrap_or_default()
    }

    /// When it expires, in milliseconds of Unix time.
    #[inline]
    pub(crate) fn expires(&self) -> Option<u64> {
        self.header.has(EXPIRES).then(|| self.word(HEADER))
    }

    /// The commit's number, and through which all were durable when it was written.
    pub(crate) fn number(&self) -> Option<(u64, u64)> {
        let at = self.header.key_at();
        self.header.has(NUMBERED).then(|| (self.word(at - 16), self.word(at - 8)))
    }

    fn word(&self, at: u64) -> u64 {
        let bytes = self.bytes.get(at as usize..at as usize + 8).and_then(|b| b.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    /// Whether a reader at time `now` finds a value here.
    #[inline]
    pub(crate) fn is_live(&self, now: &Now) -> bool {
        !self.header.has(TOMBSTONE) && self.expires().is_none_or(|at| at > now.millis())
    }

    /// Bytes it takes.
    #[inline]
    pub(crate) fn space(&self) -> u64 {
        self.header.len().next_multiple_of(GRAIN)
    }

    /// What the index keeps of it.
    pub(crate) fn to_word(self) -> Word {
        Word::new(self.offset, self.space(), hash(self.key()), self.header)
    }

    pub(crate) fn is_checksummed(&self, key: &ChecksumKey, place: u64) -> bool {
        self.header.is_sound() && self.header.checksum == checksum(key, self.bytes, place)
    }
}

/// The checksum of the record `bytes`. The place binds it to where it stands and to what the segment was used for then.
#[inline]
pub(crate) fn checksum(key: &ChecksumKey, bytes: &[u8], place: u64) -> u64 {
    bound(key.checksum(checksummed(bytes)), place)
}

/// The same of a record in two parts, the first one at least as long as the header.
#[inline]
pub(crate) fn checksum_parts(key: &ChecksumKey, head: &[u8], rest: &[u8], place: u64) -> u64 {
    bound(key.checksum_parts([checksummed(head), rest].into_iter()), place)
}

/// What of the first part of a record its checksum covers.
#[inline]
pub(crate) fn checksummed(head: &[u8]) -> &[u8] {
    head.get(8..).unwrap_or_default()
}

/// The checksum of a record in this place, from what its key says of its bytes.
#[inline]
pub(crate) fn bound(checksum: u64, place: u64) -> u64 {
    (checksum ^ place).max(1) // zeros are no record
}

/// What the next transaction keeps of the checksum of this one's first record.
pub(crate) fn link(checksum: u64) -> u16 {
    (checksum >> 48) as u16
}

/// Names a place in one life of a segment.
#[inline]
pub(crate) fn place(offset: u64, writer: usize, sequence: u32) -> u64 {
    // Odd multipliers: each input changes the result, and XOR with a keyed hash does the rest.
    offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (u64::from(sequence) << 8 | writer as u64).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(32)
}

/// Of a key: for the index and the locks. Neither secret nor on media but for fourteen bits, which only make look-ups faster.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

pub(crate) fn damaged(offset: u64, why: &str) -> crate::Error {
    crate::Error::Damaged { what: "record", offset, why: why.to_owned() }
}

/// Appends the record to `image`, sixteen-byte aligned, without timestamp and checksum.
pub(crate) fn encode(image: &mut Vec<u8>, key: &[u8], value: &[u8], flags: u32, expires: Option<u64>) {
    let flags = flags | if expires.is_some() { EXPIRES } else { 0 };
    image.extend_from_slice(pmem::bytes_of(&Header::new(key, value, flags)));
    if let Some(at) = expires {
        image.extend_from_slice(&at.to_le_bytes());
    }
    if flags & NUMBERED != 0 {
        image.extend_from_slice(&[0; 16]);
    }
    image.extend_from_slice(key);
    image.extend_from_slice(value);
    image.resize(image.len().next_multiple_of(GRAIN as usize), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_knows_its_place_and_every_byte() {
        let key = ChecksumKey::new(1, 2);
        let mut image = Vec::new();
        encode(&mut image, b"key", b"value", FIRST, Some(7));
        let len = (HEADER + 8 + 3 + 5) as usize;
        let whole = checksum(&key, &image[..len], place(64, 3, 9));
        for other in [place(80, 3, 9), place(64, 4, 9), place(64, 3, 10)] {
            assert_ne!(checksum(&key, &image[..len], other), whole);
        }
        for cut in 8..=len {
            assert_eq!(checksum_parts(&key, &image[..cut], &image[cut..len], place(64, 3, 9)), whole);
        }
        for bit in 64..len * 8 {
            let mut changed = image.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&key, &changed[..len], place(64, 3, 9)), whole, "bit {bit}");
        }
    }
}
