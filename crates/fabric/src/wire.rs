//! Frames as bytes. Every frame starts with a header of 24 bytes, little-endian:
//!
//! ```text
//! 0      1       4      8        16     20    24
//! +------+-------+------+--------+------+-----+
//! | kind | zeros | len  | offset | word | sum |  then the payload
//! +------+-------+------+--------+------+-----+
//! ```
//!
//! | kind | len | offset | word | payload |
//! |---|---|---|---|---|
//! | 1 write | of the payload | where to | 0 | the bytes |
//! | 2 write, and tell | of the payload | where to | immediate | the bytes |
//! | 3 read | asked for | from where | tag | none |
//! | 4 answer | of the payload | what was answered before of that read | tag | a part of the bytes |
//! | 5 message | of the payload | 0 | 0 | the message |
//! | 6 bye | 0 | 0 | 0 | none |
//! | 7 refused | of the payload | 0 | 0 | why, see [`Refusal`] |
//! | 8 grant | of the payload | 0 | 0 | what a device needs to reach the window; not on a stream |
//!
//! The sum is the CRC-32C of the bytes before it. Payloads have none: TCP and TLS have theirs, and what is written is checked by its reader.

use crate::{MESSAGE_MAX, READ_MAX, Reason, Rights, Violation, WRITE_MAX};

/// Bytes of a header.
pub(crate) const HEADER: usize = 24;
/// Most bytes of an answer's payload.
pub(crate) const ANSWER_MAX: usize = 64 << 10;
/// Most bytes of a grant.
const GRANT_MAX: usize = 64;
/// Most bytes of a refusal.
const REFUSED_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write = 1,
    WriteImm = 2,
    Read = 3,
    Answer = 4,
    Message = 5,
    Bye = 6,
    Refused = 7,
    Grant = 8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) len: u32,
    pub(crate) offset: u64,
    pub(crate) word: u32,
}

impl Header {
    /// Of a frame that is its header and payload alone.
    pub(crate) const fn plain(kind: Kind, len: u32) -> Self {
        Self { kind, len, offset: 0, word: 0 }
    }

    pub(crate) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.word.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// A header, if a peer of this version could have sent it.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<Self, Reason> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(20) != sum(bytes) {
            return Err(malformed("a frame's header fails its checksum"));
        }
        let (kind, len_max) = match bytes[0] {
            1 => (Kind::Write, WRITE_MAX),
            2 => (Kind::WriteImm, WRITE_MAX),
            3 => (Kind::Read, READ_MAX as usize),
            4 => (Kind::Answer, ANSWER_MAX),
            5 => (Kind::Message, MESSAGE_MAX),
            6 => (Kind::Bye, 0),
            7 => (Kind::Refused, REFUSED_MAX),
            8 => (Kind::Grant, GRANT_MAX),
            other => return Err(Reason::Malformed { what: format!("there are no frames of kind {other}") }),
        };
        let header =
            Self { kind, len: word(4), offset: u64::from(word(8)) | u64::from(word(12)) << 32, word: word(16) };
        let unused = match kind {
            Kind::Write => u64::from(header.word),
            Kind::Message | Kind::Bye | Kind::Refused | Kind::Grant => header.offset | u64::from(header.word),
            _ => 0,
        };
        if header.len as usize > len_max || unused != 0 || bytes[1..4] != [0; 3] {
            return Err(Reason::Malformed { what: format!("{header:?} is none that a peer sends") });
        }
        Ok(header)
    }

    /// Bytes that follow it.
    pub(crate) const fn payload(self) -> usize {
        match self.kind {
            Kind::Read => 0,
            _ => self.len as usize,
        }
    }
}

/// Gives a header its checksum.
pub(crate) fn seal(header: &mut [u8; HEADER]) {
    let sum = sum(header);
    header[20..].copy_from_slice(&sum.to_le_bytes());
}

fn sum(header: &[u8; HEADER]) -> u32 {
    pmem::crc32c(&[&header[..20]])
}

pub(crate) fn malformed(what: &str) -> Reason {
    Reason::Malformed { what: what.into() }
}

/// Why a target closed the connection, for the other end.
pub(crate) struct Refusal;

impl Refusal {
    /// The whole frame.
    pub(crate) fn frame(reason: &Reason) -> Vec<u8> {
        let mut payload = Vec::new();
        match reason {
            Reason::PeerViolated(Violation::Rights { wanted, given }) => {
                payload.extend([1, *wanted as u8, *given as u8])
            }
            Reason::PeerViolated(Violation::Bounds { offset, len, window }) => {
                payload.push(2);
                [offset, len, window].iter().for_each(|number| payload.extend(number.to_le_bytes()));
            }
            other => {
                let what = match other {
                    Reason::Window { what } => what.clone(),
                    other => other.to_string(),
                };
                payload.push(match other {
                    Reason::Window { .. } => 3,
                    Reason::Revoked => 5,
                    _ => 4,
                });
                payload.extend(what.bytes().take(REFUSED_MAX - 1));
            }
        }
        let mut frame = Header::plain(Kind::Refused, payload.len() as u32).encode().to_vec();
        frame.extend(payload);
        frame
    }

    /// What the other end is told by its payload.
    pub(crate) fn decode(payload: &[u8]) -> Reason {
        let rights =
            |byte| [Rights::None, Rights::Read, Rights::Write].into_iter().find(|rights| *rights as u8 == byte);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match payload {
            [1, wanted, given] => match (rights(*wanted), rights(*given)) {
                (Some(wanted), Some(given)) => Reason::Violated(Violation::Rights { wanted, given }),
                _ => malformed("it refuses for rights that there are not"),
            },
            [2, numbers @ ..] if numbers.len() == 24 => {
                let number =
                    |at: usize| numbers[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
                Reason::Violated(Violation::Bounds { offset: number(0), len: number(8), window: number(16) })
            }
            [3, what @ ..] => Reason::Window { what: text(what) },
            [5, ..] => Reason::Revoked,
            [4, what @ ..] => Reason::Lost { what: format!("the peer gave up: {}", text(what)) },
            _ => malformed("it refuses for no known reason"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for (kind, len, offset, word) in [
            (Kind::Write, 1 << 30, u64::MAX, 0),
            (Kind::WriteImm, 0, 7, u32::MAX),
            (Kind::Read, READ_MAX, 1 << 40, 9),
            (Kind::Answer, 1, 4, 9),
            (Kind::Message, 65536, 0, 0),
            (Kind::Bye, 0, 0, 0),
            (Kind::Refused, 256, 0, 0),
        ] {
            let header = Header { kind, len, offset, word };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn a_changed_bit_is_noticed() {
        let good = Header { kind: Kind::WriteImm, len: 77, offset: 1 << 33, word: 5 }.encode();
        for bit in 0..HEADER * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_nobody_sends_is_refused() {
        let with = |kind, len, offset, word| Header { kind, len, offset, word }.encode();
        for bytes in [
            with(Kind::Write, (1 << 30) + 1, 0, 0),
            with(Kind::Write, 0, 0, 1),
            with(Kind::Read, READ_MAX + 1, 0, 0),
            with(Kind::Message, 65537, 0, 0),
            with(Kind::Message, 0, 1, 0),
            with(Kind::Bye, 1, 0, 0),
            with(Kind::Refused, 257, 0, 0),
        ] {
            assert!(matches!(Header::decode(&bytes), Err(Reason::Malformed { .. })), "{bytes:?}");
        }
    }

    #[test]
    fn refusals_arrive_from_the_other_side() {
        let violations = [
            Violation::Rights { wanted: Rights::Write, given: Rights::Read },
            Violation::Bounds { offset: 1, len: u64::MAX, window: 3 },
        ];
        for violation in violations {
            let frame = Refusal::frame(&Reason::PeerViolated(violation));
            assert_eq!(Refusal::decode(&frame[HEADER..]), Reason::Violated(violation));
        }
        let window = Reason::Window { what: "x".repeat(999) };
        let frame = Refusal::frame(&window);
        assert_eq!(frame.len(), HEADER + 256);
        assert!(matches!(Refusal::decode(&frame[HEADER..]), Reason::Window { .. }));
        for bytes in [&[][..], &[0], &[1, 0], &[1, 3, 0], &[2, 0], &[9; 25]] {
            assert!(matches!(Refusal::decode(bytes), Reason::Malformed { .. }), "{bytes:?}");
        }
    }
}
