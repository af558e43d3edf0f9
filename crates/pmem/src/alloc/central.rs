//! What threads share when their caches run dry: free chunks, and spans with free blocks.

use std::collections::BTreeMap;

/// Names a chunk: extent in the upper half, number in it below.
pub(crate) type ChunkId = u64;

pub(crate) fn chunk_id(extent: usize, chunk: u32) -> ChunkId {
    (extent as u64) << 32 | u64::from(chunk)
}

#[inline]
pub(crate) fn extent_of(id: ChunkId) -> usize {
    (id >> 32) as usize
}

#[inline]
pub(crate) fn number_of(id: ChunkId) -> u32 {
    id as u32
}

/// Guarded by one lock, taken once per span, not per block.
#[derive(Debug, Default)]
pub(crate) struct Central {
    /// By class: spans that had free blocks when they were put here. An entry may be stale; the chunk's owner word tells.
    pub(crate) partial: Vec<Vec<ChunkId>>,
    free: FreeRuns,
    /// Chunks before this one, by extent, have been looked at.
    pub(crate) cursor: (usize, u32),
}

impl Central {
    pub(super) fn new(classes: usize) -> Self {
        Self { partial: vec![Vec::new(); classes], ..Self::default() }
    }

    pub(crate) fn free_runs(&mut self) -> &mut FreeRuns {
        &mut self.free
    }
}

/// Runs of adjacent free chunks. Lowest first, so that the end of the pool tends to become free.
#[derive(Debug, Default)]
pub(super) struct FreeRuns(BTreeMap<ChunkId, u32>);

impl FreeRuns {
    /// Adds `len` free chunks, joining neighbours.
    pub(crate) fn add(&mut self, start: ChunkId, len: u32) {
        let (mut start, mut len) = (start, len);
        if let Some((&before, &n)) = self.0.range(..start).next_back()
            && before + u64::from(n) == start
        {
            self.0.remove(&before);
            (start, len) = (before, n + len);
        }
        if let Some(n) = self.0.remove(&(start + u64::from(len))) {
            len += n;
        }
        self.0.insert(start, len);
    }

    /// Takes `len` adjacent chunks.
    pub(super) fn take(&mut self, len: u32) -> Option<ChunkId> {
        let (&start, &n) = self.0.iter().find(|&(_, &n)| n >= len)?;
        self.0.remove(&start);
        if n > len {
            self.0.insert(start + u64::from(len), n - len);
        }
        Some(start)
    }

    /// Takes away the run that ends just before `end`; returns its length.
    pub(super) fn cut_before(&mut self, end: ChunkId) -> u32 {
        match self.0.range(..end).next_back() {
            Some((&start, &n)) if start + u64::from(n) == end => {
                self.0.remove(&start);
                n
            }
            _ => 0,
        }
    }

    #[cfg(test)]
    fn chunks(&self) -> u64 {
        self.0.values().map(|&n| u64::from(n)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_split_and_are_cut() {
        let mut runs = FreeRuns::default();
        for chunk in [5, 3, 4, 9, 0] {
            runs.add(chunk, 1);
        }
        assert_eq!(runs.chunks(), 5);
        assert_eq!(runs.take(3), Some(3));
        assert_eq!(runs.take(2), None);
        runs.add(3, 3);
        assert_eq!(runs.take(2), Some(3));
        assert_eq!(runs.cut_before(10), 1);
        assert_eq!(runs.cut_before(6), 1);
        assert_eq!(runs.take(1), Some(0));
        assert_eq!(runs.chunks(), 0);
        runs.add(chunk_id(0, u32::MAX), 1);
        runs.add(chunk_id(1, 5), 2);
        assert_eq!(runs.take(2), Some(chunk_id(1, 5)));
    }
}
