//! Buckets that are made with their map, side by side where the heap has room for that. A look-up asks for its bucket by the hash alone then, while the directory is still
//! asked where it is: of two misses that came one behind the other, one remains (a tenth of a look-up among 100 000 pairs).
//!
//! It is a hint and nothing else: the directory says where a bucket is, and whatever the hint says costs a line at most that was not needed. So a map without
//! it is as whole as one with it, and nothing has to be on media before anything else.

use std::ops::RangeInclusive;

use pmem::{LINE, PPtr};
use tx::{Result, Transaction, Typed};

use super::layout::{Bucket, HASH_BITS, HashRoot};
use crate::media::Link;

/// Directory bits of maps whose buckets are made with them. A smaller directory stays in a near cache; a larger one's would be too much for one transaction.
const BITS: RangeInclusive<u32> = 10..=17;
/// Bytes of a hint.
const HINT: usize = 5;
/// Of so many buckets, all but one are where the hint says: else there is none.
const MISSED: usize = 8;

/// Makes the buckets of a new map, whose pages have nothing yet, and the hint that leads there.
pub(super) fn make<X: Transaction + ?Sized>(tx: &mut X, root: &mut HashRoot) -> Result<()> {
    let (page_bits, slot_bits) = (u32::from(root.page_bits), u32::from(root.slot_bits));
    let total = page_bits + slot_bits;
    if !BITS.contains(&total) {
        return Ok(());
    }
    let mut buckets_at = Vec::with_capacity(1 << total);
    for _ in 0..1 << total {
        buckets_at.push(tx.alloc_bytes(size_of::<Bucket>() as u64, LINE)?.cast::<Bucket>());
    }
    buckets_at.sort_unstable_by_key(|at| at.offset());
    for (&at, index) in buckets_at.iter().zip(0u64..) {
        *tx.write(at)? = Bucket::new(index << (HASH_BITS - total), 0);
    }
    for (&page, buckets) in root.pages.iter().zip(buckets_at.chunks(1 << slot_bits)) {
        let words = tx.bytes_mut(PPtr::new(buckets[0].tag(), page), 8 << slot_bits)?;
        for (word, &bucket) in words.chunks_exact_mut(8).zip(buckets) {
            word.copy_from_slice(&Link::new(bucket, 0).0.to_le_bytes());
        }
    }
    root.first_bucket = hint(&buckets_at);
    Ok(())
}

fn hint(buckets_at: &[PPtr<Bucket>]) -> [u8; HINT] {
    let first = buckets_at[0].offset();
    let hit = buckets_at.iter().zip(0..).filter(|(at, index)| at.offset() == expected(first, *index)).count();
    let fits = first.is_multiple_of(LINE) && first / LINE < 1 << (8 * HINT);
    match fits && buckets_at.len() - hit <= buckets_at.len() / MISSED {
        true => first_bytes((first / LINE).to_le_bytes()),
        false => [0; HINT],
    }
}

fn first_bytes(bytes: [u8; 8]) -> [u8; HINT] {
    let [a, b, c, d, e, ..] = bytes;
    [a, b, c, d, e]
}

/// What a root's hint says of the first bucket's place; 0 if nothing. Any bytes will do.
pub(super) fn first(root: &HashRoot) -> u64 {
    let [a, b, c, d, e] = root.first_bucket;
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]) * LINE
}

/// Where the bucket of a directory word is, if it is where it was made.
#[inline]
pub(super) fn expected(first: u64, index: u64) -> u64 {
    first + index * size_of::<Bucket>() as u64
}
