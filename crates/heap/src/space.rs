//! Ranges of the pool, one behind the other, as one line of bytes: main copy, backup and zone table each are one, so that byte n of one belongs to byte n of
//! the other, however each of them came to its extents.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Release},
};

use pmem::REGIONS_MAX;

/// Extents in the order they were added. Only the last grows or shrinks.
pub(crate) struct Space {
    extents: [OnceLock<Extent>; REGIONS_MAX],
    count: AtomicUsize,
}

struct Extent {
    start: u64,
    end: AtomicU64,
    /// Where in the line it begins.
    linear: u64,
}

impl Space {
    pub(crate) fn new() -> Self {
        Self { extents: [const { OnceLock::new() }; REGIONS_MAX], count: AtomicUsize::new(0) }
    }

    /// Takes over what the extents are now: the known ones, the last perhaps of another length, and new ones. Calls are serialised by
    /// the caller.
    pub(crate) fn update(&self, extents: impl Iterator<Item = std::ops::Range<u64>>) {
        let mut linear = 0;
        for (at, range) in extents.take(REGIONS_MAX).enumerate() {
            let extent =
                self.extents[at].get_or_init(|| Extent { start: range.start, end: AtomicU64::new(range.end), linear });
            extent.end.store(range.end, Release);
            linear += range.end - range.start;
            if at >= self.count.load(Acquire) {
                self.count.store(at + 1, Release);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.extents[..self.count.load(Acquire)].iter().filter_map(OnceLock::get)
    }

    /// Bytes in all extents.
    pub(crate) fn len(&self) -> u64 {
        self.iter().last().map_or(0, |e| e.linear + e.end.load(Acquire) - e.start)
    }

    /// Where the byte at `offset` of the pool is in the line.
    #[inline]
    pub(crate) fn linear(&self, offset: u64) -> Option<u64> {
        let extent = self.iter().find(|e| e.start <= offset && offset < e.end.load(Acquire))?;
        Some(extent.linear + offset - extent.start)
    }

    /// Where entry `index` of a table of entries of `stride` bytes is. No entry crosses the end of an extent.
    pub(crate) fn entry(&self, index: u64, stride: u64) -> Option<u64> {
        let mut left = index;
        for extent in self.iter() {
            let entries = (extent.end.load(Acquire) - extent.start) / stride;
            if left < entries {
                return Some(extent.start + left * stride);
            }
            left -= entries;
        }
        None
    }

    /// Entries of `stride` bytes that a table has room for.
    pub(crate) fn entries(&self, stride: u64) -> u64 {
        self.iter().map(|e| (e.end.load(Acquire) - e.start) / stride).sum()
    }

    /// Where byte `at` of the line is in the pool, and how many follow it in one piece.
    #[inline]
    pub(crate) fn offset(&self, at: u64) -> Option<(u64, u64)> {
        let extent = self.iter().find(|e| at >= e.linear && at - e.linear < e.end.load(Acquire) - e.start)?;
        let offset = extent.start + at - extent.linear;
        Some((offset, extent.end.load(Acquire) - offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_extents_grows_at_its_end() {
        let space = Space::new();
        space.update([100..200, 50..60].into_iter());
        assert_eq!(
            (space.len(), space.linear(199), space.linear(55), space.linear(60)),
            (110, Some(99), Some(105), None)
        );
        space.update([100..200, 50..70, 300..310].into_iter());
        assert_eq!((space.len(), space.linear(60), space.linear(300)), (130, Some(110), Some(120)));
        assert_eq!(space.offset(99), Some((199, 1)));
        assert_eq!(space.offset(100), Some((50, 20)));
        assert_eq!(space.offset(129), Some((309, 1)));
        assert_eq!(space.offset(130), None);
        assert_eq!(
            (space.entries(15), space.entry(5, 15), space.entry(6, 15), space.entry(7, 15)),
            (7, Some(175), Some(50), None)
        );
    }
}
