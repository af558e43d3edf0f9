//! Checksums and seals.
//!
//! CRC-32C tells damaged records from whole ones. A *seal* decides whether a transaction committed: 64 bits of XXH3 under a secret
//! of the pool. It is not linear in its input as a CRC is, so values stored by a client cannot be chosen such that a torn
//! state verifies.

use twox_hash::XxHash3_64;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_secret};

/// CRC-32C of the parts, one behind the other.
///
/// ```
/// assert_eq!(pmem::crc32c(&[b"123456789"]), 0xe306_9283);
/// assert_eq!(pmem::crc32c(&[b"1234", b"56789"]), 0xe306_9283);
/// ```
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    match parts {
        [one] => crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, one) as u32,
        _ => {
            let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
            for part in parts {
                digest.update(part);
            }
            digest.finalize() as u32
        }
    }
}

/// Up to here XXH3 uses no vectors.
const SHORT_MAX: usize = 240;

/// Length of the secret that a key expands to.
const SECRET: usize = 192;

/// The key behind the seals of one place (a ring, a cell): a pool's key, and where in the pool it is. A record copied to
/// another place, or from another pool, does not verify.
///
/// ```
/// use pmem::SealKey;
/// let key = SealKey::new(7, 4096);
/// assert_eq!(key.seal(b"debit"), key.seal_parts([&b"de"[..], b"bit"].into_iter()));
/// assert_ne!(key.seal(b"debit"), SealKey::new(7, 8192).seal(b"debit")); // another place
/// ```
#[derive(Clone)]
pub struct SealKey(Box<[u8; SECRET]>);

impl SealKey {
    /// The key for the place called `place` in the pool whose key is `pool_key`.
    pub fn new(pool_key: u64, place: u64) -> Self {
        // Any fixed, well-mixed expansion does: the key's entropy is the pool key's.
        let mut state = pool_key ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut secret = Box::new([0u8; SECRET]);
        for word in secret.chunks_exact_mut(8) {
            word.copy_from_slice(&splitmix(&mut state).to_le_bytes());
        }
        Self(secret)
    }

    /// Seal of one run of bytes.
    #[inline]
    pub fn seal(&self, bytes: &[u8]) -> u64 {
        // The same function twice: the one is inlined for what is short, the other finds out what the processor has for what is long.
        if bytes.len() > SHORT_MAX
            && let Ok(seal) = XxHash3_64::oneshot_with_secret(&*self.0, bytes)
        {
            return seal;
        }
        xxh3_64_with_secret(bytes, &*self.0)
    }

    /// Seal of several runs of bytes, one behind the other; a single run seals as by [`seal`](Self::seal).
    #[inline]
    pub fn seal_parts<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> u64 {
        // Short input is joined on the stack: the streaming state alone is larger than most records.
        let mut joined = [0u8; 512];
        let mut len = 0;
        for part in parts.clone() {
            if part.len() > joined.len() - len {
                let mut state = Xxh3::with_secret(*self.0);
                parts.for_each(|part| state.update(part));
                return state.digest();
            }
            joined[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        self.seal(&joined[..len])
    }

    /// Seal of a list of runs of bytes, which need not be joined for it: of one run, its seal; of several, the seal of their seals, sixteen at a time,
    /// the first of the next sixteen standing for those before. The lengths are not in it: whoever keeps the seal keeps them too.
    ///
    /// ```
    /// let key = pmem::SealKey::new(7, 4096);
    /// assert_eq!(key.seal_each([&b"debit"[..]].into_iter()), key.seal(b"debit"));
    /// let seals = [key.seal(b"debit").to_le_bytes(), key.seal(b"credit").to_le_bytes()];
    /// assert_eq!(key.seal_each([&b"debit"[..], b"credit"].into_iter()), key.seal(seals.as_flattened()));
    /// ```
    #[inline]
    pub fn seal_each<'a>(&self, mut runs: impl Iterator<Item = &'a [u8]>) -> u64 {
        let first = self.seal(runs.next().unwrap_or_default());
        let Some(second) = runs.next() else { return first };
        let mut seals = [[0; 8]; 16];
        (seals[0], seals[1]) = (first.to_le_bytes(), self.seal(second).to_le_bytes());
        let mut count = 2;
        for run in runs {
            if count == seals.len() {
                seals[0] = self.seal(seals.as_flattened()).to_le_bytes();
                count = 1;
            }
            seals[count] = self.seal(run).to_le_bytes();
            count += 1;
        }
        self.seal(seals[..count].as_flattened())
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(..)") // a secret
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): a bijection with good avalanche.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_is_the_castagnoli_one() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn parts_seal_as_their_concatenation() {
        let key = SealKey::new(7, 9);
        for len in [0usize, 1, 16, 200, 240, 241, 512, 513, 5000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31) as u8).collect();
            let whole = key.seal(&bytes);
            for cut in [0, len / 3, len] {
                let (a, b) = bytes.split_at(cut);
                assert_eq!(key.seal_parts([a, b].into_iter()), whole, "{len} bytes cut at {cut}");
            }
            assert_ne!(SealKey::new(7, 10).seal(&bytes), whole);
            assert_ne!(SealKey::new(8, 9).seal(&bytes), whole);
        }
    }
}
