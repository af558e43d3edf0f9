//! Several elements in one string, of the three forms that Redis has had.

use super::bytes::{ELEMENT, Error, Result, Room};

const BAD_LISTPACK: Error = Error::Bad("a listpack that is not whole");
const BAD_ZIPLIST: Error = Error::Bad("a ziplist that is not whole");

/// Bytes before the first element of a listpack: all of them (4), and how many elements there are (2).
const HEADER: usize = 6;
const END: u8 = 0xff;

/// An integer in decimal digits.
pub(super) fn number(text: &[u8]) -> Result<i64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Error::Bad("a number that is none"))
}

fn text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A little-endian number of `bytes.len()` bytes, with its sign.
fn signed(bytes: &[u8]) -> i64 {
    let mut wide = [if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

/// Bytes that say how long an element of so many bytes is, behind it. Redis takes one more a byte before it has to.
fn back_len(len: usize) -> usize {
    match len {
        0..128 => 1,
        128..16383 => 2,
        16383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// The elements of a listpack.
pub(super) fn listpack(bytes: &[u8], room: &mut Room) -> Result<Vec<Vec<u8>>> {
    let mut full = Ok(());
    let mut parse = || {
        let (header, mut rest) = bytes.split_at_checked(HEADER)?;
        let all = u32::from_le_bytes(header[..4].try_into().ok()?);
        if all as usize != bytes.len() {
            return None;
        }
        let mut elements = Vec::new();
        loop {
            let (&first, behind) = rest.split_first()?;
            if first == END {
                return behind.is_empty().then_some(elements);
            }
            // The bytes before the element itself, and those of it.
            let (head, len): (usize, usize) = match first {
                0..0x80 => (1, 0),
                0x80..0xc0 => (1, usize::from(first & 0x3f)),
                0xc0..0xe0 => (2, 0),
                0xe0..0xf0 => (2, usize::from(first & 0x0f) << 8 | usize::from(*behind.first()?)),
                0xf0 => (5, u32::from_le_bytes(behind.get(..4)?.try_into().ok()?) as usize),
                0xf1..0xf5 => (1, [2, 3, 4, 8][usize::from(first - 0xf1)]),
                _ => return None,
            };
            let element = rest.get(..head)?;
            let own = rest.get(head..head.checked_add(len)?)?;
            full = room.hold(ELEMENT);
            full.as_ref().ok()?;
            elements.push(match first {
                0..0x80 => text(first.into()),
                0xc0..0xe0 => {
                    let number = i64::from(first & 0x1f) << 8 | i64::from(element[1]);
                    text(if number >= 1 << 12 { number - (1 << 13) } else { number })
                }
                0xf1..0xf5 => text(signed(own)),
                _ => own.to_vec(),
            });
            rest = rest.get(head + len + back_len(head + len)..)?;
        }
    };
    let elements = parse();
    full?;
    elements.ok_or(BAD_LISTPACK)
}

/// The elements of a ziplist.
pub(super) fn ziplist(bytes: &[u8], room: &mut Room) -> Result<Vec<Vec<u8>>> {
    let mut full = Ok(());
    let mut parse = || {
        let (header, mut rest) = bytes.split_at_checked(10)?;
        if u32::from_le_bytes(header[..4].try_into().ok()?) as usize != bytes.len() {
            return None;
        }
        let mut elements = Vec::new();
        loop {
            if *rest.first()? == END {
                return (rest.len() == 1).then_some(elements);
            }
            // How long the one before is.
            rest = rest.get(if rest[0] < 254 { 1 } else { 5 }..)?;
            let (&first, behind) = rest.split_first()?;
            let (head, len): (usize, usize) = match first {
                0..0x40 => (1, usize::from(first)),
                0x40..0x80 => (2, usize::from(first & 0x3f) << 8 | usize::from(*behind.first()?)),
                0x80 => (5, u32::from_be_bytes(behind.get(..4)?.try_into().ok()?) as usize),
                0xc0 => (1, 2),
                0xd0 => (1, 4),
                0xe0 => (1, 8),
                0xf0 => (1, 3),
                0xfe => (1, 1),
                0xf1..=0xfd => (1, 0),
                _ => return None,
            };
            let own = rest.get(head..head.checked_add(len)?)?;
            full = room.hold(ELEMENT);
            full.as_ref().ok()?;
            elements.push(match first {
                0xf1..=0xfd => text(i64::from(first & 0x0f) - 1),
                0xc0.. => text(signed(own)),
                _ => own.to_vec(),
            });
            rest = rest.get(head + len..)?;
        }
    };
    let elements = parse();
    full?;
    elements.ok_or(BAD_ZIPLIST)
}

/// The members of a set of integers.
pub(super) fn intset(bytes: &[u8], room: &mut Room) -> Result<Vec<Vec<u8>>> {
    let width = bytes.first().copied().unwrap_or_default().max(2);
    room.hold(bytes.len() as u64 / u64::from(width) * ELEMENT)?;
    let parse = || {
        let (header, members) = bytes.split_at_checked(8)?;
        let width = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
        let count = u32::from_le_bytes(header[4..].try_into().ok()?) as usize;
        let whole = [2, 4, 8].contains(&width) && members.len() == count.checked_mul(width)?;
        whole.then(|| members.chunks(width).map(|member| text(signed(member))).collect())
    };
    parse().ok_or(Error::Bad("a set of integers that is not whole"))
}

/// Writes a listpack.
pub(super) struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; HEADER], count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn int(&mut self, number: i64) {
        let start = self.bytes.len();
        match number {
            0..128 => self.bytes.push(number as u8),
            -4096..4096 => self.bytes.extend_from_slice(&[0xc0 | (number >> 8) as u8 & 0x1f, number as u8]),
            _ => {
                let (mark, len) = match number {
                    -0x8000..0x8000 => (0xf1, 2),
                    -0x80_0000..0x80_0000 => (0xf2, 3),
                    -0x8000_0000..0x8000_0000 => (0xf3, 4),
                    _ => (0xf4, 8),
                };
                self.bytes.push(mark);
                self.bytes.extend_from_slice(&number.to_le_bytes()[..len]);
            }
        }
        self.end(start);
    }

    pub(super) fn string(&mut self, string: &[u8]) {
        let (start, len) = (self.bytes.len(), string.len());
        match len {
            0..64 => self.bytes.push(0x80 | len as u8),
            64..4096 => self.bytes.extend_from_slice(&[0xe0 | (len >> 8) as u8, len as u8]),
            _ => {
                self.bytes.push(0xf0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(string);
        self.end(start);
    }

    /// Seven bits a byte, the lowest last; all but the first of them are marked.
    fn end(&mut self, start: usize) {
        let len = self.bytes.len() - start;
        let count = back_len(len);
        for at in (0..count).rev() {
            let mark = if at + 1 == count { 0 } else { 0x80 };
            self.bytes.push((len >> (7 * at)) as u8 & 0x7f | mark);
        }
        self.count += 1;
    }

    /// With the elements of another one behind its own.
    pub(super) fn followed_by(mut self, other: Self) -> Self {
        self.bytes.extend_from_slice(&other.bytes[HEADER..]);
        self.count += other.count;
        self
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        // More than this is not counted there.
        self.bytes[4..HEADER].copy_from_slice(&u16::try_from(self.count).unwrap_or(u16::MAX).to_le_bytes());
        self.bytes
    }
}
