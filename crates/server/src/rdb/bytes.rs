//! Lengths, strings and numbers as the format has them.

use std::io::Read;

/// Bytes of a string: Redis' own limit.
const STRING_MAX: u64 = 512 << 20;
/// Bytes that compressed strings of one value may become.
const UNPACKED_MAX: u64 = 1 << 30;
/// Bytes that are read before memory is taken for more.
const STEP: u64 = 64 << 10;
/// Bytes of memory that a value may take for each byte that is read of it; a stream of small entries, compressed, comes near to it.
const ROOM_PER_BYTE: u64 = 32;
/// Bytes of memory of an element beside its own: where it lies, and what the allocator adds.
pub(super) const ELEMENT: u64 = 56;
/// Bytes of a value that are kept as they stand.
const KEPT_MAX: usize = 4 << 30;

/// Why a value cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file, or what it is in, cannot be read.
    #[error("it cannot be read: {0}")]
    Io(std::io::Error),
    /// It ends too early.
    #[error("it ends in the middle of a value; copy the file again, from where it is whole")]
    Ends,
    /// It is not what the format allows.
    #[error("its bytes are no value: {0}; copy the file again, from where it is whole")]
    Bad(&'static str),
    /// It goes on behind its end.
    #[error(
        "it goes on behind its end: what stands there, as in an append-only file, was not read; write an RDB file with BGSAVE, and import that"
    )]
    Tail,
    /// It is a log of commands.
    #[error("it is an append-only file, a log of commands; write an RDB file with BGSAVE, and import that")]
    Log,
    /// A collection that would take more memory than its length allows.
    #[error(
        "a collection of too many elements, or too well compressed, for one piece; send its elements in several commands"
    )]
    Large,
    /// This is not read here.
    #[error("{0} are not read; delete them, or write them by a Redis without them, and try again")]
    Unsupported(String),
}

const TOO_LONG: Error = Error::Bad("a string that is too long");

/// What reading gives.
pub type Result<T> = std::result::Result<T, Error>;

/// CRC-64 of Jones, bits reflected, of `bytes` behind others whose checksum is `crc`.
pub fn checksum(crc: u64, bytes: &[u8]) -> u64 {
    /// `TABLES[n][byte]`: what a byte with `n` bytes behind it makes.
    static TABLES: [[u64; 256]; 8] = {
        let mut tables = [[0; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            let (mut value, mut bit) = (byte as u64, 0);
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { value >> 1 };
                bit += 1;
            }
            tables[0][byte] = value;
            byte += 1;
        }
        let mut table = 1;
        while table < 8 {
            let mut byte = 0;
            while byte < 256 {
                let value = tables[table - 1][byte];
                tables[table][byte] = tables[0][(value & 0xff) as usize] ^ value >> 8;
                byte += 1;
            }
            table += 1;
        }
        tables
    };
    let (eights, rest) = bytes.as_chunks::<8>();
    let crc = eights.iter().fold(crc, |crc, eight| {
        let mixed = (crc ^ u64::from_le_bytes(*eight)).to_le_bytes();
        mixed.iter().enumerate().fold(0, |sum, (at, byte)| sum ^ TABLES[7 - at][*byte as usize])
    });
    rest.iter().fold(crc, |crc, byte| TABLES[0][(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

/// Memory that reading a value may still take.
#[derive(Debug)]
pub(super) struct Room(u64);

impl Room {
    /// So many bytes are taken.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        self.0 = self.0.checked_sub(bytes).ok_or(Error::Large)?;
        Ok(())
    }

    /// So many are given back, or are there beside the others.
    pub(super) fn give(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(bytes);
    }
}

/// Where values are read from. It counts the checksum of what was read, and keeps it if it is told to.
#[derive(Debug)]
pub struct Input<R> {
    from: R,
    crc: u64,
    kept: Option<Vec<u8>>,
    /// Bytes of the longest string.
    string_max: u64,
    /// Bytes that compressed strings have become.
    unpacked: u64,
    pub(super) room: Room,
}

/// What stands where a length may: a length, or a string in another form.
enum Length {
    Of(u64),
    Encoded(u8),
}

impl<R: Read> Input<R> {
    /// Reads from there on.
    pub fn new(from: R) -> Self {
        Self { from, crc: 0, kept: None, string_max: STRING_MAX, unpacked: 0, room: Room(super::ROOM) }
    }

    /// A value may take so much memory beside a multiple of what is read of it.
    pub(super) fn with_room(self, bytes: u64) -> Self {
        Self { room: Room(bytes), ..self }
    }

    /// No string may be longer than this.
    pub(crate) fn with_strings_to(self, string_max: usize) -> Self {
        Self { string_max: string_max as u64, ..self }
    }

    /// The checksum of all that was read.
    pub(super) fn crc(&self) -> u64 {
        self.crc
    }

    /// From now on what is read is kept, behind `first`.
    pub(super) fn keep(&mut self, first: u8) {
        self.kept = Some(vec![first]);
        self.unpacked = 0;
    }

    /// What was kept; none if it was too much.
    pub(super) fn kept(&mut self) -> Option<Vec<u8>> {
        self.kept.take()
    }

    fn note(&mut self, bytes: &[u8]) {
        self.crc = checksum(self.crc, bytes);
        self.room.give(ROOM_PER_BYTE * bytes.len() as u64);
        match &mut self.kept {
            Some(kept) if kept.len() + bytes.len() > KEPT_MAX => self.kept = None,
            Some(kept) => kept.extend_from_slice(bytes),
            None => {}
        }
    }

    /// Passes by so many bytes.
    pub(super) fn skip(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            let step = count.min(STEP);
            self.take(step)?;
            count -= step;
        }
        Ok(())
    }

    /// Passes by a string in any of its forms.
    pub(super) fn skip_string(&mut self) -> Result<()> {
        let count = match self.length_or_encoding()? {
            Length::Of(length) => length,
            Length::Encoded(which @ 0..3) => 1 << which,
            Length::Encoded(3) => {
                let packed = self.length()?;
                self.length()?;
                packed
            }
            Length::Encoded(_) => return Err(Error::Bad("a string of no known form")),
        };
        self.skip(count)
    }

    /// So many bytes. No memory is taken for what is not there.
    pub(super) fn take(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < count {
            let step = (count - bytes.len() as u64).min(STEP.max(bytes.len() as u64));
            let read = (&mut self.from).take(step).read_to_end(&mut bytes).map_err(Error::Io)?;
            if read as u64 != step {
                return Err(Error::Ends);
            }
        }
        self.note(&bytes);
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::Ends,
            _ => Error::Io(error),
        })?;
        self.note(&bytes);
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn length_or_encoding(&mut self) -> Result<Length> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Of(first.into()),
            1 => Length::Of(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Length::Of(u32::from_be_bytes(self.array()?).into()),
            2 if first == 0x81 => Length::Of(u64::from_be_bytes(self.array()?)),
            3 => Length::Encoded(first & 0x3f),
            _ => return Err(Error::Bad("a length of no known form")),
        })
    }

    /// A number that is no string.
    pub(super) fn length(&mut self) -> Result<u64> {
        match self.length_or_encoding()? {
            Length::Of(length) => Ok(length),
            Length::Encoded(_) => Err(Error::Bad("a string where a length must be")),
        }
    }

    /// A string in any of its forms.
    pub fn string(&mut self) -> Result<Vec<u8>> {
        self.string_as(false)
    }

    /// The same, of a collection.
    pub(super) fn element(&mut self) -> Result<Vec<u8>> {
        self.room.hold(ELEMENT)?;
        self.string_as(true)
    }

    fn string_as(&mut self, element: bool) -> Result<Vec<u8>> {
        let number = |number: i64| Ok(number.to_string().into_bytes());
        match self.length_or_encoding()? {
            Length::Of(length) if length > self.string_max => Err(TOO_LONG),
            Length::Of(length) => self.take(length),
            Length::Encoded(0) => number(i8::from_le_bytes(self.array()?).into()),
            Length::Encoded(1) => number(i16::from_le_bytes(self.array()?).into()),
            Length::Encoded(2) => number(i32::from_le_bytes(self.array()?).into()),
            Length::Encoded(3) => {
                let (packed, length) = (self.length()?, self.length()?);
                self.unpacked = self.unpacked.saturating_add(length);
                if packed.max(length) > self.string_max || self.unpacked > UNPACKED_MAX {
                    return Err(TOO_LONG);
                }
                if element {
                    self.room.hold(length)?;
                }
                let packed = self.take(packed)?;
                unpack(&packed, length as usize).ok_or(Error::Bad("a compressed string that is not whole"))
            }
            Length::Encoded(_) => Err(Error::Bad("a string of no known form")),
        }
    }
}

impl Input<&[u8]> {
    /// Whether all was read.
    pub fn is_at_end(&self) -> bool {
        self.from.is_empty()
    }
}

/// Appends a length.
pub(crate) fn put_length(bytes: &mut Vec<u8>, length: u64) {
    match length {
        0..64 => bytes.push(length as u8),
        64..16384 => bytes.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        _ => match u32::try_from(length) {
            Ok(length) => {
                bytes.push(0x80);
                bytes.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                bytes.push(0x81);
                bytes.extend_from_slice(&length.to_be_bytes());
            }
        },
    }
}

/// Appends a string, as it is.
pub(crate) fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    put_length(bytes, string.len() as u64);
    bytes.extend_from_slice(string);
}

/// What LZF has made `packed` of, which has `len` bytes.
fn unpack(mut packed: &[u8], len: usize) -> Option<Vec<u8>> {
    // A byte of it is 88 at most: no memory is taken that is not going to be used.
    let mut text = Vec::with_capacity(len.min(packed.len().saturating_mul(88)));
    while let Some((control, rest)) = packed.split_first() {
        let control = usize::from(*control);
        if control < 32 {
            let (own, rest) = rest.split_at_checked(control + 1)?;
            text.extend_from_slice(own);
            packed = rest;
        } else {
            let (mut count, mut rest) = (control >> 5, rest);
            if count == 7 {
                let (more, behind) = rest.split_first()?;
                (count, rest) = (7 + usize::from(*more), behind);
            }
            let (low, rest) = rest.split_first()?;
            let back = ((control & 0x1f) << 8 | usize::from(*low)) + 1;
            let from = text.len().checked_sub(back)?;
            // What is copied may be what was just written.
            (from..from + count + 2).for_each(|at| text.push(text[at]));
            packed = rest;
        }
        if text.len() > len {
            return None;
        }
    }
    (text.len() == len).then_some(text)
}
