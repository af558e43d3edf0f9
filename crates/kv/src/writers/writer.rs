//! Writers: each has a log of its own, in segments, and what it superseded.
//!
//! A log is a row of segments, in each of which records follow one another. A transaction begins on a line. What does not fit into the rest of a segment goes
//! to the next one, so a reader of a log looks there, too, where a record does not verify.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::time::Duration;

use pmem::sync::{CachePadded, OwnMutex};
use pmem::{ChecksumKey, LINE, Pool};

use crate::error::{Error, Result};
use crate::isolation::active::Pin;
use crate::media::checkpoint::{Checkpoint, WRITERS};
use crate::media::header::GRAIN;
use crate::media::mark::Mark;
use crate::media::uses::Use;
use crate::media::watermark::Watermark;
use crate::media::word::Word;
use crate::space::need::Need;
use crate::space::{Segments, Space};
use crate::threads::wait::{Parked, Wait};

pub(crate) struct Writer {
    /// What its transaction is about to do, for readers.
    state: AtomicU64,
    /// Transaction slot of its transaction, plus one.
    owner: AtomicU32,
    /// Transactions committed.
    commits: AtomicU64,
    /// The threads that wait for the end of its commit; whether one may.
    parked: Parked,
    waited_for: AtomicBool,
    /// Held for the length of a commit.
    pub(crate) log: OwnMutex<Log>,
}

/// A thread that waits for a commit looks so often by itself.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes written that are worth a counter that all share.
const WORTH_TELLING: u64 = 64 << 10;

/// No thread commits.
const IDLE: u64 = 0;
/// Its commit has no timestamp yet.
const UNKNOWN: u64 = 1;

/// What a reader learns of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Unknown,
    Preparing(u64),
}

pub(crate) struct Log {
    number: usize,
    /// The lower half of the pool's.
    generation: u16,
    /// Where the segment is that it fills; 0 before the first.
    base: u64,
    segment: u32,
    sequence: u32,
    /// Where the next transaction goes, in the segment.
    at: u64,
    /// Bytes in it; none before the first.
    limit: u64,
    /// What it is for: the needs that may take what is free, down to what it was taken from. New data, say, do not go where a deletion was given room.
    level: Need,
    /// The bytes of it that are for all: as many as there are, or none.
    open: u64,
    /// Of the last transaction in it.
    link: u16,
    /// Behind the last transaction of this session, and behind the last one of it that is known to be durable.
    end: Mark,
    durable: Mark,
    /// What the last force found behind the last transaction, and that one's number.
    forcing: (Mark, u64),
    /// None in a store of format 1.
    watermark: Option<Watermark>,
    /// The number of its last commit, if they have any.
    number_drawn: u64,
    /// Runs that are not flushed: see `durable`.
    unforced: Vec<Run>,
    /// Segments begun, first and number, of which the table on media may not yet say so: the transaction that began them may have turned back, or be gone.
    unnamed: Vec<(u32, u32)>,
    /// Versions that nothing will need once they are out of reach.
    dead: Vec<Dead>,
    /// Tombstones.
    tombstones: Vec<Tombstone>,
    /// Bytes written that are not told yet: see `Checkpointing::account`.
    untold: u64,
}

/// A version that was superseded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dead {
    pub(crate) word: Word,
    /// A reading of the clock behind the moment when the index stopped leading to it.
    pub(crate) unlinked: u64,
}

/// A version that says there is none.
#[derive(Clone, Debug)]
pub(crate) struct Tombstone {
    pub(crate) key: Box<[u8]>,
    pub(crate) word: Word,
    /// Of its commit: a word alone may be of a later one, at the same offset.
    pub(crate) ts: u64,
    pub(crate) unlinked: u64,
}

/// What of a log is not flushed.
pub(crate) struct Unforced {
    pub(crate) runs: Vec<Run>,
    /// First and number of those that the table is to name.
    pub(crate) segments: Vec<(u32, u32)>,
}

/// A run of the image, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) image: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
    pub(crate) sequence: u32,
    pub(crate) segment: u32,
}

impl Log {
    pub(crate) fn new(number: usize, mark: Mark, link: u16, generation: u16) -> Self {
        Self {
            number,
            generation,
            base: 0,
            segment: 0,
            sequence: mark.sequence,
            at: 0,
            limit: 0,
            level: Need::Checkpoint,
            open: 0,
            link,
            end: Mark::START,
            durable: Mark::START,
            forcing: (Mark::START, 0),
            watermark: None,
            number_drawn: 0,
            unforced: Vec::new(),
            unnamed: Vec::new(),
            dead: Vec::new(),
            tombstones: Vec::new(),
            untold: 0,
        }
    }

    // ---- what opening finds ----------------------------------------------------------------------------------

    pub(crate) fn set_watermark(&mut self, watermark: Option<Watermark>) {
        self.watermark = watermark;
    }

    /// How far its watermark says that it was durable, and where that is said.
    pub(crate) fn watermark(&self) -> (Mark, u64) {
        self.watermark.as_ref().map_or((Mark::START, 0), |watermark| (watermark.durable, watermark.offset()))
    }

    /// Everything before this was read, and is durable before the store is used.
    pub(crate) fn set_read(&mut self, through: Mark) {
        (self.end, self.durable) = (through, through);
        self.watermark.iter_mut().for_each(Watermark::is_due);
    }

    /// Recovery found the end here. What comes next goes to a new segment: behind the end there may be half of a record, for which a new one at its offset, half
    /// arrived, could supply just what it lacks.
    pub(crate) fn stop(&mut self, end: Mark, link: u16) {
        (self.sequence, self.at, self.link) = (end.sequence, end.at, link);
    }

    /// Goes on in this segment, of so many bytes: the store was closed.
    pub(crate) fn resume(&mut self, space: &Space, segment: u32, limit: u64) {
        (self.segment, self.base, self.limit) = (segment, space.offset(segment), limit);
        // What it was for is no longer known.
        self.set_level(space, Need::Checkpoint);
        self.at = self.behind(space, self.at);
    }

    /// Records of this need may go on in the segment, and those of needs that would leave less.
    fn set_level(&mut self, space: &Space, level: Need) {
        let open = if level == Need::Data { self.limit } else { 0 };
        if (open > 0) != (self.open > 0) {
            space.reserve.note_begun(open > 0);
        }
        (self.level, self.open) = (level, open);
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { sequence: self.sequence, at: self.at }
    }

    /// It will go on in another segment, if it has one, or had before a crash.
    pub(crate) fn end_segment(&mut self, space: &Space) {
        if self.limit > 0 || self.was_cut() {
            (self.limit, self.at) = (0, 0);
            self.set_level(space, Need::Checkpoint);
            // Before its mark from now on. The number is left out.
            self.sequence = self.sequence.saturating_add(1);
        }
    }

    /// It ends where recovery found its end, in the midst of a segment. Half of a record may stand there, also after the store was closed and opened again.
    pub(crate) fn was_cut(&self) -> bool {
        self.limit == 0 && self.at > 0
    }

    /// The segment it fills.
    pub(crate) fn segment(&self) -> Option<u32> {
        (self.limit > 0).then_some(self.segment)
    }

    /// Bytes that are left of the segment it fills.
    pub(crate) fn rest(&self) -> u64 {
        self.limit.saturating_sub(self.at)
    }

    /// Whether so many bytes of this need fit in the segment it fills.
    pub(crate) fn has_room(&self, space: &Space, len: u64, need: Need) -> bool {
        self.at + len <= self.limit && (need <= self.level || space.is_whole(need))
    }

    /// Whether nothing that is worth a segment fits in there any more.
    pub(crate) fn is_filled(&self, space: &Space) -> bool {
        self.at + space.segment_bytes / 16 >= self.limit
    }

    /// Where a record of so many bytes goes, as a transaction of its own: none if there is more to do for it than to write it.
    #[inline]
    pub(crate) fn next_run(&self, len: u64) -> Option<Run> {
        let (offset, sequence, segment) = (self.base + self.at, self.sequence, self.segment);
        let plain = self.at + len <= self.open && self.unnamed.is_empty();
        plain.then_some(Run { image: 0, len: len as usize, offset, sequence, segment })
    }

    /// Bytes written, once they are worth telling.
    #[inline]
    pub(crate) fn tell(&mut self, space: &Space) -> Option<u64> {
        (self.untold >= WORTH_TELLING.min(space.segment_bytes)).then(|| std::mem::take(&mut self.untold))
    }

    /// Reserves space for the records of a transaction, given by their offsets and lengths in its image: the runs say where they go.
    pub(crate) fn reserve(
        &mut self,
        space: &Space,
        records: impl Iterator<Item = (usize, usize)>,
        need: impl Fn() -> Need,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let begun = self.unnamed.len();
        let reserved = self.reserve_all(space, records, need, runs);
        if reserved.is_err() && self.unnamed.len() > begun {
            // No other writer could have what was begun in vain. Its numbers are left out.
            for (first, count) in self.unnamed.drain(begun..) {
                (first..first + count).for_each(|number| space.give_back(number));
            }
            self.end_segment(space);
        }
        reserved
    }

    #[inline]
    fn reserve_all(
        &mut self,
        space: &Space,
        records: impl Iterator<Item = (usize, usize)>,
        need: impl Fn() -> Need,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        runs.clear();
        let mut at = self.at;
        let mut known = None;
        for (image, len) in records {
            debug_assert!((len as u64).is_multiple_of(GRAIN));
            if at + len as u64 > self.open {
                at = self.go_on(space, at, len as u64, *known.get_or_insert_with(&need))?;
            }
            let here = (self.base + at, self.segment);
            // A segment may begin right behind the last one; its records are named after it.
            let goes_on = |run: &Run| run.sequence == self.sequence && run.offset + run.len as u64 == here.0;
            match runs.last_mut() {
                Some(run) if goes_on(run) && run.image + run.len == image => run.len += len,
                _ => runs.push(Run { image, len, offset: here.0, sequence: self.sequence, segment: here.1 }),
            }
            at = self.behind(space, at + len as u64);
        }
        Ok(())
    }

    /// What the next transaction keeps of the last one.
    #[inline]
    pub(crate) fn link(&self) -> u16 {
        self.link
    }

    /// Before a drain behind which records in these segments count.
    #[inline]
    pub(crate) fn name_segments(&self, space: &Space) -> Result<()> {
        for &(first, count) in &self.unnamed {
            space.flush_words(first, count)?;
        }
        Ok(())
    }

    /// That drain was.
    #[inline]
    pub(crate) fn segments_are_named(&mut self) {
        self.unnamed.clear();
    }

    /// A transaction is in the log, in these runs; `link` is what the next one keeps of it.
    #[inline]
    pub(crate) fn advance(&mut self, space: &Space, runs: &[Run], bytes: usize, link: u16) {
        self.link = link;
        if let Some(last) = runs.last() {
            self.advance_to(space, *last, bytes as u64);
        }
    }

    fn advance_to(&mut self, space: &Space, last: Run, bytes: u64) {
        self.untold += bytes;
        let end = (last.offset + last.len as u64 - self.base).next_multiple_of(LINE);
        // Where recovery stands when it has read it.
        self.end = Mark { sequence: last.sequence, at: end };
        self.at = self.behind(space, end);
    }

    /// Before a drain that makes so many commits durable, behind what is.
    #[inline]
    pub(crate) fn follow(&mut self, pool: &Pool, key: &ChecksumKey, commits: u32) -> Result<()> {
        if let Some(watermark) = &mut self.watermark {
            watermark.follow(pool, key, self.durable, commits)?;
            watermark.count(commits);
        }
        Ok(())
    }

    /// Everything in it is.
    #[inline]
    pub(crate) fn is_durable(&mut self) {
        self.durable = self.end;
    }

    // ---- commits that return before their barrier ------------------------------------------------------------

    /// The number of the commit that is about to be in the log.
    pub(crate) fn set_number(&mut self, number: u64) {
        self.number_drawn = number;
    }

    /// The number of its last commit, if they have any.
    pub(crate) fn number(&self) -> u64 {
        self.number_drawn
    }

    /// A run of that commit is stored, and not flushed.
    pub(crate) fn add_unforced(&mut self, run: Run) {
        self.unforced.push(run);
    }

    /// All of it is stored.
    pub(crate) fn count_unforced(&mut self) {
        if let Some(watermark) = &mut self.watermark {
            watermark.count(1);
        }
    }

    /// Before a drain that makes everything in it durable, for commits that returned before; they are counted. Everything through number `forced` is. Returns what is
    /// to be flushed before.
    pub(crate) fn force(&mut self, pool: &Pool, key: &ChecksumKey, forced: u64) -> Result<Unforced> {
        let (end, number) = self.forcing;
        if number <= forced {
            self.durable = self.durable.max(end);
        }
        self.forcing = (self.end, self.number_drawn);
        if let Some(watermark) = &mut self.watermark {
            watermark.follow(pool, key, self.durable, 0)?;
        }
        Ok(Unforced { runs: std::mem::take(&mut self.unforced), segments: std::mem::take(&mut self.unnamed) })
    }

    // ---- what it superseded ----------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn add_dead(&mut self, dead: Dead) {
        self.dead.push(dead);
    }

    pub(crate) fn add_tombstone(&mut self, tombstone: Tombstone) {
        self.tombstones.push(tombstone);
    }

    /// For a checkpoint, which has the index as it is by now.
    pub(crate) fn take_superseded(&mut self, dead: &mut Vec<Dead>, tombstones: &mut Vec<Tombstone>) {
        dead.append(&mut self.dead);
        tombstones.append(&mut self.tombstones);
    }

    // ---- segments --------------------------------------------------------------------------------------------

    /// Where the next record can go: nothing follows one that has segments of its own, so that each byte in use belongs to the segment it is counted in.
    fn behind(&self, space: &Space, at: u64) -> u64 {
        if self.limit > space.segment_bytes { self.limit } else { at.min(self.limit) }
    }

    /// Where so many bytes go that do not fit in what is for all.
    #[cold]
    fn go_on(&mut self, space: &Space, at: u64, len: u64, need: Need) -> Result<u64> {
        let fits = at + len <= self.limit;
        if fits && need <= self.level {
            return Ok(at);
        }
        if fits && space.make_whole(need) {
            // As if it had been taken now.
            self.set_level(space, need);
            return Ok(at);
        }
        self.begin_segment(space, len, need)?;
        Ok(0)
    }

    fn begin_segment(&mut self, space: &Space, len: u64, need: Need) -> Result<()> {
        let count = len.div_ceil(space.segment_bytes).max(1);
        let max = u64::from(u32::MAX);
        let none_left = Error::Limit { what: "segments of a log, ever", found: max + 1, max };
        let sequence = self.sequence.checked_add(1).ok_or(none_left)?;
        let what = Use::Log { writer: self.number, sequence, generation: self.generation };
        // What is left of the one before is no longer used.
        let before = self.level;
        self.set_level(space, Need::Checkpoint);
        let taken = space.take(what, count as u32, need).inspect_err(|_| self.set_level(space, before))?;
        let Segments { first: segment, level } = taken;
        self.unnamed.push((segment, count as u32));
        self.segment = segment;
        self.base = space.offset(segment);
        self.limit = count * space.segment_bytes;
        self.set_level(space, level);
        self.sequence = sequence;
        self.at = 0;
        Ok(())
    }
}

/// All writers.
pub(crate) struct Writers {
    pub(crate) all: Box<[CachePadded<Writer>]>,
    /// Those before write for groups.
    first: usize,
}

impl Writers {
    /// If `grouped`, the first one is for groups.
    pub(crate) fn new(checkpoint: &Checkpoint, generation: u16, grouped: bool) -> Self {
        let writer = |number: usize| {
            let mark = Mark::from_word(checkpoint.marks[number]);
            let log = OwnMutex::new(Log::new(number, mark, checkpoint.links[number], generation));
            CachePadded(Writer {
                state: IDLE.into(),
                owner: 0.into(),
                commits: 0.into(),
                parked: Parked::default(),
                waited_for: false.into(),
                log,
            })
        };
        Self { all: (0..WRITERS).map(writer).collect(), first: usize::from(grouped) }
    }

    /// One that is not in use: its own for each thread, as long as there are enough.
    #[inline]
    pub(crate) fn claim(&self) -> (usize, pmem::sync::OwnMutexGuard<'_, Log>) {
        let home = self.first + pmem::thread_number() % (WRITERS - self.first);
        if let Some(log) = self.all[home].log.try_lock() {
            return (home, log);
        }
        for number in (home + 1..WRITERS).chain(self.first..home) {
            if let Some(log) = self.all[number].log.try_lock() {
                return (number, log);
            }
        }
        (home, self.all[home].log.lock())
    }

    /// The log of groups, if there are any.
    #[inline]
    pub(crate) fn grouped(&self) -> Option<&OwnMutex<Log>> {
        (self.first > 0).then(|| &self.all[0].log)
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> &Writer {
        &self.all[number % WRITERS]
    }
}

impl Writer {
    /// From here on readers of its keys wait for its timestamp. Before it asks for one.
    #[inline]
    pub(crate) fn prepare(&self, pin: &Pin<'_>) {
        self.owner.store(pin.tx_slot as u32 + 1, Relaxed);
        // A thread that sees the announcement at a leaf, which comes behind this, sees this.
        self.state.store(UNKNOWN, Release);
    }

    #[inline]
    pub(crate) fn prepared(&self, ts: u64) {
        self.state.store(ts + UNKNOWN, Release);
    }

    /// Everything it was to publish is published, or never will be.
    #[inline]
    pub(crate) fn done(&self) {
        self.state.store(IDLE, Release);
    }

    /// Behind [`done`](Self::done), and behind a fence.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.waited_for.load(SeqCst) {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        self.waited_for.store(false, SeqCst);
        self.parked.wake();
    }

    /// Waits until that is so of it: it is about to be done.
    pub(crate) fn await_that(&self, is_so: impl Fn() -> bool) {
        let mut wait = Wait::new();
        if is_so() {
            return;
        }
        let _here = self.parked.here();
        loop {
            self.waited_for.store(true, SeqCst);
            fence(SeqCst);
            if is_so() {
                return;
            }
            wait.for_as_long_as(LOOK);
        }
    }

    /// One more. Its holder says so.
    #[inline]
    pub(crate) fn count(&self) {
        self.commits.store(self.commits.load(Relaxed) + 1, Relaxed);
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Relaxed)
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        match self.state.load(SeqCst) {
            IDLE => State::Idle,
            UNKNOWN => State::Unknown,
            ts => State::Preparing(ts - UNKNOWN),
        }
    }

    /// Whether the transaction in `tx_slot` commits through it.
    #[inline]
    pub(crate) fn is_of(&self, tx_slot: usize) -> bool {
        self.owner.load(Acquire) as usize == tx_slot + 1
    }
}
