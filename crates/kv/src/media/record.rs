//! Version records: what a transaction writes, once.
//!
//! A transaction is a run of records in its writer's log, the first one marked. Each says how many are still to come and has a checksum over all of itself and its
//! location, so that a transaction counts only if every one of its records arrived.

use pmem::ChecksumKey;

use crate::error::{Error, Result};
use crate::media::checksum::checksum;
use crate::media::header::{EXPIRES, GRAIN, HEADER, Header, NUMBERED, TOMBSTONE};
use crate::media::key::hash;
use crate::media::word::Word;
use crate::raw::{self, Claim};
use crate::time::Now;

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

    pub(crate) fn is_checksummed(&self, key: &ChecksumKey, location: u64) -> bool {
        self.header.is_sound() && self.header.checksum == checksum(key, self.bytes, location)
    }
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
    use crate::media::checksum::{checksum_parts, location};
    use crate::media::header::FIRST;

    #[test]
    fn a_checksum_knows_its_place_and_every_byte() {
        let key = ChecksumKey::new(1, 2);
        let mut image = Vec::new();
        encode(&mut image, b"key", b"value", FIRST, Some(7));
        let len = (HEADER + 8 + 3 + 5) as usize;
        let whole = checksum(&key, &image[..len], location(64, 3, 9));
        for other in [location(80, 3, 9), location(64, 4, 9), location(64, 3, 10)] {
            assert_ne!(checksum(&key, &image[..len], other), whole);
        }
        for cut in 8..=len {
            assert_eq!(checksum_parts(&key, &image[..cut], &image[cut..len], location(64, 3, 9)), whole);
        }
        for bit in 64..len * 8 {
            let mut changed = image.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&key, &changed[..len], location(64, 3, 9)), whole, "bit {bit}");
        }
    }
}
