//! A node's bytes, read with suspicion: whatever stands there, the answer is a value or the reason why not.

use std::cmp::Ordering;

use pmem::PPtr;

use super::layout::{CHILD, HEADER, LEVELS_MAX, NODE_KIND, NodeHeader, SLOT, Slot, VALUE_LEN, head_of};
use crate::media::word;

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
    #[inline]
    pub(super) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Bad> {
        let count = self.count();
        let prefix = usize::from(self.header.prefix);
        if count == 0 {
            return Ok(Err(0));
        }
        if prefix > 0 {
            let shared = self.key(0)?.get(..prefix).ok_or("a key is shorter than the prefix")?;
            match key[..prefix.min(key.len())].cmp(shared) {
                Ordering::Less => return Ok(Err(0)),
                Ordering::Greater => return Ok(Err(count)),
                Ordering::Equal => {}
            }
        }
        let head = head_of(key, prefix);
        let slots = self.bytes.get(HEADER..HEADER + SLOT * count).ok_or("no such slot")?;
        let (mut low, mut high) = (0, count);
        while low < high {
            let mid = (low + high) / 2;
            let slot: Slot = pmem::from_bytes(&slots[SLOT * mid..][..SLOT]).ok_or("no such slot")?;
            let order = match slot.head.cmp(&head) {
                Ordering::Equal => self.split(slot)?.0.cmp(key),
                order => order,
            };
            match order {
                Ordering::Less => low = mid + 1,
                Ordering::Greater => high = mid,
                Ordering::Equal => return Ok(Ok(mid)),
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
