//! Bytes that overwrite an object and stay in DRAM until the commit.
//!
//! [`put_bytes`](tx::Transaction::put_bytes) says what an object holds from now on without asking for what it held. So nothing of it has to be in the cache: the new
//! bytes are kept beside, the commit checksums them there, and stores them past the cache once nothing atomic is left to do in front of the barrier. Applying stores them
//! past the cache a second time, into the backup. With policy `none` there is neither checksum nor backup, and an abort, which takes nothing back, stores them. With
//! `undo` nothing is staged: the old bytes are read as they are kept, so their lines are in the cache.
//!
//! Until then main holds what it held. So
//!
//! * what is staged of an object goes to main before the object is used in any other way: read, changed, declared, freed ([`Ground::unstage`]). References are
//!   handed out behind that only, and staging takes the transaction `&mut`: no reference sees its bytes change;
//! * a run that is joined with other writes goes to main, too ([`Ground::unstage_joined`]): a record has one checksum for each range, and the backup one store;
//! * new objects, short runs and very long ones are never staged: `bytes_mut` serves them;
//! * once the transaction is committed, the bytes are the log's, used by the thread that holds its lock, for one copy. A second copy takes main.

use pmem::ChecksumKey;
use tx::Result;

use crate::counted::behind;
use crate::failpoints::Step;
use crate::ground::Ground;
use crate::options::Policy;
use crate::raw::{self, Claim};
use crate::record::{Bytes, is_short, overlap};
use crate::stage::Stage;
use crate::state::Set;

impl Ground {
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
        set.stage.order();
        let writes = &set.writes;
        let apart = set.stage.ranges().all(|range| writes.binary_search(&range).is_ok());
        match apart {
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

    fn put_in_main(&self, (offset, len): Bytes, bytes: &[u8]) -> Result<()> {
        // the transaction is the writer of these bytes, and has handed out no reference to their object since it staged them.
        raw::bytes_mut(Claim::Writer, self, &self.pool, offset, len)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Stores what is still staged past the cache: persistent after the next drain. Until then nothing atomic may follow, which would wait for it.
    #[inline]
    #[track_caller]
    pub(crate) fn store_staged(&self, stage: &Stage) -> Result<()> {
        for ((offset, _), bytes) in stage.iter() {
            behind::stored();
            // the transaction is the writer of these bytes, and at its end.
            raw::store(Claim::Writer, &self.pool, offset, bytes)?;
        }
        Ok(())
    }
}

impl Ground {
    /// What the transaction has left in a range.
    #[inline]
    pub(crate) fn written(&self, &(offset, len): &Bytes) -> &[u8] {
        // the transaction is the writer of these bytes, and at its end.
        raw::bytes(Claim::Writer, self, &self.pool, offset, len).unwrap_or_default() // was in bounds when it was written
    }

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
        heap.apply_pending().unwrap();
        (heap, objects)
    }

    /// Stores of staged bytes in what `work` does, and read-modify-writes between one of them and its drain.
    fn counted(work: impl FnOnce()) -> (u64, u64) {
        behind::COUNTS.set((0, 0));
        work();
        behind::COUNTS.get()
    }

    /// Locks of what is only read, blocks that go out of use, and what is applied: all of that is behind it, or in front.
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
}
