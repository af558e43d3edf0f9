//! Where blocks are, and where there is room for others: in DRAM, made from the image's map and kept in step with it.
//!
//! The head alone allocates. A block that a record frees rests until that record is retired: its space is in flight until then.
//! A replica retires later than its head does, so a record may give out again what still rests here: it rests no longer.
//! Live, reserved, resting and free extents are disjoint, and cover the heap.

use std::collections::{BTreeMap, BTreeSet};

use crate::failpoints::{Failpoints, Step};
use crate::size::{GRANULE, SizeCode};

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Length by first byte.
    live: BTreeMap<u64, u64>,
    /// Free extents by length, then first byte; and by first byte.
    by_len: BTreeSet<(u64, u64)>,
    by_start: BTreeMap<u64, u64>,
    /// Length, and the record that freed it, by first byte; and by record.
    resting: BTreeMap<u64, (u64, u64)>,
    by_record: BTreeSet<(u64, u64)>,
    /// Of transactions that run here, or whose records are not executed.
    reserved: BTreeMap<u64, u64>,
    pub(crate) failpoints: Failpoints,
}

impl Blocks {
    /// Nothing but room.
    pub(crate) fn empty(heap: std::ops::Range<u64>) -> Self {
        let mut blocks = Self::default();
        blocks.insert_free(heap.start, heap.end - heap.start);
        blocks
    }

    /// The block that a byte lies in: where it begins, and its length.
    pub(crate) fn find(&self, offset: u64) -> Option<(u64, u64)> {
        let (&start, &len) = self.live.range(..=offset).next_back()?;
        (offset - start < len).then_some((start, len))
    }

    /// The same of an extent that is reserved.
    pub(crate) fn find_reserved(&self, offset: u64) -> Option<u64> {
        let (&start, &len) = self.reserved.range(..=offset).next_back()?;
        (offset - start < len).then_some(start)
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.live.iter().map(|(&start, &len)| (start, len))
    }

    /// Takes an extent for a new block out of what is free.
    pub(crate) fn reserve(&mut self, len: u64, align: u64) -> Option<(u64, u64)> {
        let len = SizeCode::of(len)?.bytes();
        let align = align.max(GRANULE);
        let fits = |&&(free, start): &&(u64, u64)| {
            let skip = start.next_multiple_of(align) - start;
            free >= skip.saturating_add(len)
        };
        let &(_, start) = self.by_len.range((len, 0)..).find(fits)?;
        let start = start.next_multiple_of(align);
        self.carve(start, len);
        self.reserved.insert(start, len);
        Some((start, len))
    }

    /// Gives back what [`reserve`](Self::reserve) gave.
    pub(crate) fn unreserve(&mut self, start: u64) {
        if let Some(len) = self.reserved.remove(&start) {
            self.insert_free(start, len);
        }
    }

    /// A record makes a block, which was reserved here, or not.
    pub(crate) fn set_live(&mut self, start: u64, len: u64) {
        self.reserved.remove(&start);
        self.wake(start, len);
        self.carve(start, len);
        self.live.insert(start, len);
    }

    /// Record `n` frees a block.
    pub(crate) fn set_free(&mut self, n: u64, start: u64) {
        if let Some(len) = self.live.remove(&start) {
            self.add_resting(n, start, len);
        }
    }

    /// Records through here are retired.
    pub(crate) fn release(&mut self, through: u64) {
        while let Some(&(n, start)) = self.by_record.first().filter(|(n, _)| *n <= through) {
            self.by_record.remove(&(n, start));
            if let Some((len, _)) = self.resting.remove(&start) {
                self.insert_free(start, len);
            }
        }
    }

    fn add_resting(&mut self, n: u64, start: u64, len: u64) {
        if len > 0 {
            self.resting.insert(start, (len, n));
            self.by_record.insert((n, start));
        }
    }

    /// What of it rests does so no longer.
    fn wake(&mut self, start: u64, len: u64) {
        if self.failpoints.skips(Step::WakeResting) {
            return;
        }
        let end = start + len;
        while let Some((&first, &(room, n))) = self.resting.range(..end).next_back()
            && first + room > start
        {
            self.resting.remove(&first);
            self.by_record.remove(&(n, first));
            self.add_resting(n, first, start.saturating_sub(first));
            self.add_resting(n, end, (first + room).saturating_sub(end));
        }
    }

    fn insert_free(&mut self, mut start: u64, mut len: u64) {
        if let Some((&before, &free)) = self.by_start.range(..start).next_back()
            && before + free == start
        {
            self.remove_free(before, free);
            (start, len) = (before, free + len);
        }
        if let Some(&free) = self.by_start.get(&(start + len)) {
            self.remove_free(start + len, free);
            len += free;
        }
        self.add_free(start, len);
    }

    fn add_free(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_len.insert((len, start));
        }
    }

    fn remove_free(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }

    /// What of it is free is so no longer.
    fn carve(&mut self, start: u64, len: u64) {
        let end = start + len;
        while let Some((&free, &free_len)) = self.by_start.range(..end).next_back()
            && free + free_len > start
        {
            self.remove_free(free, free_len);
            self.add_free(free, start.saturating_sub(free));
            self.add_free(end, (free + free_len).saturating_sub(end));
        }
    }
}

#[cfg(test)]
impl Blocks {
    /// Holds the extents against each other, and against what is live by the image.
    pub(crate) fn check(&self, heap: std::ops::Range<u64>, live: &[(u64, u64)]) -> Result<(), String> {
        let own: Vec<(u64, u64)> = self.live().collect();
        if own != live {
            return Err(format!("blocks {own:?} are live, and by the image {live:?}"));
        }
        let by_len: BTreeSet<(u64, u64)> = self.by_start.iter().map(|(&start, &len)| (len, start)).collect();
        let by_record: BTreeSet<(u64, u64)> = self.resting.iter().map(|(&start, &(_, n))| (n, start)).collect();
        if by_len != self.by_len || by_record != self.by_record {
            return Err(format!("its indexes differ: {self:?}"));
        }
        let resting = self.resting.iter().map(|(&start, &(len, _))| (start, len));
        let others = self.by_start.iter().chain(&self.reserved).map(|(&start, &len)| (start, len));
        let mut all: Vec<(u64, u64)> = self.live().chain(resting).chain(others).collect();
        all.sort_unstable();
        let end = all.iter().try_fold(heap.start, |end, &(start, len)| (start == end).then_some(start + len));
        if end != Some(heap.end) {
            return Err(format!("its extents overlap, or do not cover {heap:?}: {self:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_disjoint(blocks: &Blocks, heap: std::ops::Range<u64>) {
        blocks.check(heap, &blocks.live().collect::<Vec<_>>()).unwrap();
    }

    /// A replica's `release` comes after the record that uses the space again.
    #[test]
    fn what_is_live_again_is_not_given_out() {
        crate::rules::rule(Step::WakeResting, |failpoints| {
            let mut blocks = Blocks { failpoints, ..Blocks::empty(4096..4096 + 128) };
            blocks.set_live(4096, 64);
            blocks.set_free(7, 4096);
            blocks.set_live(4096, 64);
            blocks.release(7);
            let given = [64, 64].map(|len| blocks.reserve(len, 8));
            given == [Some((4160, 64)), None] && blocks.check(4096..4096 + 128, &[(4096, 64)]).is_ok()
        });
    }

    #[test]
    fn what_is_used_again_in_part_rests_in_part() {
        let heap = 0..1024;
        for (start, len) in [(256, 64), (320, 64), (448, 64), (224, 64), (480, 96), (192, 512), (256, 256)] {
            let mut blocks = Blocks::empty(heap.clone());
            blocks.set_live(256, 128);
            blocks.set_live(384, 128);
            blocks.set_free(7, 256);
            blocks.set_free(8, 384);
            blocks.set_live(start, len);
            is_disjoint(&blocks, heap.clone());
            for through in [7, 8] {
                blocks.release(through);
                is_disjoint(&blocks, heap.clone());
            }
            let mut given = 0;
            while let Some((at, room)) = blocks.reserve(32, 32) {
                assert!(at + room <= start || start + len <= at, "{at} is in {start}+{len}");
                given += room;
            }
            assert_eq!(given, 1024 - len);
        }
    }

    /// An extent that is freed again waits for the later record.
    #[test]
    fn what_is_freed_twice_rests_until_the_second_record_is_retired() {
        let mut blocks = Blocks::empty(0..64);
        for n in [7, 9] {
            blocks.set_live(0, 64);
            blocks.set_free(n, 0);
        }
        blocks.release(8);
        assert_eq!(blocks.reserve(64, 8), None);
        blocks.release(9);
        assert_eq!(blocks.reserve(64, 8), Some((0, 64)));
    }

    #[test]
    fn a_freed_block_rests_until_its_record_is_retired() {
        let mut blocks = Blocks::empty(4096..4096 + 64);
        let (start, len) = blocks.reserve(60, 8).unwrap();
        assert_eq!((start, len), (4096, 64));
        assert_eq!((blocks.find(4100), blocks.find_reserved(4100)), (None, Some(4096)));
        blocks.set_live(start, len);
        assert_eq!(blocks.find(4159), Some((4096, 64)));
        blocks.set_free(7, start);
        assert_eq!((blocks.find(4100), blocks.reserve(1, 1)), (None, None));
        blocks.release(6);
        assert_eq!(blocks.reserve(1, 1), None);
        blocks.release(7);
        assert_eq!(blocks.reserve(1, 1), Some((4096, 32)));
    }

    #[test]
    fn neighbours_become_one_again() {
        let mut blocks = Blocks::empty(0..4096);
        let taken: Vec<_> = (0..4).map(|_| blocks.reserve(1000, 8).unwrap()).collect();
        assert!(blocks.reserve(1000, 8).is_none());
        for at in [1, 3, 0, 2] {
            blocks.unreserve(taken[at].0);
        }
        assert_eq!(blocks.reserve(4096, 4096), Some((0, 4096)));
    }

    #[test]
    fn a_block_of_another_head_is_taken_from_the_middle() {
        let mut blocks = Blocks::empty(0..4096);
        blocks.set_live(1024, 64);
        blocks.set_live(1024, 64);
        let (first, _) = blocks.reserve(2048, 32).unwrap();
        assert_eq!(first, 1088);
        assert_eq!(blocks.reserve(1024, 32), Some((0, 1024)));
        assert_eq!(blocks.live().collect::<Vec<_>>(), [(1024, 64)]);
    }
}
