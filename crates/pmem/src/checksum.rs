//! Keyed checksums, called checksums: they decide whether something was committed.
//!
//! Values stored by a client, which does not know the key, cannot be chosen such that a torn state verifies.
//! Pools of format version 2 have CLNH with a proven bound ([`clnh`]), under words that ChaCha12 expands
//! ([`expand`]); those of version 1 have XXH3 ([`xxh3`]). Definition, theorem and proof: `docs/checksums.md`.

#[cfg(target_arch = "aarch64")]
mod arm;
mod clnh;
mod expand;
mod ops;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;
mod xxh3;

use std::sync::Arc;

use clnh::{Own, Shared};

/// What the expanded words are for: the nonces of the expansion. 0 is for the words of all places.
const OF_PLACE: u64 = 1;
const OF_DERIVED: u64 = 2;
const OF_KINDS: u64 = 16;

/// Makes the keys of a pool's places.
#[derive(Clone)]
pub(crate) struct Checksums(Expanded);

#[derive(Clone)]
enum Expanded {
    Xxh3(u64),
    Clnh(Arc<Shared>),
}

impl Checksums {
    /// Those of pools of format version 1.
    pub(crate) fn version_1(pool_key: u64) -> Self {
        Self(Expanded::Xxh3(pool_key))
    }

    /// Those of version 2. The id is a secret from most, not from all.
    pub(crate) fn version_2(pool_key: u64, pool_id: u64) -> Self {
        let [name, rest] = [*b"cairn se", *b"als, v.2"].map(u64::from_le_bytes);
        Self::of(Shared::new([pool_key, pool_id, name, rest]))
    }

    fn of(shared: Shared) -> Self {
        Self(Expanded::Clnh(Arc::new(shared)))
    }

    pub(crate) fn key(&self, place: u64) -> ChecksumKey {
        ChecksumKey(match &self.0 {
            Expanded::Xxh3(pool_key) => Function::Xxh3(Box::new(xxh3::secret(*pool_key, place))),
            Expanded::Clnh(shared) => {
                Function::Clnh { own: shared.own(place, OF_PLACE), shared: Arc::clone(shared), place }
            }
        })
    }
}

/// The key behind the checksums of one place (a ring, a cell): a pool's key, and where in the pool it is. A record copied to
/// another place, or from another pool, does not verify.
///
/// ```
/// use pmem::ChecksumKey;
/// let key = ChecksumKey::new(7, 4096);
/// assert_eq!(key.checksum(b"debit"), key.checksum_parts([&b"de"[..], b"bit"].into_iter()));
/// assert_ne!(key.checksum(b"debit"), ChecksumKey::new(7, 8192).checksum(b"debit")); // another place
/// ```
#[derive(Clone)]
pub struct ChecksumKey(Function);

#[derive(Clone)]
enum Function {
    Xxh3(Box<xxh3::Secret>),
    Clnh { own: Own, shared: Arc<Shared>, place: u64 },
}

/// What a checksum takes of a text, when the rest of what it covers is not known yet: see [`ChecksumKey::sum`]. A secret of the key.
#[derive(Clone, Copy)]
pub struct Sum(u128);

impl ChecksumKey {
    /// The key for the place called `place` in a pool of format version 2 whose key is `pool_key` and whose id is 0.
    pub fn new(pool_key: u64, place: u64) -> Self {
        Checksums::version_2(pool_key, 0).key(place)
    }

    /// The key for the place called `place` in a pool of format version 1 whose key is `pool_key`.
    pub fn format_1(pool_key: u64, place: u64) -> Self {
        Checksums::version_1(pool_key).key(place)
    }

    /// Checksum of one run of bytes.
    #[inline]
    pub fn checksum(&self, bytes: &[u8]) -> u64 {
        match &self.0 {
            Function::Clnh { shared, own, .. } => shared.checksum(own, bytes),
            Function::Xxh3(secret) => xxh3::checksum(secret, bytes),
        }
    }

    /// Checksum of several runs of bytes, one behind the other; a single run checksums as by [`checksum`](Self::checksum).
    #[inline]
    pub fn checksum_parts<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> u64 {
        match &self.0 {
            Function::Clnh { shared, own, .. } => {
                let len = parts.clone().map(<[u8]>::len).sum();
                shared.finish(own, shared.sum_parts(len, parts))
            }
            Function::Xxh3(secret) => xxh3::checksum_parts(secret, parts),
        }
    }

    /// Checksum of a list of runs of bytes, which need not be joined for it: the [`checksum_list`](Self::checksum_list) of their checksums. The lengths
    /// are not in it: a caller that keeps the checksum keeps them too.
    ///
    /// ```
    /// let key = pmem::ChecksumKey::new(7, 4096);
    /// assert_eq!(key.checksum_each([&b"debit"[..]].into_iter()), key.checksum(b"debit"));
    /// let checksums = [key.checksum(b"debit"), key.checksum(b"credit")];
    /// assert_eq!(key.checksum_each([&b"debit"[..], b"credit"].into_iter()), key.checksum_list(checksums.into_iter()));
    /// ```
    #[inline]
    pub fn checksum_each<'a>(&self, runs: impl Iterator<Item = &'a [u8]>) -> u64 {
        self.checksum_list(runs.map(|run| self.checksum(run)))
    }

    /// One checksum in place of a list of them, whose number is kept beside it. Of one checksum, itself; of none, that of no bytes.
    #[inline]
    pub fn checksum_list(&self, mut checksums: impl Iterator<Item = u64>) -> u64 {
        match &self.0 {
            Function::Clnh { shared, own, .. } => {
                let Some(first) = checksums.next() else { return self.checksum(&[]) };
                checksums.fold(first, |before, next| shared.list(own, before, next))
            }
            Function::Xxh3(secret) => xxh3::checksum_list(secret, checksums),
        }
    }

    /// One checksum in place of words that are checksums themselves, of texts in other places or of other [kinds](Self::of_kind). Their number is
    /// kept beside it.
    pub fn checksum_words(&self, words: impl Iterator<Item = u64>) -> u64 {
        match &self.0 {
            Function::Clnh { .. } => self.checksum_list(words),
            Function::Xxh3(secret) => {
                let joined: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                xxh3::checksum(secret, &joined)
            }
        }
    }

    /// The first half of [`checksum_with`](Self::checksum_with): all that needs the text.
    #[inline]
    pub fn sum(&self, text: &[u8]) -> Sum {
        Sum(match &self.0 {
            Function::Clnh { shared, .. } => shared.sum(text),
            Function::Xxh3(secret) => xxh3::checksum(secret, text).into(),
        })
    }

    /// The checksum of a text together with three words, such as its header, which need not be known when the text is looked at.
    ///
    /// ```
    /// let key = pmem::ChecksumKey::new(7, 4096);
    /// let payload = key.sum(b"debit");
    /// assert_ne!(key.checksum_with(payload, [1, 2, 3]), key.checksum_with(payload, [1, 2, 4]));
    /// ```
    #[inline]
    pub fn checksum_with(&self, text: Sum, words: [u64; 3]) -> u64 {
        match &self.0 {
            Function::Clnh { shared, own, .. } => shared.bound(own, text.0, words),
            Function::Xxh3(secret) => {
                let mut checksummed = [[0; 8]; 4];
                for (to, word) in checksummed.iter_mut().zip(words.into_iter().chain([text.0 as u64])) {
                    *to = word.to_le_bytes();
                }
                xxh3::checksum(secret, checksummed.as_flattened())
            }
        }
    }

    /// The key for another kind of thing in the same place: what is checksummed under this one may hold checksums of that one. In a pool of
    /// format version 1 it is the same key.
    pub fn of_kind(&self, kind: u32) -> Self {
        Self(match &self.0 {
            Function::Clnh { shared, place, .. } => Function::Clnh {
                own: shared.own(*place, OF_KINDS + u64::from(kind)),
                shared: Arc::clone(shared),
                place: *place,
            },
            same @ Function::Xxh3(_) => same.clone(),
        })
    }

    /// A key that has nothing to do with this one for an attacker that does not know it: that of the log called `name` at this place, or of a message.
    pub fn derived(&self, name: u64) -> Self {
        match &self.0 {
            Function::Clnh { shared, place, .. } => {
                Checksums::of(Shared::new(shared.derived(*place, OF_DERIVED))).key(name)
            }
            Function::Xxh3(_) => Self::format_1(self.checksum(&name.to_le_bytes()), name),
        }
    }

    /// The sum of `text`, if it can be made while its bytes from `skip` on, whole lines of them, are stored past the cache from `to` on;
    /// and how many bytes these were.
    ///
    /// # Safety
    /// `to` starts on a line and is writable for so many bytes, which are no part of `text` and which nothing else uses.
    #[inline]
    pub(crate) unsafe fn sum_storing(&self, text: &[u8], to: *mut u8, skip: usize) -> Option<(Sum, usize)> {
        let Function::Clnh { shared, .. } = &self.0 else { return None };
        // SAFETY: the caller's promise.
        let (sum, stored) = unsafe { shared.sum_storing(text, to, skip) };
        Some((Sum(sum), stored))
    }

    /// The checksum of `before` and `body`, one behind the other, if it can be made while the whole lines that `body` begins with are stored past the cache from `to` on;
    /// and how many bytes these were.
    ///
    /// # Safety
    /// `to` starts on a line and is writable for so many bytes, which are no part of either and which nothing else uses.
    #[inline]
    pub(crate) unsafe fn checksum_storing(&self, before: &[u8], body: &[u8], to: *mut u8) -> Option<(u64, usize)> {
        let Function::Clnh { shared, own, .. } = &self.0 else { return None };
        let (sum, stored) = if before.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { shared.sum_storing(body, to, 0) }
        } else {
            // SAFETY: as above.
            unsafe { shared.sum_storing_behind(before, body, to) }?
        };
        Some((shared.finish(own, sum), stored))
    }
}

impl std::fmt::Debug for ChecksumKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChecksumKey(..)") // a secret
    }
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sum(..)") // of a secret
    }
}
