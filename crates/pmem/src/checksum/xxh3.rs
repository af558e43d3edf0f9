//! The keyed checksum of pools of format version 1: XXH3, 64 bits, under a secret.
//!
//! Fast, but above 240 bytes weak as a keyed checksum: for one key in about 2^33 an attacker can name two
//! texts that collide (`docs/checksums.md`). It stays what it is, so that old pools stay readable.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_secret};

use crate::hash::splitmix;

pub(super) type Secret = [u8; 192];

/// The secret of the place called `place` in the pool whose key is `pool_key`.
pub(super) fn secret(pool_key: u64, place: u64) -> Secret {
    let mut state = pool_key ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut secret = [0; 192];
    for word in secret.chunks_exact_mut(8) {
        word.copy_from_slice(&splitmix(&mut state).to_le_bytes());
    }
    secret
}

#[inline]
pub(super) fn checksum(secret: &Secret, text: &[u8]) -> u64 {
    xxh3_64_with_secret(text, secret)
}

/// Checksum of several runs of bytes, one behind the other.
#[inline]
pub(super) fn checksum_parts<'a>(secret: &Secret, parts: impl Iterator<Item = &'a [u8]> + Clone) -> u64 {
    // Short input is joined on the stack: the streaming state alone is larger than most records.
    let mut joined = [0; 512];
    let mut len = 0;
    for part in parts.clone() {
        if part.len() > joined.len() - len {
            let mut state = Xxh3::with_secret(*secret);
            parts.for_each(|part| state.update(part));
            return state.digest();
        }
        joined[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    checksum(secret, &joined[..len])
}

/// Of one checksum, itself; of several, the checksum of these, sixteen at a time, the first of the next sixteen
/// standing for those before.
#[inline]
pub(super) fn checksum_list(secret: &Secret, mut checksums: impl Iterator<Item = u64>) -> u64 {
    let first = checksums.next().unwrap_or_else(|| checksum(secret, &[]));
    let Some(second) = checksums.next() else { return first };
    let mut joined = [[0; 8]; 16];
    (joined[0], joined[1]) = (first.to_le_bytes(), second.to_le_bytes());
    let mut count = 2;
    for next in checksums {
        if count == joined.len() {
            joined[0] = checksum(secret, joined.as_flattened()).to_le_bytes();
            count = 1;
        }
        joined[count] = next.to_le_bytes();
        count += 1;
    }
    checksum(secret, joined[..count].as_flattened())
}
