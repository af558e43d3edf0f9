//! Bytes that overwrite an object and stay in DRAM until the commit.
//!
//! [`put_bytes`](tx::Transaction::put_bytes) says what an object holds from now on without asking for what it held. So nothing of it has to be in the cache: the new
//! bytes are kept beside, the commit checksums them there, and stores them past the cache once nothing atomic is left to do in front of the barrier. Settling stores them
//! past the cache a second time, into the backup. With policy `none` there is neither checksum nor backup, and an abort, which takes nothing back, stores them. With
//! `undo` nothing is staged: the old bytes are read as they are kept, so their lines are in the cache.
//!
//! Until then main holds what it held. So
//!
//! * what is staged of an object goes to main before the object is used in any other way: read, changed, declared, freed ([`Core::unstage`]). References are
//!   handed out behind that only, and staging takes the transaction `&mut`: no reference sees its bytes change;
//! * a run that is joined with other writes goes to main, too ([`Core::unstage_joined`]): a record has one checksum for each range, and the backup one store;
//! * new objects, short runs and very long ones are never staged: `bytes_mut` serves them;
//! * once the transaction is committed, the bytes are the log's, used by who holds its lock, for one copy. Whoever copies a second time takes main.

use pmem::ChecksumKey;
use tx::Result;

use crate::core::Core;
use crate::failpoints::Step;
use crate::options::Policy;
use crate::raw::{self, Claim};
use crate::record::{Bytes, is_short};
use crate::state::Set;

/// Shortest run that is staged: where it is whole lines, and anywhere. Below, the lines are better in the cache.
const LEAST: (u64, u64) = (pmem::LINE, 256);
/// Longest one: the copy to DRAM must not cost more than the misses that it saves.
const LONGEST: u64 = 4096;
/// Most bytes of a transaction: they stay in a near cache until they are settled.
const MOST: usize = 16 << 10;
/// Images whose memory is kept, and bytes of it.
const SPARE: usize = 16;
const SPARE_BYTES: usize = 16 << 10;

/// No place.
pub(crate) const NOWHERE: u32 = u32::MAX;

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

fn overlap(a: Bytes, b: Bytes) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
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

    /// Keeps the runs of which `keep` says so; it gets the range and the bytes.
    fn retain(&mut self, mut keep: impl FnMut(Bytes, &[u8]) -> Result<bool>) -> Result<()> {
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
    pub(crate) fn place(&self, range: &Bytes) -> u32 {
        if self.runs.is_empty() {
            return NOWHERE;
        }
        self.runs.binary_search_by_key(range, |run| run.range).map_or(NOWHERE, |at| self.runs[at].at)
    }

    #[inline]
    pub(crate) fn holds(&self, range: &Bytes) -> bool {
        self.place(range) != NOWHERE
    }

    /// The bytes of this very range, if it is staged.
    #[inline]
    pub(crate) fn find(&self, range: &Bytes) -> Option<&[u8]> {
        match self.place(range) {
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

impl Core {
    #[inline]
    pub(crate) fn stages(&self, range: Bytes) -> bool {
        !matches!(self.policy, Policy::Undo | Policy::Eaw) && Stage::takes(range)
    }

    /// Puts into main what is staged of the object at `at` among those held.
    #[cold]
    pub(crate) fn unstage(&self, set: &mut Set, at: usize) -> Result<()> {
        let block = set.held[at].block;
        let object = (block.offset(), block.len());
        set.stage.retain(|range, bytes| match overlap(range, object) {
            true => self.put_in_main(range, bytes).map(|()| false),
            false => Ok(true),
        })?;
        set.held[at].staged = false;
        Ok(())
    }

    /// The same for what has been joined with other writes. These are in order, and apart; so is then what stays staged.
    #[inline]
    pub(crate) fn unstage_joined(&self, set: &mut Set) -> Result<()> {
        if set.stage.runs.len() > 1 {
            set.stage.runs.sort_unstable_by_key(|run| run.range);
        }
        let (mut runs, writes) = (set.stage.runs.iter(), &set.writes);
        match runs.all(|run| writes.binary_search(&run.range).is_ok()) {
            true => Ok(()),
            false => self.unstage_parts(set),
        }
    }

    #[cold]
    fn unstage_parts(&self, set: &mut Set) -> Result<()> {
        let (writes, stays) = (&set.writes, self.failpoints.skips(Step::StagedJoined));
        set.stage.retain(|range, bytes| match writes.binary_search(&range) {
            Ok(_) => Ok(true),
            Err(_) if stays => Ok(true),
            Err(_) => self.put_in_main(range, bytes).map(|()| false),
        })
    }

    /// The same for everything, where nothing is taken back.
    #[cold]
    pub(crate) fn unstage_all(&self, set: &mut Set) -> Result<()> {
        set.stage.retain(|range, bytes| self.put_in_main(range, bytes).map(|()| false))
    }

    /// The image of an entry whose ranges have just been copied is its no longer.
    #[inline]
    pub(crate) fn void(&self, of: &mut Vec<u8>, mut image: Vec<u8>) -> Vec<u8> {
        if self.failpoints.skips(Step::StagedOnce) {
            image.fill(0xEE); // as the next transaction does
            std::mem::swap(of, &mut image);
        }
        image
    }

    fn put_in_main(&self, (offset, len): Bytes, bytes: &[u8]) -> Result<()> {
        // the transaction is the writer of these bytes, and has handed out no reference to their object since it staged them.
        raw::bytes_mut(Claim::Writer, self, &self.pool, offset, len)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Stores what is still staged past the cache: persistent after the next drain. Until then nothing atomic may follow, which would wait for it.
    #[inline]
    #[track_caller]
    pub(crate) fn store_staged(&self, stage: &Stage) -> Result<()> {
        for run in &stage.runs {
            behind::stored();
            let bytes = &stage.bytes[run.at as usize..][..run.range.1 as usize];
            // the transaction is the writer of these bytes, and at its end.
            raw::store(Claim::Writer, &self.pool, run.range.0, bytes)?;
        }
        Ok(())
    }
}

impl Core {
    /// The checksum over the long ones of what was written. If `storing`, what is staged of them is stored in the same pass, as by [`store_staged`](Self::store_staged): so
    /// early, the rest of the commit is done while its lines leave.
    #[inline]
    #[track_caller]
    pub(crate) fn checksum(&self, key: &ChecksumKey, set: &Set, storing: bool) -> Result<u64> {
        let mut outcome = Ok(());
        let long = set.writes.iter().filter(|w| !is_short(w));
        let checksum = key.checksum_list(long.map(|range| match set.stage.find(range) {
            Some(bytes) if storing => self.store_checksumming(key, range.0, bytes).unwrap_or_else(|e| {
                outcome = Err(e);
                0
            }),
            Some(bytes) => key.checksum(bytes),
            None => key.checksum(self.written(range)),
        }));
        outcome.map(|()| checksum)
    }

    #[inline]
    #[track_caller]
    fn store_checksumming(&self, key: &ChecksumKey, offset: u64, bytes: &[u8]) -> Result<u64> {
        behind::stored();
        // the transaction is the writer of these bytes, and at its end.
        if (offset | bytes.len() as u64).is_multiple_of(pmem::LINE) {
            return raw::store_checksumming(Claim::Writer, &self.pool, offset, key, bytes);
        }
        raw::store(Claim::Writer, &self.pool, offset, bytes)?;
        Ok(key.checksum(bytes))
    }
}

/// Read-modify-writes between a store of staged bytes and its drain, counted in tests.
pub(crate) mod behind {
    #[cfg(test)]
    thread_local! {
        /// Stores since the last drain.
        static STORES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
        /// All stores; read-modify-writes behind one.
        pub(crate) static COUNTS: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
    }

    #[inline(always)]
    pub(crate) fn stored() {
        #[cfg(test)]
        {
            STORES.set(STORES.get() + 1);
            COUNTS.set((COUNTS.get().0 + 1, COUNTS.get().1));
        }
    }

    #[inline(always)]
    pub(crate) fn drained() {
        #[cfg(test)]
        STORES.set(0);
    }

    /// In front of each read-modify-write that a commit may come to.
    #[inline(always)]
    pub(crate) fn modifies() {
        #[cfg(test)]
        if STORES.get() > 0 {
            COUNTS.set((COUNTS.get().0, COUNTS.get().1 + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

    use pmem::{DomainChoice, PPtr};
    use tx::{Engine, Isolation, Transaction};

    use super::*;
    use crate::{Heap, Options};

    const LENGTHS: [u64; 6] = [64, 100, 256, 1000, 1024, 4096];

    fn heap(dir: &tempfile::TempDir, policy: Policy) -> (Heap, Vec<PPtr<u8>>) {
        let options = Options::new().policy(policy).bytes(2 << 20).slots(2).alpha(0.9).coordinator(false);
        let options = options.pool(pmem::Options::new().domain(DomainChoice::Emulated));
        let heap = Heap::create(dir.path().join("p"), &options).unwrap();
        let objects = heap
            .transact(Isolation::Strict, |tx| {
                (0..120).map(|n| tx.alloc_bytes(LENGTHS[n % LENGTHS.len()], 64)).collect::<Result<Vec<_>>>()
            })
            .unwrap();
        heap.settle().unwrap();
        (heap, objects)
    }

    /// Stores of staged bytes in what `work` does, and read-modify-writes between one of them and its drain.
    fn counted(work: impl FnOnce()) -> (u64, u64) {
        behind::COUNTS.set((0, 0));
        work();
        behind::COUNTS.get()
    }

    /// Locks of what is only read, blocks that go out of use, and what is settled: all of that is behind it, or in front.
    #[test]
    fn nothing_atomic_stands_between_staged_bytes_and_their_drain() {
        for policy in [Policy::None, Policy::InPlace, Policy::InPlacePartial] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let (heap, objects) = heap(&dir, policy);
            let mut old = None;
            let (stores, behind) = counted(|| {
                for n in 0..200 {
                    heap.transact(Isolation::Strict, |tx| -> Result<()> {
                        for k in 0..1 + n % 4 {
                            tx.bytes(objects[(n * 7 + k * 3 + 1) % 120], 8)?;
                            let at = (n * 5 + k) % 120;
                            tx.put_bytes(objects[at], &vec![n as u8; LENGTHS[at % LENGTHS.len()] as usize])?;
                        }
                        if n % 3 == 0 {
                            let new = tx.alloc_bytes(300, 8)?;
                            old.replace(new).map_or(Ok(()), |old| tx.free_bytes(old))?;
                        }
                        Ok(())
                    })
                    .unwrap();
                }
            });
            assert!(stores > 200, "{policy}: {stores}");
            assert_eq!(behind, 0, "{policy}: of {stores} stores");
        }
    }

    /// Nothing is taken back there.
    #[test]
    fn without_rollback_an_abort_leaves_what_was_staged() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (heap, objects) = heap(&dir, Policy::None);
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.put_bytes(objects[4], &[1; 1024]).unwrap();
        assert!(!tx.state.set.borrow().stage.is_empty());
        assert!(matches!(tx.abort(), Err(tx::Error::NoRollback)));
        let tx = heap.begin(Isolation::Strict).unwrap();
        assert_eq!(tx.bytes(objects[4], 1024).unwrap(), [1; 1024]);
    }

    /// It stored them already: the backup has what was there. The block is given up that the record was moved to at last.
    #[test]
    fn a_commit_whose_record_has_no_place_takes_back_what_was_staged() {
        for policy in [Policy::InPlace, Policy::InPlacePartial, Policy::Eaw] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let (heap, objects) = heap(&dir, policy);
            put(&heap, &objects, 1).unwrap();
            let used = heap.live_blocks(|_, _| ()).unwrap().live_blocks;
            heap.close().unwrap();
            let pool = pmem::Options::new().domain(DomainChoice::Emulated);
            let options = Options::new().coordinator(false).pool(pool);
            let heap = Heap::open(dir.path().join("p"), &options.clone().leave_out(Step::Appended)).unwrap();
            let (stores, _) = counted(|| {
                let full = put(&heap, &objects, 2);
                assert!(matches!(full, Err(tx::Error::Pool(pmem::Error::RingFull { .. }))), "{full:?}");
            });
            assert_eq!(stores > 0, policy != Policy::Eaw, "{policy}");
            let old = |heap: &Heap| {
                let tx = heap.begin(Isolation::Strict).unwrap();
                (0..6).all(|n| tx.bytes(objects[n], LENGTHS[n]).unwrap().iter().all(|&byte| byte == 1))
            };
            assert!(old(&heap), "{policy}");
            assert_eq!(heap.live_blocks(|_, _| ()).unwrap().live_blocks, used, "{policy}");
            drop(heap);
            assert!(old(&Heap::open(dir.path().join("p"), &options).unwrap()), "{policy}");
        }
    }

    /// One object of each length.
    fn put(heap: &Heap, objects: &[PPtr<u8>], byte: u8) -> Result<()> {
        let mut tx = heap.begin(Isolation::Strict)?;
        (0..6).try_for_each(|n| tx.put_bytes(objects[n], &vec![byte; LENGTHS[n] as usize]))?;
        tx.commit()
    }

    /// The counter counts.
    #[test]
    fn what_is_atomic_behind_staged_bytes_is_counted() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (heap, objects) = heap(&dir, Policy::InPlace);
        let counts = counted(|| {
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            tx.put_bytes(objects[4], &[1; 1024]).unwrap();
            heap.core().store_staged(&tx.state.set.borrow().stage).unwrap();
            tx.bytes(objects[0], 8).unwrap();
            behind::drained();
            tx.bytes(objects[1], 8).unwrap();
        });
        assert_eq!(counts, (1, 1));
    }

    #[test]
    fn runs_are_found_and_given_away_once() {
        let (mut stage, mut spare) = (Stage::default(), Vec::new());
        assert!(stage.put(128, &[2; 64], false) && stage.put(0, &[1; 64], false));
        assert!(stage.put(0, &[3; 64], true));
        stage.runs.sort_unstable_by_key(|run| run.range);
        assert_eq!(stage.find(&(0, 64)), Some(&[3; 64][..]));
        assert_eq!((stage.place(&(128, 64)), stage.place(&(0, 65)), stage.place(&(64, 64))), (0, NOWHERE, NOWHERE));
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
