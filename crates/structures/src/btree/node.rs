//! A node's bytes, read with suspicion: whatever stands there, the answer is a value or the reason why not.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use pmem::PPtr;

use super::layout::{CHILD, HEADER, LEVELS_MAX, NODE_KIND, NodeHeader, SLOT, Slot, VALUE_LEN, head_of};
use crate::media::word;

/// Nodes up to this many bytes are asked for whole before they are searched: then the record does not have to wait for its slot.
const SMALL: u64 = 1536;
/// Of larger ones this share, where most slots of short keys are.
const SLOTS_OF: u64 = 6;

/// What is wrong with a node.
pub(super) type Bad = &'static str;

/// What all nodes of a tree have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a leaf.
    pub(super) leaf: u32,
    /// Bytes of any other node.
    pub(super) inner: u32,
    /// Longest value that is kept in its leaf.
    pub(super) inline_max: u32,
}

impl Shape {
    /// Bytes of a node; 0 for a level that cannot be.
    #[inline]
    pub(super) fn capacity(&self, level: u16) -> usize {
        match usize::from(level) {
            0 => self.leaf as usize,
            level if level < LEVELS_MAX => self.inner as usize,
            _ => 0,
        }
    }

    /// First bytes of a node that are asked for before it is searched.
    #[inline]
    pub(super) fn searched(&self, level: u16) -> u64 {
        match self.capacity(level) as u64 {
            small if small <= SMALL => small,
            large => large / SLOTS_OF,
        }
    }
}

/// A record of a leaf, behind its key.
#[derive(Clone, Copy)]
pub(super) enum Value<'t> {
    /// The value.
    Inline(&'t [u8]),
    /// Where it is.
    Block { at: PPtr<u8>, len: u64 },
}

/// A node whose header is consistent.
#[derive(Clone, Copy)]
pub(super) struct Node<'t> {
    pub(super) bytes: &'t [u8],
    pub(super) header: NodeHeader,
    pub(super) shape: Shape,
}

impl<'t> Node<'t> {
    #[inline]
    pub(super) fn parse(block: &'t [u8], shape: Shape) -> Result<Self, Bad> {
        let header: NodeHeader =
            block.get(..HEADER).and_then(pmem::from_bytes).ok_or("shorter than a node's header")?;
        if header.kind != NODE_KIND {
            return Err("no node of a B+tree");
        }
        let bytes = block.get(..shape.capacity(header.level)).ok_or("its block is too short")?;
        if HEADER + SLOT * usize::from(header.count) > header.heap.into() || usize::from(header.heap) > bytes.len() {
            return Err("its records overlap its slots");
        }
        if (header.level == 0) != header.first.is_null() {
            return Err("its leftmost child does not go with its level");
        }
        Ok(Self { bytes, header, shape })
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.header.count.into()
    }

    #[inline]
    pub(super) fn slot(&self, index: usize) -> Result<Slot, Bad> {
        let bytes = self.bytes.get(HEADER + SLOT * index..).and_then(|from| from.get(..SLOT));
        bytes.filter(|_| index < self.count()).and_then(pmem::from_bytes).ok_or("no such slot")
    }

    #[inline]
    pub(super) fn key(&self, index: usize) -> Result<&'t [u8], Bad> {
        Ok(self.split(self.slot(index)?)?.0)
    }

    /// The record's key, and what belongs to it.
    #[inline]
    pub(super) fn record(&self, index: usize) -> Result<(&'t [u8], &'t [u8]), Bad> {
        let (key, rest) = self.split(self.slot(index)?)?;
        let tail = if self.header.level > 0 {
            rest.get(..CHILD)
        } else {
            let len = rest.first_chunk().map(|len| u32::from_le_bytes(*len)).ok_or("a record lies outside")?;
            let kept = if len <= self.shape.inline_max { len as usize } else { size_of::<PPtr<u8>>() };
            rest.get(..VALUE_LEN + kept)
        };
        Ok((key, tail.ok_or("a record lies outside")?))
    }

    /// The value of a leaf's record.
    #[inline]
    pub(super) fn value(&self, index: usize) -> Result<Value<'t>, Bad> {
        let tail = self.record(index)?.1;
        let (len, kept) = tail.split_first_chunk().ok_or("a record lies outside")?;
        let len = u32::from_le_bytes(*len);
        Ok(match word(kept, 0) {
            Some(at) if len > self.shape.inline_max => Value::Block { at: PPtr::from_raw(at), len: len.into() },
            _ => Value::Inline(kept),
        })
    }

    /// Child `index` of an inner node; there is one more than there are records.
    #[inline]
    pub(super) fn child(&self, index: usize) -> Result<PPtr<u8>, Bad> {
        match index.checked_sub(1) {
            None => Ok(self.header.first),
            Some(index) => word(self.record(index)?.1, 0).map(PPtr::from_raw).ok_or("a record lies outside"),
        }
    }

    #[inline]
    fn split(&self, slot: Slot) -> Result<(&'t [u8], &'t [u8]), Bad> {
        let record = self.bytes.get(slot.at.into()..).unwrap_or_default();
        let split = record.split_at_checked(slot.key_len.into());
        split.filter(|_| slot.at >= self.header.heap).ok_or("a record lies outside")
    }

    /// Where `key` is, or where it would be.
    ///
    /// Heads are compared as if the key had the prefix, without a branch that would be guessed. Only if it is not found there, its prefix is looked at: a leaf that has
    /// the key is asked for a single record.
    #[inline]
    pub(super) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Bad> {
        let count = self.count();
        let prefix = usize::from(self.header.prefix);
        if count == 0 {
            return Ok(Err(0));
        }
        let head = head_of(key, prefix);
        let slots = self.bytes.get(HEADER..HEADER + SLOT * count).ok_or("no such slot")?.as_chunks::<SLOT>().0;
        let mut low = first_from(slots, head);
        let mut high = count;
        // Keys with this very head, of which there seldom is a second: the first decides, or where among them is found by halves.
        let mut mid = low;
        while low < high {
            let slot: Slot = pmem::from_bytes(&slots[mid]).ok_or("no such slot")?;
            let order = match slot.head.cmp(&head) {
                Ordering::Equal => self.split(slot)?.0.cmp(key),
                order => order,
            };
            match order {
                Ordering::Less => low = mid + 1,
                Ordering::Greater => high = mid,
                Ordering::Equal => return Ok(Ok(mid)),
            }
            mid = (low + high) / 2;
        }
        if prefix > 0 {
            // The record before is the one that an inner node's child is taken from.
            let other = self.key(low.saturating_sub(1))?;
            let shared = other.get(..prefix).ok_or("a key is shorter than the prefix")?;
            match key[..prefix.min(key.len())].cmp(shared) {
                Ordering::Less => return Ok(Err(0)),
                Ordering::Greater => return Ok(Err(count)),
                Ordering::Equal => {}
            }
        }
        Ok(Err(low))
    }

    /// Which child of an inner node has `key`.
    #[inline]
    pub(super) fn child_index(&self, key: &[u8]) -> Result<usize, Bad> {
        Ok(match self.search(key)? {
            Ok(index) => index + 1,
            Err(index) => index,
        })
    }
}

/// The first of at least one slot whose head is not below this one, or how many there are: in order or not, none outside.
#[inline]
fn first_from(slots: &[[u8; SLOT]], head: u32) -> usize {
    let below = |at: usize| {
        let [a, b, c, d, ..] = slots[at];
        u32::from_ne_bytes([a, b, c, d]) < head
    };
    let (mut from, mut len) = (0, slots.len());
    while len > 1 {
        let half = len / 2;
        from = select_unpredictable(below(from + half), from + half, from);
        len -= half;
    }
    from + usize::from(below(from))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::image::{Image, Record};
    use super::*;

    /// As many as wanted, from the seed on (xorshift).
    fn numbers(mut seed: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        })
    }

    /// Keys with a common beginning or almost all with one, of few letters: heads are shared, end early, and lie on both sides of a prefix.
    fn key(numbers: &mut impl Iterator<Item = u64>, outsiders: bool) -> Vec<u8> {
        let mut next = |of: u64| numbers.next().unwrap_or_default() % of;
        let mut key = if outsiders && next(20) == 0 { b"us".to_vec() } else { b"user-".to_vec() };
        for _ in 0..next(9) {
            key.push([0, b'a', b'b', 0xff][next(4) as usize]);
        }
        key
    }

    #[test]
    fn a_search_finds_what_counting_finds() {
        for seed in 1..=400 {
            let mut numbers = numbers(seed * 0x9e37_79b9);
            let outsiders = seed % 3 == 0;
            let keys: BTreeSet<_> = (0..seed % 60).map(|_| key(&mut numbers, outsiders)).collect();
            let level = (seed % 2) as u16;
            let shape = Shape { leaf: 4096, inner: 4096, inline_max: 8 };
            let first = if level == 0 { PPtr::NULL } else { PPtr::new(1, 64) };
            let records: Vec<Record<'_>> = keys.iter().map(|key| (&key[..], &[0; 8][..])).collect();
            let image = Image::build(shape, level, first, &records).unwrap();
            let strangers = [&b""[..], b"u", b"user", b"user-", b"usf", b"t", b"v"].map(<[u8]>::to_vec);
            let others: Vec<_> = (0..100).map(|_| key(&mut numbers, true)).chain(strangers).collect();
            for key in keys.iter().chain(&others) {
                let below = keys.iter().filter(|other| *other < key).count();
                let expected = if keys.contains(key) { Ok(below) } else { Err(below) };
                assert_eq!(image.node().search(key), Ok(expected), "seed {seed}, {key:?} in {keys:?}");
            }
        }
    }

    #[test]
    fn what_is_out_of_order_is_searched_to_an_end() {
        let shape = Shape { leaf: 1024, inner: 1024, inline_max: 8 };
        let names: Vec<_> = (0..30).map(|n| format!("key{n:02}")).collect();
        let records: Vec<Record<'_>> = names.iter().map(|name| (name.as_bytes(), &[0; 8][..])).collect();
        let whole = Image::build(shape, 0, PPtr::NULL, &records).unwrap();
        let mut numbers = numbers(7);
        for _ in 0..2000 {
            let mut bytes = whole.bytes().to_vec();
            for _ in 0..3 {
                let at = 4 + numbers.next().unwrap_or_default() as usize % (HEADER + 30 * SLOT - 4);
                bytes[at] = numbers.next().unwrap_or_default() as u8;
            }
            let Ok(node) = Node::parse(&bytes, shape) else { continue };
            for name in ["", "key00", "key17", "key29", "zebra"] {
                if let Ok(Ok(at) | Err(at)) = node.search(name.as_bytes()) {
                    assert!(at <= node.count());
                }
            }
        }
    }
}
