//! What `FUNCTION DUMP` answers, and `FUNCTION RESTORE` takes: libraries as in Redis' own files, then the version of those (2 bytes) and a checksum (8), little-endian.

use super::ALL_MAX;

/// The version of Redis 7.0's files.
const VERSION: u16 = 10;
/// What stands before a library.
const LIBRARY: u8 = 0xf5;
const WRONG: &str = "ERR DUMP payload version or checksum are wrong";

/// CRC-64 of Jones, bits reflected.
fn checksum(bytes: &[u8]) -> u64 {
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut value, mut bit) = (byte as u64, 0);
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { value >> 1 };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| TABLE[(crc as u8 ^ byte) as usize] ^ crc >> 8)
}

/// The codes of libraries, as one text. It is not compressed.
pub(crate) fn write<'c>(codes: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for code in codes {
        bytes.push(LIBRARY);
        let len = code.len();
        match len {
            0..64 => bytes.push(len as u8),
            64..16384 => bytes.extend_from_slice(&(len as u16 | 0x4000).to_be_bytes()),
            _ => {
                bytes.push(0x80);
                bytes.extend_from_slice(&(len as u32).to_be_bytes());
            }
        }
        bytes.extend_from_slice(code);
    }
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
    bytes
}

/// The codes of the libraries in it.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let (checked, sum) = bytes.split_last_chunk::<8>().ok_or(WRONG)?;
    let (mut rest, version) = checked.split_last_chunk::<2>().ok_or(WRONG)?;
    if u16::from_le_bytes(*version) > VERSION || u64::from_le_bytes(*sum) != checksum(checked) {
        return Err(WRONG.to_owned());
    }
    let (mut codes, mut all) = (Vec::new(), 0);
    while let Some((kind, behind)) = rest.split_first() {
        if *kind != LIBRARY {
            return Err("ERR given type is not a function".to_owned());
        }
        let (code, behind) = string(behind).ok_or("ERR failed loading the given functions payload")?;
        all += code.len();
        if all > ALL_MAX {
            return Err(format!("ERR the libraries have more than {ALL_MAX} bytes"));
        }
        codes.push(code);
        rest = behind;
    }
    Ok(codes)
}

/// A length; none if what stands there is something else.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    match first >> 6 {
        0 => Some((*first as usize, rest)),
        1 => {
            let (low, rest) = rest.split_first()?;
            Some((usize::from(first & 0x3f) << 8 | usize::from(*low), rest))
        }
        2 if *first == 0x80 => {
            let (four, rest) = rest.split_first_chunk::<4>()?;
            Some((u32::from_be_bytes(*four) as usize, rest))
        }
        2 if *first == 0x81 => {
            let (eight, rest) = rest.split_first_chunk::<8>()?;
            Some((usize::try_from(u64::from_be_bytes(*eight)).ok()?, rest))
        }
        _ => None,
    }
}

/// A string, compressed or not.
fn string(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    if let [0xc3, rest @ ..] = bytes {
        let (packed, rest) = length(rest)?;
        let (len, rest) = length(rest)?;
        let (packed, rest) = rest.split_at_checked(packed)?;
        return Some((unpack(packed, len)?, rest));
    }
    let (len, rest) = length(bytes)?;
    let (text, rest) = rest.split_at_checked(len)?;
    Some((text.to_vec(), rest))
}

/// What LZF has made `packed` of, which has `len` bytes.
fn unpack(mut packed: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > ALL_MAX {
        return None;
    }
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
