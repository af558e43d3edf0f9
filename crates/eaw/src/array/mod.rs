//! Editable atomic writes over striped files (MARS, SOSP 2013, sections 3.1 and 4).
//!
//! A transaction writes any number of places, of any size, in files that are striped over several pools, its members. What it writes can be edited until the commit; then it
//! goes to a log on the member that the bytes belong to, one barrier makes all of it durable at once, and only then is it copied to the files.
//! A page file on it needs no double-write buffer: a page is either as it was or as it was written, whatever happens.
//!
//! # The way of a write
//!
//! | module | what it does with it |
//! |---|---|
//! | `options` | an array is made of pools, or opened: [`Options`] |
//! | `files` | a range of a file, cut at the stripes |
//! | `transaction` | [`Transaction::log_write`] copies it, [`Transaction::edit`] changes the copy |
//! | `part` | the copy, each member's in a part: in memory up to [`Options::draft_max`], beyond that in the log; at the commit all in the log, past the cache, checksummed on the way |
//! | `parts` | what a transaction has at all members; given back if it does not commit |
//! | `chunks`, `tid` | space for logs; lines of the transaction table |
//! | `commit` | the parts of all members under one number, a drain, the files |
//! | `order` | how far each number is |
//! | `mark` | through which number no log is needed any more |
//! | `member` | what a member does with its part: checksum, apply, wash, move the mark; on a file later, reading over what is in the log only |
//! | `recovery` | what a crash left: a transaction whose parts are complete on all their members is applied, the rest is not |
//! | `layout` | the bytes |
//!
//! # What it costs
//!
//! | | barriers | on media |
//! |---|---|---|
//! | [`Array::atomic_write`], and a commit of up to [`Options::checksum_max`] bytes | 1 for each pool that has a part | data, 32 bytes for a piece, a line of the table; to the files whole lines at once, parts of lines once for all transactions since; the mark |
//! | a commit of more | 2 | the same |
//! | an atomic write of a page to a file that takes it whole, if [`Options::whole_writes`] is set | 1 | the page |
//! | a commit behind [`Transaction::place`] | 1 more | what was placed, once |
//! | abort, rollback to a savepoint, an edit | 0 | nothing but what was placed |
//! | [`Array::checkpoint`] | 3 | what the files have not yet |
//!
//! # Invariants
//!
//! 1. Nothing is stored to a file before its transaction is durable at every member that has a part, but what is placed where nothing is.
//! 2. At each member parts are applied in the order of numbers, by recovery too.
//! 3. A log is used again when both slots of its member's mark have passed its transaction; the mark passes a number when it and all before it are
//!    persistent in the files of all members.
//! 4. A number counts if *every* member in its set has a line with the same digest, and that verifies. Numbers go on above all that were ever seen, so that two
//!    halves of two transactions are never taken for one.
//! 5. A page is written whole, without a log, only where no log that is needed has bytes: recovery would apply those over it. So is what a transaction places.
//! 6. What a transaction places is durable before the first line of it is stored that could make it count.
//!
//! # On files
//!
//! A sync writes pages, and each run of them that is somewhere else is a write of its own, which costs a disk about as much as the sync itself. So on files a commit's line, metadata and data are
//! next to each other, in the slot of its TID, as far as they fit; and what is durable stays in the log until a quarter of the TIDs wait, or the log is half full. Then a commit applies
//! it before it takes its number, and the next two commits move the mark.
//!
//! | what must hold | what sees to it | what fails without |
//! |---|---|---|
//! | a read has what is durable below the member's limit: the file's bytes, and over them those that are in the log only, in the order of numbers | `State::read_late`, under the locks of all members that are read | `Step::ReadLate`; `late.rs`, `model.rs` |
//! | a read that meets what is not below the limit waits, so that no reader sees half | `Array::read` | `Step::WaitApplied`, with readers in `overtaking` |
//! | the mark passes what is applied and drained, never what is in the log only: `washed` counts applied parts, whose stores precede the washer's drain | `Array::take_duty`, `State::done` | `Step::ApplyFirst`, `Step::WashFirst` |
//! | nothing is applied beyond the limit: what is not durable stays away from the files | `Array::take_duty`, `Array::apply_now` | `Step::ApplyLate` |
//! | a slot is stored to when its TID is free: both slots of the mark have passed what it holds, at every member | `Tids`, `State::done` | `Step::MarkTwice` |
//! | metadata and data in a slot count if they verify: a torn write may have brought the line alone | `recovery` | `Step::VerifyMeta`, `Step::VerifyData` |
//! | what waits is bounded: a quarter of the TIDs, half of the log, some hundred pieces | `State::is_late_due`, `State::apply_now` | `late.rs` |
//!
//! ```
//! # fn main() -> eaw::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
//! use eaw::array::Options;
//!
//! let array = Options::new().create(&[&one, &other])?;
//! let pages = array.create_file("pages", 1 << 20)?;
//! array.atomic_write(&pages, 8192, &[7; 4096])?; // durable when it returns; never half of it
//!
//! let mut tx = array.begin()?;
//! let from = tx.log_write(&pages, 0, b"from 10 to 7")?;
//! tx.log_write(&pages, 500_000, b"to 3")?; // on the other member
//! tx.edit(&from, 11, b"6")?; // until the commit, what was logged can be changed
//! tx.commit()?; // both or none
//!
//! let mut bytes = [0; 12];
//! array.read(&pages, 0, &mut bytes)?;
//! assert_eq!(&bytes, b"from 10 to 6");
//! array.close()?;
//! # Ok(()) }
//! ```

mod chunks;
mod commit;
mod failpoints;
mod files;
mod layout;
mod mark;
mod member;
mod options;
mod order;
mod part;
mod parts;
mod recovery;
mod tid;
mod transaction;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::SeqCst};

use pmem::ChecksumKey;
use pmem::sync::{CachePadded, Mutex};
use smallvec::SmallVec;

pub use commit::Committed;
#[cfg(any(test, feature = "failpoints"))]
pub use failpoints::Step;
#[cfg(not(any(test, feature = "failpoints")))]
use failpoints::Step;
pub use files::{FILE_NAME_MAX, File};
pub use layout::MEMBERS_MAX;
pub use options::Options;
pub use recovery::{Loss, Recovered};
pub use transaction::{Entry, Savepoint, Transaction};

use crate::error::{Error, Result};
use files::{Listed, Striping};
use member::Member;
use order::Order;
use tid::Tids;

/// So often a transaction looks for a TID that others have not taken before it.
const BEGIN_TRIES: u32 = 1000;
/// A reader to which new bytes have come so often, while it waited for those that were there, lets no transaction begin to commit.
const READ_TRIES: u32 = 4;

/// See [`Array::starving`].
struct Starving<'a>(&'a Array);

impl<'a> Starving<'a> {
    fn new(array: &'a Array) -> Self {
        array.starving.fetch_add(1, SeqCst);
        Self(array)
    }
}

impl Drop for Starving<'_> {
    fn drop(&mut self) {
        self.0.starving.fetch_sub(1, SeqCst);
        self.0.wake();
    }
}

/// An array of striped files: see the [module](self). Shared by reference between threads.
pub struct Array {
    id: u64,
    members: Vec<Member>,
    /// For each member the first one that is in the same pool: one drain is for all of them.
    drains: Vec<usize>,
    order: CachePadded<Mutex<Order>>,
    /// A barrier failed: nothing more commits. Set under the lock of the order.
    stopped: AtomicBool,
    tids: CachePadded<Tids>,
    files: Mutex<Listed>,
    striping: Striping,
    /// Of the parts' checksums.
    digest: ChecksumKey,
    chunk: u64,
    /// Entries of a metadata chunk, the link included.
    entries: u32,
    checksum_max: u64,
    /// So many bytes of a part wait in memory.
    draft_max: usize,
    whole_writes: bool,
    /// Threads that sleep until others are further.
    sleepers: AtomicUsize,
    /// Readers that commits have kept from reading again and again: no other begins until they have read.
    starving: AtomicUsize,
    is_read_only: bool,
    recovered: Recovered,
    #[cfg(any(test, feature = "failpoints"))]
    without: Option<Step>,
}

/// How an array is doing, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Members.
    pub members: usize,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
    /// TIDs, and how many are free.
    pub transactions: u32,
    /// TIDs that no transaction uses, and whose logs are not needed any more.
    pub free: usize,
    /// The number of the newest commit.
    pub last: u64,
    /// Everything through this number is persistent in the files.
    pub retired: u64,
    /// Bytes of log of each member.
    pub log_bytes: Vec<u64>,
    /// Bytes of log of each member that are not in use.
    pub log_free: Vec<u64>,
}

impl Array {
    /// What was found when it was opened.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// How it is doing.
    pub fn status(&self) -> Status {
        let logs: Vec<(u64, u64)> =
            self.members.iter().map(|m| m.lock()).map(|s| (s.log.len(), s.log_free())).collect();
        let order = self.order.lock();
        Status {
            members: self.members.len(),
            stripe_bytes: self.striping.stripe,
            transactions: self.tids.count(),
            free: self.tids.free(),
            last: order.last(),
            retired: order.retired(true),
            log_bytes: logs.iter().map(|log| log.0 * self.chunk).collect(),
            log_free: logs.iter().map(|log| log.1 * self.chunk).collect(),
        }
    }

    /// What its pools have counted since they were opened.
    pub fn stats(&self) -> pmem::Stats {
        self.pools().map(pmem::Pool::stats).fold(pmem::Stats::default(), |all, one| pmem::Stats {
            flushed_lines: all.flushed_lines + one.flushed_lines,
            drains: all.drains + one.drains,
            nt_bytes: all.nt_bytes + one.nt_bytes,
            syncs: all.syncs + one.syncs,
        })
    }

    /// Begins a transaction. It holds a TID until its log is not needed any more.
    ///
    /// # Errors
    /// [`Error::TooManyTransactions`]; [`Error::Stopped`].
    pub fn begin(&self) -> Result<Transaction<'_>> {
        self.check_usable()?;
        for _ in 0..BEGIN_TRIES {
            if let Some(tid) = self.tids.take() {
                return Ok(Transaction::new(self, tid));
            }
            if self.tids.open() == self.tids.count() {
                break;
            }
            // Those whose logs are needed. Others may take what that frees.
            self.checkpoint()?;
        }
        Err(Error::TooManyTransactions { max: self.tids.count() })
    }

    /// Writes `data` at `offset`, all of it or none: a transaction of one write (`AtomicWrite`). Durable and visible when it returns.
    ///
    /// # Errors
    /// As [`Transaction::log_write`] and [`Transaction::commit`].
    pub fn atomic_write(&self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        if self.whole_writes && self.write_whole(file, offset, data)? {
            return Ok(());
        }
        let mut tx = self.begin()?;
        tx.log_write(file, offset, data)?;
        tx.commit().map(drop)
    }

    /// Reads what is committed. Of a transaction that commits at the same time it sees all or nothing.
    ///
    /// # Errors
    /// [`Error::OutOfFile`]; [`Error::Foreign`] for a file of another array; [`Error::Pool`] if the medium does not return the bytes. [`Error::Stopped`] if a barrier failed, for bytes that
    /// were committed behind what failed: they are there when the array is opened again.
    pub fn read(&self, file: &File, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check_process()?;
        file.check(self.id, offset, into.len() as u64)?;
        let len = into.len() as u64;
        let pieces = || self.striping.cut(offset, len);
        let first = pieces().next().map(|piece| piece.member);
        let one = pieces().all(|piece| Some(piece.member) == first);
        let members: SmallVec<[usize; 2]> = match (first, one) {
            (None, _) => return Ok(()),
            (Some(member), true) => SmallVec::from_slice(&[member]),
            _ => (0..self.members.len()).filter(|m| pieces().any(|piece| piece.member == *m)).collect(),
        };
        let mut starving = None;
        let mut tries = 0;
        let (states, limits) = loop {
            let mut states: SmallVec<[_; 2]> = members.iter().map(|m| self.members[*m].lock()).collect();
            if !states.iter().any(|state| state.has_checksummed()) {
                break (states, SmallVec::new());
            }
            let limits = self.apply_now(&members, &mut states)?;
            let to_come: SmallVec<[(usize, u64); 2]> = pieces()
                .filter_map(|piece| {
                    let at = members.iter().position(|m| *m == piece.member)?;
                    Some((piece.member, states[at].to_come(file.number(), piece.local, piece.len, limits[at])?))
                })
                .collect();
            if to_come.is_empty() || !self.has(Step::WaitApplied) {
                break (states, limits);
            }
            drop(states);
            tries += 1;
            if tries == READ_TRIES {
                starving = Some(Starving::new(self));
            }
            self.wait(|order| to_come.iter().all(|(member, sequence)| order.limit(*member) > *sequence))?;
        };
        drop(starving);
        for piece in pieces() {
            let Some(at) = members.iter().position(|m| *m == piece.member) else { continue };
            let into = &mut into[piece.at as usize..][..piece.len as usize];
            states[at].read(file.number(), piece.local, into)?;
            if let Some(limit) = limits.get(at).filter(|_| self.has(Step::ReadLate)) {
                states[at].read_late(file.number(), piece.local, *limit, into)?;
            }
        }
        Ok(())
    }

    /// All of it is a cache's lines, not a file's pages.
    pub(crate) fn is_memory(&self) -> bool {
        self.members.iter().all(Member::is_memory)
    }

    /// A key that nothing else has, for what is in the files.
    pub(crate) fn key(&self, name: u64) -> ChecksumKey {
        self.digest.derived(name)
    }

    /// Where its first member is.
    pub(crate) fn path(&self) -> PathBuf {
        self.members.first().map(|member| member.pool.path().to_owned()).unwrap_or_default()
    }

    pub(crate) fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { path: self.path(), what }
    }

    fn check_usable(&self) -> Result<()> {
        self.check_process()?;
        if self.is_read_only {
            return Err(pmem::Error::ReadOnly.into());
        }
        if self.stopped.load(Acquire) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Closes it: nothing is left to recover. Dropping the array does the same, without telling what went wrong.
    ///
    /// # Errors
    /// Those of a drain; [`pmem::Error::Forked`] in a child of the process that opened it, where it is left as it is.
    pub fn close(mut self) -> Result<()> {
        self.check_process()?;
        if !self.is_read_only {
            self.checkpoint()?;
        }
        self.finish()
    }

    /// Not in a child, where a lock may be held for ever by a thread that is not there.
    pub(crate) fn check_process(&self) -> Result<()> {
        let usable = self.members.first().map_or(Ok(()), |member| member.pool.check_usable());
        if let Err(forked @ pmem::Error::Forked) = usable { Err(forked.into()) } else { Ok(()) }
    }

    /// Gives the pools back, with everything in the files.
    fn finish(&mut self) -> Result<()> {
        let pools: Vec<pmem::Pool> = self.pools().cloned().collect();
        self.drains.clear();
        self.members.clear();
        pools.into_iter().try_for_each(|pool| {
            pool.set_pending(false);
            match pool.close() {
                // Another owner has something in it, and closes it.
                Err(pmem::Error::InUse { .. }) => Ok(()),
                other => Ok(other?),
            }
        })
    }

    /// For tests: drops it and leaves the files as a crash would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.pools().for_each(pmem::Pool::abandon);
    }

    fn pools(&self) -> impl Iterator<Item = &pmem::Pool> {
        let first = self.drains.iter().enumerate().filter(|(member, first)| member == *first);
        first.map(|(member, _)| &self.members[member].pool)
    }

    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) fn has(&self, step: Step) -> bool {
        self.without != Some(step)
    }

    #[cfg(not(any(test, feature = "failpoints")))]
    #[inline(always)]
    pub(crate) fn has(&self, _: Step) -> bool {
        true
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        let is_ours = self.check_process().is_ok();
        if self.members.is_empty() || !is_ours || !self.pools().all(pmem::Pool::is_closed_on_drop) {
            return;
        }
        let path = self.members[0].pool.path().to_owned();
        if let Err(error) = self.checkpoint().and_then(|()| self.finish()) {
            tracing::warn!(%error, array = %path.display(), "an array that was dropped could not be closed; it is recovered when it is opened");
        }
    }
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("members", &self.members.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Others come there, or the test fails.
    fn until(is_there: impl Fn() -> bool) {
        let some = (0..60_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            is_there()
        });
        assert!(some, "nobody came");
    }

    fn made(dir: &std::path::Path) -> (Array, File) {
        let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let members = ["one", "other"].map(|name| dir.join(name));
        let array = Options::new().log_bytes(1 << 20).pool(pool).create(&members).unwrap();
        let file = array.create_file("pages", 1 << 20).unwrap();
        (array, file)
    }

    /// Commits on their way, for as long as the test says, and no longer than it runs.
    struct UnderWay<'a>(&'a Array, Vec<(u64, usize)>);

    impl UnderWay<'_> {
        fn begin(&mut self, member: usize) {
            self.1.push((self.0.order.lock().checksum([member].into_iter()).0, member));
        }

        /// The oldest is durable.
        fn pass(&mut self) {
            let (number, member) = self.1.remove(0);
            let mut order = self.0.order.lock();
            order.pass(number, &[member]);
            order.washed(member, number); // it has nothing for the files
            drop(order);
            self.0.wake();
        }
    }

    impl Drop for UnderWay<'_> {
        fn drop(&mut self) {
            while !self.1.is_empty() {
                self.pass();
            }
        }
    }

    #[test]
    fn a_checkpoint_waits_for_what_keeps_a_commit_from_the_files() {
        for member in [0, 1] {
            a_checkpoint_waits_for_one_at(member);
        }
    }

    /// What is committed is on the first member only.
    fn a_checkpoint_waits_for_one_at(member: usize) {
        let dir = tempfile::tempdir().unwrap();
        let (array, file) = made(dir.path());
        std::thread::scope(|threads| {
            let mut before = UnderWay(&array, Vec::new());
            before.begin(member);
            array.atomic_write(&file, 0, &[1; 8]).unwrap();
            let checkpoint = threads.spawn(|| array.checkpoint().unwrap());
            until(|| array.sleepers.load(SeqCst) == 1);
            assert!(!checkpoint.is_finished());
            before.pass();
            checkpoint.join().unwrap();
        });
        let status = array.status();
        assert_eq!((status.retired, status.free), (status.last, status.transactions as usize));
        array.abandon();
    }

    /// What a checkpoint frees others take, and commit.
    #[test]
    fn a_log_that_cannot_grow_is_looked_at_again() {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let array =
            Options::new().log_bytes(1 << 20).log_max(1 << 20).pool(pool).create(&[dir.path().join("one")]).unwrap();
        let look = |state: &mut member::State| {
            let is_late = LOOKS.fetch_add(1, SeqCst) >= 3;
            is_late.then(|| state.take_log()).flatten()
        };
        let full = array.take_chunk(0, look, |state| &mut state.log);
        assert!(matches!(full, Err(Error::LogFull { .. })), "nobody is going to free anything");
        assert_eq!(LOOKS.swap(0, SeqCst), 2);
        // While others commit it waits for them, however long that takes, and looks again whenever one has.
        std::thread::scope(|threads| {
            let mut others = UnderWay(&array, Vec::new());
            others.begin(0);
            others.begin(0);
            let takes = threads.spawn(|| array.take_chunk(0, look, |state| &mut state.log));
            for looks in [2, 3] {
                until(|| LOOKS.load(SeqCst) == looks && array.sleepers.load(SeqCst) == 1);
                assert!(!takes.is_finished());
                others.pass();
            }
            let chunk = takes.join().unwrap().unwrap();
            assert_eq!(LOOKS.swap(0, SeqCst), 4);
            array.members[0].lock().log.give_back(chunk);
        });
        array.close().unwrap();
    }

    /// Each time that a reader can go on, something else is committed that cannot be read yet.
    #[test]
    fn a_reader_is_not_kept_waiting_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let (array, file) = made(dir.path());
        let write = |byte| array.atomic_write(&file, 0, &[byte; 8]).unwrap();
        let read = |offset| {
            let mut bytes = [0; 8];
            array.read(&file, offset, &mut bytes).unwrap();
            bytes[0]
        };
        let is_starving = || array.starving.load(SeqCst) == 1;
        std::thread::scope(|threads| {
            let mut before = UnderWay(&array, Vec::new());
            before.begin(0);
            write(1);
            assert_eq!(read(4096), 0); // other bytes
            let reader = threads.spawn(|| read(0));
            let mut rounds = 0;
            while !is_starving() {
                rounds += 1;
                assert!(rounds < 5000, "it waits, and others go on");
                before.begin(0);
                let writer = threads.spawn(|| write(1));
                until(|| writer.is_finished() || is_starving());
                if !is_starving() {
                    before.pass();
                }
            }
            let last = threads.spawn(|| write(99));
            until(|| array.tids.open() > 0);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!last.is_finished() && !reader.is_finished());
            drop(before);
            assert_eq!(reader.join().unwrap(), 1); // before the last
            last.join().unwrap();
        });
        assert_eq!(array.starving.load(SeqCst), 0);
        array.abandon();
    }
}
