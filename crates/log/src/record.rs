//! A record: its header, and what proves it whole.
//!
//! ```text
//! | checksum u64 | lsn: low 48 bits, forced back: 16 bits | epoch u32 | length: 28 bits, kind: 3, to the line's end: 1 | payload |
//! ```
//!
//! A record starts on a word. The checksum is of the payload with the whole LSN and the rest of the header, under the log's key: what a
//! client stores never passes for a record, and a record of another log, or copied elsewhere, is none.

use pmem::{ChecksumKey, LINE, Sum};

/// Bytes before a record's payload.
pub const RECORD_HEADER: u64 = 24;
const LSN_BITS: u32 = 48;
const LSN_MASK: u64 = (1 << LSN_BITS) - 1;
const LEN_BITS: u32 = 28;
const TO_LINE: u32 = 1 << 31;

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A record of the program.
    Data,
    /// Reserved and given up: its payload is not used.
    Skipped,
    /// Nothing but its watermark.
    Watermark,
}

impl Kind {
    fn code(self) -> u32 {
        match self {
            Self::Data => 1,
            Self::Skipped => 2,
            Self::Watermark => 3,
        }
    }
}

/// A header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) lsn: u64,
    /// How many records before this one were not known to be durable when it was reserved, itself not counted.
    pub(crate) forced_back: u16,
    pub(crate) epoch: u32,
    pub(crate) kind: Kind,
    pub(crate) len: u32,
    /// The next record starts on a line: this one's last line is its own.
    pub(crate) to_line: bool,
}

impl Header {
    /// Bytes from this record's start, at `position`, to the next one's.
    pub(crate) fn space(&self, position: u64) -> u64 {
        space(position, u64::from(self.len), self.to_line)
    }

    /// Everything through this LSN was durable when the record was reserved.
    pub(crate) fn forced(&self) -> u64 {
        (self.lsn - 1).saturating_sub(u64::from(self.forced_back))
    }

    /// The header's bytes, with the checksum that makes it and the payload of this sum a record.
    #[inline]
    pub(crate) fn encode(&self, key: &ChecksumKey, payload: Sum) -> [u8; RECORD_HEADER as usize] {
        let words = [
            self.lsn & LSN_MASK | u64::from(self.forced_back) << LSN_BITS,
            u64::from(self.epoch)
                | u64::from(self.len | self.kind.code() << LEN_BITS | if self.to_line { TO_LINE } else { 0 }) << 32,
        ];
        let mut bytes = [0; RECORD_HEADER as usize];
        bytes[..8].copy_from_slice(&self.checksum(key, words, payload).to_le_bytes());
        bytes[8..16].copy_from_slice(&words[0].to_le_bytes());
        bytes[16..].copy_from_slice(&words[1].to_le_bytes());
        bytes
    }

    #[inline]
    fn checksum(&self, key: &ChecksumKey, words: [u64; 2], payload: Sum) -> u64 {
        key.checksum_with(payload, [self.lsn, words[0], words[1]])
    }

    /// The header that stands in these bytes, whatever they are, if its LSN is near `expected`. Nothing is proved yet.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER as usize], expected: u64) -> Option<Self> {
        let [_, first, second] = words(bytes);
        let kind_len = (second >> 32) as u32;
        let kind = match kind_len >> LEN_BITS & 7 {
            1 => Kind::Data,
            2 => Kind::Skipped,
            3 => Kind::Watermark,
            _ => return None,
        };
        Some(Self {
            lsn: nearest(first & LSN_MASK, expected)?,
            forced_back: (first >> LSN_BITS) as u16,
            epoch: second as u32,
            kind,
            len: kind_len & ((1 << LEN_BITS) - 1),
            to_line: kind_len & TO_LINE != 0,
        })
    }

    /// True if the checksum in `bytes` is that of this header and payload.
    pub(crate) fn verifies(&self, key: &ChecksumKey, bytes: &[u8; RECORD_HEADER as usize], payload: &[u8]) -> bool {
        let [checksum, first, second] = words(bytes);
        checksum == self.checksum(key, [first, second], self.payload_sum(key, payload))
    }

    /// What was given up is not read, and need not have arrived.
    fn payload_sum(&self, key: &ChecksumKey, payload: &[u8]) -> Sum {
        key.sum(if self.kind == Kind::Skipped { &[] } else { payload })
    }
}

/// Bytes that a record of `len` at `position` takes.
pub(crate) fn space(position: u64, len: u64, to_line: bool) -> u64 {
    let end = position + RECORD_HEADER + len;
    end.next_multiple_of(if to_line { LINE } else { 8 }) - position
}

/// These bytes with another LSN.
pub(crate) fn renamed(mut bytes: [u8; RECORD_HEADER as usize], lsn: u64) -> [u8; RECORD_HEADER as usize] {
    bytes[8..14].copy_from_slice(&lsn.to_le_bytes()[..6]);
    bytes
}

/// True if a header of this record was begun here, whatever else became of it.
pub(crate) fn names(bytes: &[u8; RECORD_HEADER as usize], lsn: u64) -> bool {
    words(bytes)[1] & LSN_MASK == lsn & LSN_MASK
}

/// True if the first word behind a checksum can be that of a record behind `lsn`.
#[inline]
pub(crate) fn follows(word: u64, lsn: u64) -> bool {
    let distance = (word & LSN_MASK).wrapping_sub(lsn) & LSN_MASK;
    (1..1 << (LSN_BITS - 1)).contains(&distance)
}

/// The number with these low bits that is nearest to `expected`.
pub(crate) fn nearest(low: u64, expected: u64) -> Option<u64> {
    let distance = (low.wrapping_sub(expected) << (64 - LSN_BITS)) as i64 >> (64 - LSN_BITS);
    expected.checked_add_signed(distance).filter(|&lsn| lsn > 0)
}

fn words(bytes: &[u8; RECORD_HEADER as usize]) -> [u64; 3] {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    [word(0), word(8), word(16)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { lsn: (1 << 48) + 5, forced_back: 3, epoch: 9, kind: Kind::Data, len: 5, to_line: true }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_verifies() {
        let key = ChecksumKey::new(1, 2);
        let bytes = header().encode(&key, key.sum(b"hello"));
        for expected in [header().lsn, header().lsn - 1000, header().lsn + 1000] {
            let found = Header::decode(&bytes, expected).expect("a kind");
            assert_eq!(found, header());
            assert!(found.verifies(&key, &bytes, b"hello"));
            assert!(!found.verifies(&key, &bytes, b"hellO"));
            assert!(!found.verifies(&ChecksumKey::new(1, 3), &bytes, b"hello"));
        }
        let other_lap = Header::decode(&bytes, 5).expect("a kind");
        assert_eq!(other_lap.lsn, 5);
        assert!(!other_lap.verifies(&key, &bytes, b"hello"), "the checksum is of the whole LSN");
    }

    #[test]
    fn no_bit_of_a_record_can_change() {
        let key = ChecksumKey::new(1, 2);
        let bytes = header().encode(&key, key.sum(b"hello"));
        for bit in 0..RECORD_HEADER as usize * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let whole = Header::decode(&flipped, header().lsn)
                .is_some_and(|h| h.len == 5 && h.verifies(&key, &flipped, b"hello"));
            assert!(!whole, "bit {bit}");
        }
    }

    #[test]
    fn space_is_rounded_to_words_or_lines() {
        assert_eq!(space(0, 0, false), 24);
        assert_eq!(space(0, 1, false), 32);
        assert_eq!(space(24, 0, true), 40);
        assert_eq!(space(64, 40, true), 64);
        assert_eq!(space(64, 41, true), 128);
    }

    #[test]
    fn numbers_are_completed_from_their_low_bits() {
        assert_eq!(nearest(5, 3), Some(5));
        assert_eq!(nearest(3, 5), Some(3));
        assert_eq!(nearest(1, LSN_MASK), Some((1 << 48) + 1));
        assert_eq!(nearest(LSN_MASK, (1 << 48) + 1), Some(LSN_MASK));
        assert_eq!(nearest(0, 5), None, "no record has 0");
    }
}
