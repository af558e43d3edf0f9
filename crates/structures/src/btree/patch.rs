//! The common case: a record comes or goes and the rest of its node stays where it is.

use pmem::{PPtr, bytes_of};
use tx::{Range, Result, Transaction};

use super::layout::{COUNTS, HEADER, NodeHeader, SLOT, Slot, common, head_of};
use super::node::{Bad, Node};
use crate::media::behind;

/// What changes in a node's bytes, apart from a new record's own.
pub(super) struct Patch {
    header: NodeHeader,
    index: usize,
    /// Bytes of the node.
    bytes: usize,
    new: bool,
}

impl Patch {
    /// A record more, `None` if there is no room, or slots would have to change.
    #[inline]
    pub(super) fn insertion(node: &Node<'_>, index: usize, key: &[u8], tail: usize) -> Result<Option<Self>, Bad> {
        let (mut header, len) = (node.header, key.len() + tail);
        let free = usize::from(header.heap) - HEADER - SLOT * node.count();
        if node.count() == 0 || free < SLOT + len || common(node.key(0)?, key) < header.prefix.into() {
            return Ok(None);
        }
        header.count += 1;
        header.heap -= len as u16;
        Ok(Some(Self { header, index, bytes: node.bytes.len(), new: true }))
    }

    /// A record less; `None` if it was the only one.
    #[inline]
    pub(super) fn removal(node: &Node<'_>, index: usize) -> Result<Option<Self>, Bad> {
        let (key, tail) = node.record(index)?;
        let (mut header, freed) = (node.header, (key.len() + tail.len()) as u16);
        if node.count() == 1 {
            return Ok(None);
        }
        header.count -= 1;
        if node.slot(index)?.at == header.heap {
            header.heap += freed;
        } else {
            header.garbage = header.garbage.checked_add(freed).ok_or("more bytes are unused than there are")?;
        }
        Ok(Some(Self { header, index, bytes: node.bytes.len(), new: false }))
    }

    /// Bytes in use afterwards.
    pub(super) fn used(&self) -> usize {
        let records = self.bytes - usize::from(self.header.heap);
        HEADER + SLOT * usize::from(self.header.count) + records.saturating_sub(self.header.garbage.into())
    }

    /// What changes of the node at `at`: counts, slots, and a new record of that length.
    fn ranges(&self, at: PPtr<u8>, record: usize) -> [Range; 3] {
        let part = |from: usize, to: usize| Range::new(behind(at, from as u64), (to - from) as u64);
        // All slots from the record's on, in the longer of both states.
        let last = usize::from(self.header.count) + usize::from(!self.new);
        let heap = usize::from(self.header.heap);
        [
            part(COUNTS.start, COUNTS.end),
            part(HEADER + SLOT * self.index, HEADER + SLOT * last),
            part(heap, heap + record),
        ]
    }

    /// The same, to be declared ahead; nothing of a record that goes.
    pub(super) fn declare(&self, at: PPtr<u8>, record: usize, ranges: &mut Vec<Range>) {
        let all = self.ranges(at, record);
        ranges.extend_from_slice(if self.new { &all } else { &all[..2] });
    }

    /// Changes the node at `at`; `key` and `tail` are those of a new record.
    pub(super) fn apply<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        at: PPtr<u8>,
        key: &[u8],
        tail: &[u8],
    ) -> Result<()> {
        let ranges @ [counts, slots, record] = self.ranges(at, key.len() + tail.len());
        tx.intend(if self.new { &ranges } else { &ranges[..2] })?;

        let bytes = tx.bytes_mut(slots.at, slots.len)?;
        if self.new {
            bytes.copy_within(..bytes.len() - SLOT, SLOT);
            let head = head_of(key, self.header.prefix.into());
            let slot = Slot { head, at: self.header.heap, key_len: key.len() as u16 };
            bytes[..SLOT].copy_from_slice(bytes_of(&slot));
            let (first, second) = tx.bytes_mut(record.at, record.len)?.split_at_mut(key.len());
            first.copy_from_slice(key);
            second.copy_from_slice(tail);
        } else {
            bytes.copy_within(SLOT.., 0);
        }
        tx.bytes_mut(counts.at, counts.len)?.copy_from_slice(&bytes_of(&self.header)[COUNTS]);
        Ok(())
    }
}
