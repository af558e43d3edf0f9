//! Put and delete.

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::find::{Found, Spot};
use super::layout::{Bucket, prefix, tag_of};
use super::{HASH_KEY_MAX, HashMap};
use crate::entry::{new_entry, overwrite};
use crate::media::{Link, VALUE_MAX, damaged, limit};

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
                    let layout = entry.layout();
                    overwrite(tx, slot, at, layout, &[], key, value)?;
                    return Ok(true);
                }
                Found::Free(slot) => {
                    let entry = new_entry(tx, &[], key, value)?;
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
        let entry = new_entry(tx, &[], key, value)?;
        let mut bucket = Bucket::new(prefix(hash, spot.base), 0);
        bucket.slots[0] = Link::new(entry, tag_of(hash, spot.base)).0;
        let at = self.new_bucket(tx, &bucket)?;
        *tx.write(spot.word)? = Link::new(at, 0).0;
        Ok(())
    }

    pub(super) fn new_bucket<X: Transaction + ?Sized>(&self, tx: &mut X, bucket: &Bucket) -> Result<PPtr<Bucket>> {
        let at: PPtr<Bucket> = tx.alloc_bytes(size_of::<Bucket>() as u64, pmem::LINE)?.cast();
        *tx.write(at)? = *bucket;
        Ok(at)
    }
}
