//! Values that tell whose they are, which version, and whether they are whole.
//!
//! Key number, version, checksum, body. The checksum covers key, version and length; the body follows from key and version, so that not one byte of
//! it can be of another value.

use bench::workload;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes before the body; no value is shorter.
pub(crate) const HEADER: usize = 24;

/// What a whole value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) key: u64,
    pub(crate) version: u64,
}

/// Makes values and reads them.
#[derive(Debug)]
pub(crate) struct Values(workload::Values);

impl Values {
    /// Up to that length. Parent and workers make the same ones.
    pub(crate) fn new(longest: u32) -> Self {
        Self(workload::Values::new(longest as usize, 1))
    }

    /// Makes the value in `buffer`. One that would be shorter than its header is as long as that.
    #[inline]
    pub(crate) fn make<'b>(&self, stamp: Stamp, bytes: u32, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        let len = (bytes as usize).max(HEADER);
        buffer.clear();
        buffer.extend_from_slice(&stamp.key.to_le_bytes());
        buffer.extend_from_slice(&stamp.version.to_le_bytes());
        buffer.extend_from_slice(&checksum(stamp, len).to_le_bytes());
        buffer.extend_from_slice(self.body(stamp, len));
        buffer
    }

    /// What a value says, or what is wrong with it.
    pub(crate) fn read(&self, value: &[u8]) -> Result<Stamp, String> {
        let word = |at: usize| value.get(8 * at..8 * at + 8).and_then(|w| w.try_into().ok()).map(u64::from_le_bytes);
        let (Some(key), Some(version), Some(found)) = (word(0), word(1), word(2)) else {
            return Err(format!("{} bytes are no value", value.len()));
        };
        let stamp = Stamp { key, version };
        if found != checksum(stamp, value.len()) {
            return Err(format!("the checksum of key {key}, version {version}, {} bytes, is broken", value.len()));
        }
        let (body, wanted) = (&value[HEADER..], self.body(stamp, value.len()));
        match body.iter().zip(wanted).position(|(a, b)| a != b) {
            None if body.len() == wanted.len() => Ok(stamp),
            at => Err(format!(
                "key {key}, version {version} is of another version from byte {} on",
                HEADER + at.unwrap_or(0)
            )),
        }
    }

    #[inline]
    fn body(&self, stamp: Stamp, len: usize) -> &[u8] {
        self.0.get(stamp.key.wrapping_add(stamp.version), (len - HEADER) as u32)
    }
}

#[inline]
fn checksum(stamp: Stamp, len: usize) -> u64 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&stamp.key.to_le_bytes());
    bytes[8..16].copy_from_slice(&stamp.version.to_le_bytes());
    bytes[16..].copy_from_slice(&(len as u64).to_le_bytes());
    xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_read() {
        let values = Values::new(100);
        let mut buffer = Vec::new();
        for (key, version, bytes) in [(0, 1, 100), (7, 3, 24), (u64::MAX, u64::MAX, 0)] {
            let stamp = Stamp { key, version };
            let value = values.make(stamp, bytes, &mut buffer);
            assert_eq!(value.len(), (bytes as usize).max(HEADER));
            assert_eq!(values.read(value), Ok(stamp));
        }
    }

    /// Of two versions that were mixed at any place nothing passes for whole.
    #[test]
    fn any_mixture_is_found() {
        let values = Values::new(100);
        let (mut old, mut new) = (Vec::new(), Vec::new());
        values.make(Stamp { key: 5, version: 8 }, 100, &mut old);
        values.make(Stamp { key: 5, version: 9 }, 100, &mut new);
        for at in (8..100).step_by(8) {
            let mixed = [&new[..at], &old[at..]].concat();
            // Key and length are the same; up to there nothing is mixed.
            assert_eq!(values.read(&mixed).is_err(), mixed != old, "mixed at {at}");
        }
        assert!(values.read(&new[..99]).is_err());
        assert!(values.read(&new[..23]).is_err());
        assert!(values.read(b"").is_err());
        for at in 0..100 {
            let mut damaged = new.clone();
            damaged[at] ^= 1;
            assert!(values.read(&damaged).is_err(), "byte {at}");
        }
    }
}
