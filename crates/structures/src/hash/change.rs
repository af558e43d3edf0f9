//! Put and delete.

use pmem::PPtr;
use tx::{Range, Result, Transaction, Typed};

use super::find::{Found, Spot};
use super::layout::{Bucket, ENTRY_VALUE_LEN, Entry, prefix, tag_of, value_at};
use super::{HASH_KEY_MAX, HashMap};
use crate::media::{Link, VALUE_MAX, behind, damaged, limit};

/// Steps of growth one insert may need: every level of the directory doubled, split and left, with some to spare.
const STEPS_MAX: usize = 256;

impl HashMap {
    pub(super) fn put_pair<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool> {
        limit("bytes of a key", key.len(), HASH_KEY_MAX)?;
        limit("bytes of a value", value.len(), VALUE_MAX)?;
        let hash = self.hash(key);
        for _ in 0..STEPS_MAX {
            let spot = self.descend(tx, hash)?;
            if spot.bucket.is_null() {
                self.first(tx, &spot, hash, key, value)?;
                return Ok(false);
            }
            match self.search(tx, &spot, hash, key)? {
                Found::Entry { slot, at, entry } => {
                    let old = Old { slot, at, value_at: entry.value_at, len: entry.value.len(), room: entry.room };
                    self.overwrite(tx, old, key, value)?;
                    return Ok(true);
                }
                Found::Free(slot) => {
                    let entry = self.new_entry(tx, key, value)?;
                    *tx.write(slot)? = Link::new(entry, tag_of(hash, spot.base)).0;
                    return Ok(false);
                }
                Found::Full => self.make_room(tx, &spot, hash)?,
            }
        }
        Err(damaged("hash map", self.root, "splitting buckets finds no end"))
    }

    pub(super) fn delete_key<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool> {
        let hash = self.hash(key);
        let spot = self.descend(tx, hash)?;
        if spot.bucket.is_null() {
            return Ok(false);
        }
        let Found::Entry { slot, at, .. } = self.search(tx, &spot, hash, key)? else { return Ok(false) };
        *tx.write(slot)? = 0;
        tx.free(at)?;
        Ok(true)
    }

    /// The first entry of a page's word brings its bucket.
    fn first<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        spot: &Spot,
        hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let entry = self.new_entry(tx, key, value)?;
        let mut bucket = Bucket::new(prefix(hash, spot.base), 0);
        bucket.slots[0] = Link::new(entry, tag_of(hash, spot.base)).0;
        let at = self.new_bucket(tx, &bucket)?;
        *tx.write(spot.word)? = Link::new(at, 0).0;
        Ok(())
    }

    fn overwrite<X: Transaction + ?Sized>(&self, tx: &mut X, old: Old, key: &[u8], value: &[u8]) -> Result<()> {
        let len = value.len() as u64;
        let in_place = Range::new(behind(old.at, old.value_at), len);
        if value.len() == old.len {
            return put_bytes(tx, in_place, value);
        }
        let needed = old.value_at + len;
        // A block that would be more than half empty goes back.
        if needed <= old.room && needed * 2 >= old.room {
            let len_at = behind(old.at, ENTRY_VALUE_LEN);
            let ranges = [Range::new(len_at, 8), in_place];
            tx.intend(if value.is_empty() { &ranges[..1] } else { &ranges })?;
            tx.bytes_mut(len_at, 8)?.copy_from_slice(&len.to_le_bytes());
            return put_bytes(tx, in_place, value);
        }
        let entry = self.new_entry(tx, key, value)?;
        let slot = tx.write(old.slot)?;
        *slot = Link::new(entry, Link(*slot).bits()).0;
        tx.free(old.at)
    }

    fn new_entry<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<PPtr<u8>> {
        let (value_at, align) = value_at(key.len(), value.len());
        let len = value_at + value.len() as u64;
        let at = tx.alloc_bytes(len, align)?;
        Entry::fill(tx.bytes_mut(at, len)?, value_at, key, value);
        Ok(at)
    }

    pub(super) fn new_bucket<X: Transaction + ?Sized>(&self, tx: &mut X, bucket: &Bucket) -> Result<PPtr<Bucket>> {
        let at: PPtr<Bucket> = tx.alloc_bytes(size_of::<Bucket>() as u64, pmem::LINE)?.cast();
        *tx.write(at)? = *bucket;
        Ok(at)
    }
}

/// An empty value may end where its block ends: no place to point to.
fn put_bytes<X: Transaction + ?Sized>(tx: &mut X, range: Range, value: &[u8]) -> Result<()> {
    if !value.is_empty() {
        tx.bytes_mut(range.at, range.len)?.copy_from_slice(value);
    }
    Ok(())
}

/// An entry whose value is replaced.
struct Old {
    slot: PPtr<u64>,
    at: PPtr<u8>,
    value_at: u64,
    len: usize,
    room: u64,
}
