//! A slot's log: the ring its transactions commit in, and what has committed but is not applied.
//!
//! A committed transaction goes through the queue in order:
//!
//! ```text
//! committed --copy--> copied --a drain--> stable --its end stands as retired in two durable records, or one and the mark--> gone
//!            M to B, intents     backup and bitmaps       recovery will not look at it again: locks free, blocks released
//!            carried out         are persistent
//! ```
//!
//! None of the steps needs a barrier of its own: the drain is the next commit's, and the record of the commit after that carries the retirement. Only a thread
//! that cannot wait (a writer that meets the pending object, an idle slot's coordinator, cleaning) pays two.

use std::collections::VecDeque;

use pmem::{Block, Error as PoolError, FlushSet, Intent, Moment, Persisted, Position, Ring, thread_number};
use tx::Result;

use crate::copies::{Copied, join};
use crate::counted::behind;
use crate::failpoints::Step;
use crate::ground::Ground;
use crate::lock::{self, Attempt};
use crate::options::Policy;
use crate::pending::{Owed, Pending, Told};
use crate::raw::{self, Claim, Word};
use crate::record::{self, Bytes, RETIRED, SHORT};
use crate::stage::{self, Stage};

/// Bytes that are copied together, however few transactions they are of: more would leave the near cache before.
const BATCH_BYTES: u64 = 16 << 10;
/// Ranges of more lines are flushed at once, not line by line with others.
const FEW_LINES: u64 = 4;
/// Places that are asked for before they are written.
const AHEAD: usize = 16;

/// A range written, and what a short one held when it was committed.
#[derive(Clone, Copy)]
struct Written {
    range: Bytes,
    /// Where in the entry's image its bytes are, if it has one still.
    staged: u32,
    image: [u8; SHORT as usize],
}

/// A committed transaction, as counts of its elements in the queues.
struct Committed {
    end: Position,
    ranges: usize,
    copies: usize,
    words: usize,
    intents: usize,
    frees: usize,
    /// Its record carries short ranges.
    short: bool,
    /// What the transaction had staged, for one copy; empty if nothing, or copied.
    image: Vec<u8>,
}

/// What a transaction leaves behind when it commits.
pub(crate) struct Parts<'a> {
    pub(crate) end: Position,
    /// To be copied to the backup.
    pub(crate) ranges: &'a [Bytes],
    /// Their copies, of a partial backup; both in order.
    pub(crate) copies: &'a [Copied],
    /// Locks that stay pending, and whether only short ranges of the object were written.
    pub(crate) words: &'a [(Word, bool)],
    /// To be carried out.
    pub(crate) intents: &'a [Intent],
    /// Blocks out of use, to be handed out again.
    pub(crate) frees: &'a [Block],
    /// The record carries a checksum over the data: should it come up again after its objects changed, the checksum tells.
    pub(crate) checksummed: bool,
}

pub(crate) struct Log {
    pub(crate) ring: Ring,
    queue: VecDeque<Committed>,
    /// Of the entries that are not stable.
    ranges: VecDeque<Written>,
    copies: VecDeque<Copied>,
    /// Of all entries.
    words: Pending,
    /// Entries whose records carry short ranges.
    carrying: usize,
    /// Of the entries that are not copied.
    intents: VecDeque<Intent>,
    /// Of all entries.
    frees: VecDeque<Block>,
    /// The first entries, that many, are copied, stable, on their way to retirement, retired by one durable record, retired for good:
    /// gone <= announced <= retiring <= stable <= copied.
    copied: usize,
    stable: usize,
    retiring: usize,
    announced: usize,
    gone: usize,
    copied_at: Option<Moment>,
    copied_by: usize,
    /// Bytes of ranges that are not copied.
    uncopied: u64,
    /// Memory for images.
    spare: Vec<Vec<u8>>,
    /// Lines of the intents carried out, flushed before the next drain.
    pub(crate) lines: FlushSet,
    /// Transactions applied so far.
    pub(crate) applied: u64,
    /// For building payloads.
    pub(crate) scratch: Vec<u8>,
}

impl Log {
    pub(crate) fn new(ring: Ring) -> Self {
        Self {
            ring,
            queue: VecDeque::new(),
            ranges: VecDeque::new(),
            copies: VecDeque::new(),
            words: Pending::default(),
            carrying: 0,
            intents: VecDeque::new(),
            frees: VecDeque::new(),
            copied: 0,
            stable: 0,
            retiring: 0,
            announced: 0,
            gone: 0,
            copied_at: None,
            copied_by: usize::MAX,
            uncopied: 0,
            spare: Vec::new(),
            lines: FlushSet::default(),
            applied: 0,
            scratch: Vec::new(),
        }
    }

    /// Transactions that are not applied.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    // ---- around a commit --------------------------------------------------------------------------------------------

    /// Before a record is appended: it will say that all stable entries are retired.
    #[inline]
    pub(crate) fn before_append(&mut self) {
        if let Some(last) = self.stable.checked_sub(1) {
            self.ring.retire(self.queue[last].end);
            self.retiring = self.stable;
        }
    }

    /// The one drain of a commit, with everything else that waits for one.
    #[inline]
    #[track_caller]
    pub(crate) fn drain(&mut self, ground: &Ground) -> Result<()> {
        ground.pool.flush_set(&mut self.lines)?;
        let persisted = ground.pool.drain()?;
        behind::drained();
        self.ring.forced(&persisted);
        self.drained(&persisted);
        self.unlock_early(ground)
    }

    fn drained(&mut self, persisted: &Persisted) {
        if self.copied_at.is_some_and(|moment| moment.is_covered_by(persisted)) {
            self.copies_are_stable();
        }
    }

    #[inline]
    fn copies_are_stable(&mut self) {
        let (ranges, copies) = self.to_copy(self.stable..self.copied);
        self.ranges.drain(..ranges);
        self.copies.drain(..copies);
        self.stable = self.copied;
        self.copied_at = None;
    }

    /// Ranges and copies of these entries.
    #[inline]
    fn to_copy(&self, entries: std::ops::Range<usize>) -> (usize, usize) {
        self.queue.range(entries).fold((0, 0), |(ranges, copies), c| (ranges + c.ranges, copies + c.copies))
    }

    /// What must wait for the retirement, for tests in front of it.
    #[inline]
    fn unlock_early(&mut self, ground: &Ground) -> Result<()> {
        let release = ground.failpoints.skips(Step::ReleaseLate);
        if !release && !ground.failpoints.skips(Step::UnlockLate) {
            return Ok(());
        }
        let words: usize = self.queue.range(..self.stable).map(|c| c.words).sum();
        self.words.unlock(words);
        if release {
            let frees: usize = self.queue.range(..self.stable).map(|c| c.frees).sum();
            self.queue.range_mut(..self.stable).for_each(|c| c.frees = 0);
            self.frees.drain(..frees).try_for_each(|block| ground.alloc.release(block))?;
        }
        Ok(())
    }

    /// After the drain behind a record: what it retired, and one before it, is gone for good. One alone could go bad, and the locks given up
    /// for it have let others change what the records that come up again then would change back.
    #[inline]
    pub(crate) fn after_append(&mut self, ground: &Ground) {
        self.gone = if ground.failpoints.skips(Step::RetireTwice) { self.retiring } else { self.announced };
        self.announced = std::mem::take(&mut self.retiring);
    }

    /// Gives up what transactions that are gone still hold. The next transaction does that: right behind a drain, the atomic operations would wait
    /// for it.
    #[inline]
    pub(crate) fn release(&mut self, ground: &Ground) -> Result<()> {
        let gone = std::mem::take(&mut self.gone);
        self.announced -= gone;
        (0..gone).try_for_each(|_| self.pop(ground))
    }

    /// Takes note of a transaction that the next drain makes durable. Should it fail, nothing here matters any more.
    #[inline]
    pub(crate) fn push(&mut self, ground: &Ground, parts: &Parts<'_>, stage: &mut Stage) {
        // One or two elements are the rule: `extend` would prepare for many.
        for &range in parts.ranges {
            let mut image = [0; SHORT as usize];
            if ground.policy != Policy::Eaw && record::is_short(&range) {
                // the transaction is the writer of these bytes, and at its end.
                let main = raw::bytes(Claim::Writer, ground, &ground.pool, range.0, range.1).unwrap_or_default(); // was in bounds before
                image[..main.len()].copy_from_slice(main);
            }
            self.uncopied += range.1;
            self.ranges.push_back(Written { range, staged: stage.index_of(&range), image });
        }
        parts.copies.iter().for_each(|&copy| self.copies.push_back(copy));
        let number = self.applied + self.queue.len() as u64;
        for &(word, carried) in parts.words {
            let told = match (carried, parts.checksummed) {
                (true, _) => Told::Carried,
                (false, true) => Told::Checksummed,
                (false, false) => Told::Bare,
            };
            self.words.push(word, told, number);
        }
        parts.intents.iter().for_each(|&intent| self.intents.push_back(intent));
        parts.frees.iter().for_each(|&block| self.frees.push_back(block));
        let short = parts.ranges.iter().any(record::is_short);
        self.carrying += usize::from(short);
        self.queue.push_back(Committed {
            end: parts.end,
            ranges: parts.ranges.len(),
            copies: parts.copies.len(),
            words: parts.words.len(),
            intents: parts.intents.len(),
            frees: parts.frees.len(),
            short,
            image: stage.take(&mut self.spare),
        });
    }

    /// Copies what was committed before when enough has come together, in transactions or in bytes, or the ring fills up, while the bytes are in this thread's cache. Called
    /// right before a commit's drain, which then waits for both: an atomic read-modify-write in between would wait for the copies alone.
    #[inline]
    #[track_caller]
    pub(crate) fn copy_if_due(&mut self, ground: &Ground) {
        let waiting = self.queue.len() - self.copied;
        let filled = self.uncopied >= BATCH_BYTES || self.ring.unretired() > self.ring.capacity() / 4;
        if waiting >= ground.batch || waiting > 0 && filled {
            ground.after_durable(self.copy(ground)); // of transactions that are
        }
    }

    fn pop(&mut self, ground: &Ground) -> Result<()> {
        let Some(gone) = self.queue.pop_front() else { return Ok(()) };
        self.copied -= 1;
        self.stable -= 1;
        self.words.pop(gone.words);
        self.carrying -= usize::from(gone.short);
        for block in self.frees.drain(..gone.frees) {
            if let Some(copies) = &ground.copies {
                copies.catalog.forget_block(&block);
            }
            behind::modifies();
            ground.alloc.release(block)?;
        }
        self.applied += 1;
        Ok(())
    }

    // ---- applying ---------------------------------------------------------------------------------------------------

    /// Copies what was committed to the backup, and carries its intents out.
    #[track_caller]
    pub(crate) fn copy(&mut self, ground: &Ground) -> Result<()> {
        if !ground.failpoints.skips(Step::DoubtStays) {
            ground.pool.check_usable()?; // the last entry's own drain may have failed: then it is not known whether it was committed
        }
        let here = thread_number();
        if self.copied > self.stable && self.copied_by != here {
            // Another thread's copies: our drain does not cover them.
            self.copied = self.stable;
        }
        while let Some(intent) = self.intents.front() {
            behind::modifies();
            ground.alloc.apply(intent, &mut self.lines)?;
            self.intents.pop_front();
        }
        if ground.copies.is_some() {
            self.copy_to_copies(ground)?;
        }
        if ground.policy == Policy::InPlace {
            self.copy_to_backup(ground)?;
        }
        if ground.policy == Policy::Eaw {
            self.flush_stored(ground)?;
        }
        self.uncopied = 0;
        for entry in self.queue.range_mut(self.copied..) {
            entry.intents = 0;
        }
        self.copied = self.queue.len();
        self.copied_at = Some(ground.pool.moment());
        self.copied_by = here;
        if ground.failpoints.skips(Step::RetireLate) {
            self.copies_are_stable();
        }
        Ok(())
    }

    /// Policy `eaw`: flushes what the commits have stored in main, each line once.
    #[track_caller]
    fn flush_stored(&mut self, ground: &Ground) -> Result<()> {
        let (from, _) = self.to_copy(self.stable..self.copied);
        for &Written { range: (offset, len), .. } in self.ranges.range(from..) {
            match len <= FEW_LINES * pmem::LINE {
                true => ground.pool.add_lines(&mut self.lines, offset, len),
                false => drop(ground.pool.flush(offset, len)?),
            }
        }
        Ok(())
    }

    /// Puts the ranges that are not copied into the backup.
    #[track_caller]
    fn copy_to_backup(&mut self, ground: &Ground) -> Result<()> {
        let (mut range, _) = self.to_copy(self.stable..self.copied);
        // Each begins with a miss: some of them at a time.
        let touch = |written: &Written| ground.touch_backup(written.range);
        let mut ahead = self.ranges.range(range..);
        ahead.by_ref().take(AHEAD).for_each(touch);
        for entry in self.queue.range_mut(self.copied..) {
            let image = std::mem::take(&mut entry.image);
            for &Written { range: (offset, len), staged, image: carried } in
                self.ranges.range(range..range + entry.ranges)
            {
                ahead.by_ref().take(1).for_each(touch);
                if let Some(bytes) = image.get(staged as usize..).filter(|_| !image.is_empty()) {
                    ground.store_in_backup(offset, &bytes[..len as usize])?;
                } else if !record::is_short(&(offset, len)) || ground.failpoints.skips(Step::CarriedImage) {
                    ground.copy_to_backup(offset, len)?;
                } else {
                    ground.put_in_backup(offset, &carried[..len as usize], &mut self.lines)?;
                    if !ground.failpoints.skips(Step::CarriedMain) {
                        ground.pool.add_lines(&mut self.lines, offset, len); // before its zone can be clean
                    }
                }
            }
            range += entry.ranges;
            stage::give_back(&mut self.spare, void(ground, &mut entry.image, image));
        }
        Ok(())
    }

    /// The same for a partial backup: what has a copy. The rest is new.
    fn copy_to_copies(&mut self, ground: &Ground) -> Result<()> {
        let Some(copies) = &ground.copies else { return Ok(()) };
        let (mut range, mut copy) = self.to_copy(self.stable..self.copied);
        self.copies.range(copy..).take(AHEAD).for_each(|copied| ground.pool.prefetch(copied.at, 1)); // parallel misses
        for entry in self.queue.range_mut(self.copied..) {
            let image = std::mem::take(&mut entry.image);
            let written = self.ranges.range(range..range + entry.ranges);
            for &Written { range: (offset, len), .. } in written.clone().filter(|w| record::is_short(&w.range)) {
                ground.pool.add_lines(&mut self.lines, offset, len); // before its copy can be given up
            }
            let copied = self.copies.range(copy..copy + entry.copies).copied();
            join(written.map(|w| (w.range, w)), copied, |w, main, backup, n| {
                let from = (main - w.range.0) as usize;
                if let Some(bytes) = image.get(w.staged as usize..).filter(|_| !image.is_empty()) {
                    // as below.
                    return raw::store(Claim::Applying, &ground.pool, backup, &bytes[from..][..n as usize]);
                }
                if !record::is_short(&w.range) || ground.failpoints.skips(Step::CarriedImage) {
                    // the object is pending, and its copy ours: see `Claim::Applying`.
                    return raw::copy(Claim::Applying, &ground.pool, main, backup, n);
                }
                // as above.
                raw::bytes_mut(Claim::Applying, ground, &ground.pool, backup, n)?
                    .copy_from_slice(&w.image[from..from + n as usize]);
                ground.pool.add_lines(&mut self.lines, backup, n);
                Ok(())
            })?;
            (range, copy) = (range + entry.ranges, copy + entry.copies);
            stage::give_back(&mut self.spare, void(ground, &mut entry.image, image));
        }
        let freed: usize = self.queue.range(..self.copied).map(|c| c.frees).sum();
        self.frees.range(freed..).try_for_each(|block| copies.catalog.give_up(block, &mut self.lines))
    }

    /// Appends a record that says what every record says: what is durable, and what is retired.
    #[track_caller]
    fn say_nothing(&mut self) -> Result<()> {
        record::begin(&mut self.scratch, RETIRED, &[]);
        match self.ring.append(&[&self.scratch]) {
            // Of an open transaction's old bytes. Then the mark is alone.
            Ok(_) | Err(PoolError::RingFull { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes every entry stable: at most one barrier.
    #[track_caller]
    fn stabilise(&mut self, ground: &Ground) -> Result<()> {
        if self.stable < self.queue.len() {
            self.copy(ground)?;
            self.drain(ground)?;
        }
        Ok(())
    }

    /// Applies everything, and retires it persistently: at most two barriers. Then nothing of this slot is pending.
    #[track_caller]
    pub(crate) fn apply(&mut self, ground: &Ground) -> Result<()> {
        self.stabilise(ground)?;
        self.before_append();
        let gone = std::mem::take(&mut self.retiring);
        if gone > 0 {
            if !ground.failpoints.skips(Step::ApplyRetires) {
                self.retire(ground)?;
            }
            (self.announced, self.gone) = (0, 0);
            (0..gone).try_for_each(|_| self.pop(ground))?;
        }
        Ok(())
    }

    /// Makes the retirement persistent in two places with one barrier: the ring's mark, and a record that says nothing else.
    #[track_caller]
    fn retire(&mut self, ground: &Ground) -> Result<()> {
        if !ground.failpoints.skips(Step::RetireTwice) {
            self.say_nothing()?;
        }
        self.ring.reclaim()?;
        Ok(self.ring.force()?) // if the mark had said it already
    }

    /// After recovery: nothing in the ring is needed any more.
    #[track_caller]
    pub(crate) fn retire_all(&mut self, ground: &Ground) -> Result<()> {
        self.ring.retire(self.ring.head());
        self.retire(ground)
    }

    /// Makes the slot the writer of an object again that it has pending, or lets it free it: at most one barrier, two if everything has to be applied. Else it says what the
    /// lock word was found to be, and what the object is owed is as before.
    ///
    /// Nothing is owed to free the object: its bytes stay until both records are retired.
    #[track_caller]
    pub(crate) fn rewrite(
        &mut self,
        ground: &Ground,
        slot: usize,
        (word, readers, marked): (Word, u32, bool),
        to_free: bool,
    ) -> Result<Attempt> {
        self.release(ground)?;
        let Some(at) = self.words.find(word) else { return Ok(Err(lock::load(word.get()))) };
        // Its record restores nothing under other policies; only its intents count, and they are of before.
        if matches!(ground.policy, Policy::InPlace | Policy::InPlacePartial)
            && !to_free
            && !ground.failpoints.skips(Step::Stabilise)
        {
            match self.owed(ground, at) {
                Owed::Nothing => {}
                Owed::Stable => self.stabilise(ground)?,
                Owed::Applied => {
                    self.apply(ground)?;
                    return Ok(Err(lock::load(word.get())));
                }
            }
        }
        let taken = self.words.take(at, slot, readers, marked).unwrap_or_else(|| Err(lock::load(word.get())));
        if taken.is_err() && ground.failpoints.skips(Step::OwedStays) {
            self.words.forget(at);
        }
        Ok(taken)
    }

    /// A transaction of the slot gives back what it had taken by [`rewrite`](Self::rewrite), unchanged: pending again, or free if it has been applied. `given` says whether it had
    /// this one, and how many readers stay.
    pub(crate) fn give_back(&mut self, slot: usize, mut given: impl FnMut(Word) -> Option<u8>) {
        self.words.take_back(|word| {
            let Some(readers) = given(word) else { return false };
            lock::set_pending_but(word.get(), slot, readers);
            true
        });
    }

    fn owed(&self, ground: &Ground, at: usize) -> Owed {
        let carries = self.carrying > 0 && !ground.failpoints.skips(Step::CarriedFirst);
        match self.words.told(at) {
            Some((told, number)) => told.owed(number < self.applied + self.stable as u64, carries),
            None => Owed::Applied,
        }
    }
}

/// The image of an entry whose ranges have just been copied is its no longer.
#[inline]
fn void(ground: &Ground, of: &mut Vec<u8>, mut image: Vec<u8>) -> Vec<u8> {
    if ground.failpoints.skips(Step::StagedOnce) {
        image.fill(0xEE); // as the next transaction does
        std::mem::swap(of, &mut image);
    }
    image
}
