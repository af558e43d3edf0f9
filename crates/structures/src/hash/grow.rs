//! A full bucket gets room: one step at a time, each of bounded size. The insert looks again after each.

use pmem::PPtr;
use tx::{Range, Result, ToRange, Transaction, Typed};

use super::HashMap;
use super::find::{NodeAt, Spot};
use super::layout::{Bucket, HASH_BITS, NODE_LOG2_MAX, NODE_LOG2_MIN, SLOTS, bits, is_last, prefix, tag_of, window};
use crate::media::{Link, behind, damaged};

impl HashMap {
    pub(super) fn make_room<X: Transaction + ?Sized>(&self, tx: &mut X, spot: &Spot, hash: u64) -> Result<()> {
        let bucket = *self.bucket(tx, spot, hash, spot.bucket)?;
        let depth = bucket.depth().unwrap_or(0);
        let below = spot.base + if spot.node.is_some() { NODE_LOG2_MAX } else { 0 };
        if !self.grows || is_last(spot.base, depth) {
            return self.chain(tx, spot.bucket, &bucket);
        }
        if !bucket.next(self.tag()).is_null() {
            return Err(damaged("bucket", spot.bucket, "chained where it could have been split"));
        }
        match spot.node {
            Some(node) if depth < node.log2 => self.split(tx, spot, &node, hash, &bucket),
            Some(node) if node.log2 < NODE_LOG2_MAX => self.double(tx, &node),
            _ => self.deepen(tx, spot, &bucket, below),
        }
    }

    /// The bucket keeps what has a zero for the next bit of the hash, the rest goes into a new one.
    fn split<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        spot: &Spot,
        node: &NodeAt,
        hash: u64,
        bucket: &Bucket,
    ) -> Result<()> {
        let depth = bucket.depth().unwrap_or(0);
        let decided = spot.base + depth;
        let mut low = Bucket::new(prefix(bucket.path, decided), depth + 1);
        let mut high = Bucket::new(bucket.path | 1 << (HASH_BITS - 1 - decided), depth + 1);
        // The tag begins at the node's bits or, at the very end of the hash, before them.
        let shift = 15 - (decided - window(spot.base));
        for (index, &slot) in bucket.slots.iter().enumerate() {
            let side = if Link(slot).bits() >> shift & 1 == 0 { &mut low } else { &mut high };
            side.slots[index] = slot;
        }

        // Half of the words that led to the bucket: they stand side by side.
        let words = 1u64 << (node.log2 - depth);
        let first = bits(hash, spot.base, node.log2) & !(words - 1);
        let all: PPtr<u8> = behind(node.at, 8 * first);
        let own = Link::new(spot.bucket, 0).0.to_le_bytes();
        if tx.bytes(all, 8 * words)?.chunks_exact(8).any(|word| word != own) {
            return Err(damaged("directory node", node.at, "its words do not agree with the depth of a bucket"));
        }
        let half = Range::new(behind(all, 4 * words), 4 * words);
        tx.intend(&[spot.bucket.range(), half])?;
        let high = Link::new(self.new_bucket(tx, &high)?, 0).0.to_le_bytes();
        *tx.write(spot.bucket)? = low;
        tx.bytes_mut(half.at, half.len)?.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&high));
        Ok(())
    }

    /// A node of twice as many words, each of the old ones twice.
    fn double<X: Transaction + ?Sized>(&self, tx: &mut X, node: &NodeAt) -> Result<()> {
        let len = 8u64 << node.log2;
        let words = tx.bytes(node.at, len)?.to_vec();
        let at = tx.alloc_bytes(2 * len, pmem::LINE)?;
        for (pair, word) in tx.bytes_mut(at, 2 * len)?.chunks_exact_mut(16).zip(words.chunks_exact(8)) {
            pair[..8].copy_from_slice(word);
            pair[8..].copy_from_slice(word);
        }
        *tx.write(node.parent)? = Link::new(at, node.log2 as u16 + 1).0;
        tx.free(node.at)
    }

    /// The bucket gets a node of its own, for the hash bits from `below` on.
    fn deepen<X: Transaction + ?Sized>(&self, tx: &mut X, spot: &Spot, bucket: &Bucket, below: u32) -> Result<()> {
        let mut moved = Bucket::new(bucket.path, 0);
        if window(below) == window(spot.base) {
            moved.slots = bucket.slots;
        } else {
            for index in (0..SLOTS).filter(|&i| bucket.slots[i] != 0) {
                let entry = Link(bucket.slots[index]).ptr(self.tag());
                let hash = self.hash(self.entry(tx, entry)?.key);
                moved.slots[index] = Link::new(entry, tag_of(hash, below)).0;
            }
        }
        let len = 8u64 << NODE_LOG2_MIN;
        let own = Link::new(spot.bucket, 0).0.to_le_bytes();
        tx.intend(&[spot.bucket.range(), spot.word.range()])?;
        let node = tx.alloc_bytes(len, pmem::LINE)?;
        tx.bytes_mut(node, len)?.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&own));
        *tx.write(spot.bucket)? = moved;
        *tx.write(spot.word)? = Link::new(node, NODE_LOG2_MIN as u16).0;
        Ok(())
    }

    /// No bits of the hash are left, or the map does not grow: another bucket, right behind the first.
    fn chain<X: Transaction + ?Sized>(&self, tx: &mut X, at: PPtr<Bucket>, bucket: &Bucket) -> Result<()> {
        let depth = bucket.depth().unwrap_or(0);
        let next = self.new_bucket(tx, &Bucket { slots: [0; SLOTS], ..*bucket })?;
        *tx.write(behind(at, 0))? = Bucket::head(Link::new(next, 0), depth);
        Ok(())
    }
}
