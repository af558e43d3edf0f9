//! What a transaction has overwritten unseen, in DRAM until its commit: the bytes, and which they are of ([`staged`](crate::staged)).

use tx::Result;

use crate::record::{Bytes, overlap};

/// Shortest run that is staged: where it is whole lines, and anywhere. Below, the lines are better in the cache.
const LEAST: (u64, u64) = (pmem::LINE, 256);
/// Longest one: the copy to DRAM must not cost more than the misses that it saves.
const LONGEST: u64 = 4096;
/// Most bytes of a transaction: they stay in a near cache until they are applied.
const MOST: usize = 16 << 10;
/// Images whose memory is kept, and bytes of it.
const SPARE: usize = 16;
const SPARE_BYTES: usize = 16 << 10;

/// No place.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Run {
    range: Bytes,
    /// Where its bytes are.
    at: u32,
}

/// What a transaction has staged: runs that do not overlap.
#[derive(Clone, Default)]
pub(crate) struct Stage {
    runs: Vec<Run>,
    bytes: Vec<u8>,
}

impl Stage {
    /// Whether bytes of this place and length are staged at all.
    #[inline]
    pub(crate) fn takes((offset, len): Bytes) -> bool {
        let least = if (offset | len).is_multiple_of(pmem::LINE) { LEAST.0 } else { LEAST.1 };
        (least..=LONGEST).contains(&len)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether a run lies in the way of this one: not where it is just that.
    #[inline]
    pub(crate) fn is_barred(&self, range: Bytes) -> bool {
        self.runs.iter().any(|run| run.range != range && overlap(run.range, range))
    }

    /// Stages a run, with which none overlaps, `again` if it may be staged already; false if there is no room.
    #[inline]
    pub(crate) fn put(&mut self, offset: u64, data: &[u8], again: bool) -> bool {
        let range = (offset, data.len() as u64);
        if again && let Some(run) = self.runs.iter().find(|run| run.range == range) {
            self.bytes[run.at as usize..][..data.len()].copy_from_slice(data);
            return true;
        }
        let at = self.bytes.len();
        if at + data.len() > MOST {
            return false;
        }
        self.bytes.extend_from_slice(data);
        self.runs.push(Run { range, at: at as u32 });
        true
    }

    /// Puts the runs in order.
    #[inline]
    pub(crate) fn order(&mut self) {
        if self.runs.len() > 1 {
            self.runs.sort_unstable_by_key(|run| run.range);
        }
    }

    /// The range of each run.
    #[inline]
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Bytes> {
        self.runs.iter().map(|run| run.range)
    }

    /// Each run with its bytes.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Bytes, &[u8])> {
        self.runs.iter().map(|run| (run.range, &self.bytes[run.at as usize..][..run.range.1 as usize]))
    }

    /// Keeps the runs of which `keep` says so; it gets the range and the bytes.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Bytes, &[u8]) -> Result<bool>) -> Result<()> {
        let (mut outcome, bytes) = (Ok(()), &self.bytes);
        self.runs.retain(|run| {
            let kept = keep(run.range, &bytes[run.at as usize..][..run.range.1 as usize]);
            kept.unwrap_or_else(|e| {
                outcome = Err(e);
                true
            })
        });
        if self.runs.is_empty() {
            self.bytes.clear();
        }
        outcome
    }

    /// Where the bytes of this very range are, in what [`take`](Self::take) gives; `NOWHERE` if it is none that is staged. The runs are in order.
    #[inline]
    pub(crate) fn index_of(&self, range: &Bytes) -> u32 {
        if self.runs.is_empty() {
            return NOWHERE;
        }
        self.runs.binary_search_by_key(range, |run| run.range).map_or(NOWHERE, |at| self.runs[at].at)
    }

    #[inline]
    pub(crate) fn holds(&self, range: &Bytes) -> bool {
        self.index_of(range) != NOWHERE
    }

    /// The bytes of this very range, if it is staged.
    #[inline]
    pub(crate) fn find(&self, range: &Bytes) -> Option<&[u8]> {
        match self.index_of(range) {
            NOWHERE => None,
            at => self.bytes.get(at as usize..)?.get(..range.1 as usize),
        }
    }

    /// Gives the bytes away; which ranges they were of is known until [`clear`](Self::clear).
    #[inline]
    pub(crate) fn take(&mut self, spare: &mut Vec<Vec<u8>>) -> Vec<u8> {
        if self.runs.is_empty() {
            return Vec::new();
        }
        std::mem::replace(&mut self.bytes, spare.pop().unwrap_or_default())
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.bytes.clear();
    }
}

/// An image is void: its memory serves the next one.
#[inline]
pub(crate) fn give_back(spare: &mut Vec<Vec<u8>>, mut image: Vec<u8>) {
    let kept: usize = spare.iter().map(Vec::capacity).sum();
    if image.capacity() > 0 && spare.len() < SPARE && kept + image.capacity() <= SPARE_BYTES {
        image.clear();
        spare.push(image);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_and_given_away_once() {
        let (mut stage, mut spare) = (Stage::default(), Vec::new());
        assert!(stage.put(128, &[2; 64], false) && stage.put(0, &[1; 64], false));
        assert!(stage.put(0, &[3; 64], true));
        stage.runs.sort_unstable_by_key(|run| run.range);
        assert_eq!(stage.find(&(0, 64)), Some(&[3; 64][..]));
        assert_eq!(
            (stage.index_of(&(128, 64)), stage.index_of(&(0, 65)), stage.index_of(&(64, 64))),
            (0, NOWHERE, NOWHERE)
        );
        assert!(stage.is_barred((32, 64)) && !stage.is_barred((0, 64)) && !stage.is_barred((64, 64)));
        let image = stage.take(&mut spare);
        assert_eq!((image.len(), stage.find(&(0, 64)), stage.holds(&(0, 64))), (128, None, true));
        stage.clear();
        assert!(stage.is_empty() && stage.take(&mut spare).is_empty());
        for _ in 0..2 * SPARE {
            give_back(&mut spare, image.clone());
        }
        assert_eq!(spare.len(), SPARE);
        assert!((0..).find(|&n| !stage.put(n * 4096, &[1; 4096], false)) == Some((MOST / 4096) as u64));
    }

    #[test]
    fn short_and_very_long_runs_are_not_staged() {
        let taken = [(0, 64), (64, 128), (8, 256), (8, 4096), (0, 4096), (640, 1000)];
        assert!(taken.into_iter().all(Stage::takes));
        assert!(![(0, 0), (8, 64), (0, 32), (0, 100), (0, 4097), (8, 255)].into_iter().any(Stage::takes));
    }
}
