//! Commit: parts complete at all members under one number, one barrier, then the files.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::Duration;

use pmem::Pool;
use pmem::sync::MutexGuard;
use smallvec::SmallVec;

use super::Array;
use super::chunks::{Chunk, Chunks};
use super::failpoints::Step;
use super::files::{File, file_mut};
use super::layout::Checksummed;
use super::member::{Duty, State};
use super::order::Order;
use super::part::Part;
use super::parts::Parts;
use crate::error::{Error, Result};

/// Members that have a part, in their order.
type Members = SmallVec<[usize; 2]>;
/// What their locks guard.
type States<'a> = SmallVec<[MutexGuard<'a, State>; 2]>;

/// For each of some members, the first number that is not durable there.
pub(super) type Limits = SmallVec<[u64; 2]>;

/// So often a transaction that finds no room in the log, which cannot grow, makes a checkpoint.
const SPACE_TRIES: u32 = 100;
/// So many bytes are stored so quickly that others can wait for it.
const QUICK_MAX: u64 = 16 << 10;
/// A sleeper looks by itself after this long.
const LOOK: Duration = Duration::from_millis(10);

/// A transaction that is durable. When this is dropped, it is in the files, unless others that have a number before it are on their way; a reader there applies it. On files
/// it stays in the log for some commits more, where reads find it.
///
/// Between the two there is time to tell others: they need not wait for the copying.
#[derive(Debug)]
pub struct Committed<'a> {
    array: &'a Array,
    sequence: u64,
    members: Members,
}

impl Committed<'_> {
    /// Its number in the order of commits; 0 if there was nothing to commit.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Drop for Committed<'_> {
    fn drop(&mut self) {
        if self.array.check_process().is_err() {
            return; // it is the parent's to do, and a lock may be held by a thread that is not here
        }
        // As far as those before it are durable. If it cannot be applied yet, another thread does it: one that reads there, or commits next.
        let mut states: States<'_> = self.members.iter().map(|m| self.array.members[*m].lock()).collect();
        if let Err(error) = self.array.apply_now(&self.members, &mut states) {
            // After a barrier failed. The log has it.
            tracing::warn!(%error, "what is committed could not be copied to the files; it is when the array is opened");
        }
    }
}

/// A commit between its number and its drain: if it does not get there, it is unknown whether it happened. Or what is done for others with a drain.
struct Underway<'a> {
    array: &'a Array,
    is_done: bool,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let order = self.array.order.lock();
            self.array.stopped.store(true, Release);
            drop(order);
            self.array.wake();
        }
    }
}

impl Array {
    /// Everything that a transaction has logged.
    pub(super) fn commit<'a>(&'a self, parts: Parts<'a>) -> Result<Committed<'a>> {
        self.commit_at(parts, usize::MAX)
    }

    /// Stops when so many members have their parts complete: what a crash may leave.
    pub(super) fn commit_at<'a>(&'a self, mut parts: Parts<'a>, most: usize) -> Result<Committed<'a>> {
        self.check_usable()?;
        let members = parts.in_order();
        let placed = std::mem::take(&mut parts.placed);
        parts.list.iter_mut().try_for_each(|part| self.take_space(part))?;
        let is_due = parts.list.iter().any(|part| part.is_due);

        // On memory the checksums of much cost more than a barrier, behind which the data needs none.
        let bytes: u64 = parts.list.iter().flat_map(|part| &part.pieces).map(|piece| u64::from(piece.len)).sum();
        let is_large = bytes > QUICK_MAX;
        let drained = bytes > self.checksum_max && members.iter().all(|member| self.members[*member].is_memory());
        let store = |part: &mut Box<Part>| part.store((!drained).then_some(&self.members[part.member].keys.data));
        if is_large || drained {
            parts.list.iter_mut().try_for_each(store)?; // before it has a number, for which others wait
        }
        let first = match drained && self.has(Step::DataFirst) {
            true => members.iter().chain(&placed).copied().collect(),
            false if self.has(Step::PlacedFirst) => placed,
            false => Members::new(),
        };
        if !first.is_empty() {
            self.drain(&first)?;
        }
        if members.is_empty() {
            return Ok(Committed { array: self, sequence: 0, members });
        }

        if self.starving.load(SeqCst) > 0 {
            self.wait(|_| self.starving.load(SeqCst) == 0)?;
        }

        // From the number to the barrier no lock is taken: for that a processor would empty its write buffers, which is the barrier's work.
        let mut underway = Underway { array: self, is_done: false };
        let duties = if is_due { self.take_duties(&members)? } else { SmallVec::new() };
        let (sequence, durable) = self.order.lock().checksum(members.iter().copied());
        if !(is_large || drained) {
            parts.list.iter_mut().try_for_each(store)?;
        }
        let mut checksums = SmallVec::<[u64; 2]>::new();
        for part in &mut parts.list {
            checksums.push(part.checksum(&self.members[part.member].keys, self.chunk, self.entries)?);
        }
        let mut line = Checksummed {
            checksum: 0,
            sequence,
            digest: self.digest.checksum_words(checksums.iter().copied()),
            part: 0,
            participants: members.iter().fold(0, |set, member| set | 1 << member),
            tid: parts.tid.number,
            durable_back: u32::try_from(sequence - durable).unwrap_or(u32::MAX),
            count: 0,
            meta: 0,
            drained: drained.into(),
            inline: 0,
        };
        for (part, checksum) in parts.list.iter_mut().zip(checksums).take(most) {
            (line.part, line.count, line.inline) = (checksum, part.pieces.len() as u32, part.is_inline.into());
            line.meta = if part.is_inline { 0 } else { part.meta[0].number };
            line.checksum = self.members[part.member].keys.checksum(&line);
            part.slot.as_mut().ok_or(Error::Stopped)?.put_lines(0, pmem::bytes_of(&line))?;
        }
        if !self.has(Step::ApplyLate) {
            self.enqueue(sequence, &mut parts).iter_mut().try_for_each(|state| state.apply(u64::MAX))?;
        }
        if self.has(Step::CommitBarrier) {
            self.drain(&members)?; // the barrier
        }
        if most < members.len() {
            return Err(Error::Stopped);
        }
        let states = self.enqueue(sequence, &mut parts);
        self.order.lock().pass(sequence, &members);
        drop(states);
        for (member, duty) in members.iter().zip(duties) {
            self.duty_done(*member, duty);
        }
        self.wake();
        underway.is_done = true;
        Ok(Committed { array: self, sequence, members })
    }

    /// Writes it in one piece, if the medium takes it so, and no log has anything for that place: recovery would apply that over it. Nor while a transaction
    /// commits here: then a log costs less, as commits that come at the same time share a barrier.
    pub(super) fn write_whole(&self, file: &File, offset: u64, data: &[u8]) -> Result<bool> {
        self.check_usable()?;
        let len = data.len() as u64;
        file.check(self.id, offset, len)?;
        let mut pieces = self.striping.cut(offset, len);
        let (Some(piece), None) = (pieces.next(), pieces.next()) else { return Ok(false) };
        let mut state = self.members[piece.member].lock();
        let is_logged = state.holds(file.number(), piece.local, len) && self.has(Step::LogFirst);
        if is_logged || self.order.lock().is_committing(piece.member) {
            return Ok(false);
        }
        let area = file_mut(&mut state.files, file.number())?;
        if !self.has(Step::Whole) {
            area.copy_nt(piece.local, data)?;
            area.drain()?;
            return Ok(true);
        }
        let mut underway = Underway { array: self, is_done: false };
        let done = area.write_whole(piece.local, data)?;
        underway.is_done = true;
        Ok(done)
    }

    /// What is durable waits at its members for its turn to be applied.
    fn enqueue(&self, sequence: u64, parts: &mut Parts<'_>) -> States<'_> {
        parts.tid.hold(parts.list.len() as u32);
        let mut states = States::new();
        for part in parts.list.drain(..) {
            let mut state = self.members[part.member].lock();
            state.enqueue(sequence, parts.tid.number, part);
            states.push(state);
        }
        states
    }

    fn take_duties(&self, members: &[usize]) -> Result<SmallVec<[Duty; 2]>> {
        let duty = |member: &usize| self.take_duty(*member, &mut self.members[*member].lock(), false);
        members.iter().map(duty).collect()
    }

    /// Places in the log for what is in memory, and chunks for that and for the metadata.
    fn take_space(&self, part: &mut Part) -> Result<()> {
        let data = part.place(self.chunk);
        let meta = if part.is_inline { 0 } else { part.pieces.len().div_ceil(self.entries as usize - 1) };
        while part.data.len() < data {
            part.data.push(self.take_log(part.member)?);
        }
        while part.meta.len() < meta {
            part.meta.push(self.take_chunk(part.member, State::take_meta, |state| &mut state.meta)?);
        }
        Ok(())
    }

    /// A chunk of a member's log.
    pub(super) fn take_log(&self, member: usize) -> Result<Chunk> {
        self.take_chunk(member, State::take_log, |state| &mut state.log)
    }

    pub(super) fn take_chunk(
        &self,
        member: usize,
        take: fn(&mut State) -> Option<Chunk>,
        chunks: fn(&mut State) -> &mut Chunks,
    ) -> Result<Chunk> {
        let mut tries = 0;
        loop {
            let mut state = self.members[member].lock();
            if let Some(chunk) = take(&mut state) {
                return Ok(chunk);
            }
            let mut first = None;
            if tries > 0 {
                match chunks(&mut state).grow() {
                    Err(full @ Error::LogFull { .. }) => {
                        // Others have taken what the checkpoint freed. What they have committed, or are about to, another one frees.
                        let order = self.order.lock();
                        first = order.is_committing(member).then(|| order.limit(member));
                        if tries == SPACE_TRIES || first.is_none() && state.newest() == 0 {
                            return Err(full);
                        }
                    }
                    other => {
                        other?;
                        continue;
                    }
                }
            }
            drop(state);
            if let Some(first) = first {
                self.wait(|order| order.limit(member) > first)?; // it has all the space that it needs, and ends
            }
            self.checkpoint()?; // what is committed may give some back
            tries += 1;
        }
    }

    /// One barrier for each pool that one of these members is in.
    #[track_caller]
    fn drain(&self, members: &[usize]) -> Result<()> {
        let is_first = |(index, member): &(usize, &usize)| {
            members[..*index].iter().all(|earlier| self.drains[*earlier] != self.drains[**member])
        };
        let pools = members.iter().enumerate().filter(is_first).map(|(_, member)| &self.members[*member].pool);
        Ok(Pool::drain_all(&pools.collect::<SmallVec<[&Pool; 2]>>())?)
    }

    /// What this commit does for others at a member, if no other does.
    fn take_duty(&self, member: usize, state: &mut State, always: bool) -> Result<Duty> {
        if !(always || state.is_due()) {
            return Ok(Duty::default());
        }
        let mut order = self.order.lock();
        if order.is_busy(member) {
            return Ok(Duty::default());
        }
        if state.is_late_due() {
            state.apply(order.limit(member))?;
        }
        if !self.has(Step::ApplyFirst) {
            order.washed(member, state.newest());
        }
        if !self.has(Step::WashFirst) {
            state.applied_through().into_iter().for_each(|through| order.washed(member, through));
        }
        let retired = order.retired(self.has(Step::RetireInOrder));
        let duty = state.duty(&self.members[member].pool, retired, self.has(Step::MarkTwice))?;
        order.set_busy(member, !duty.is_none());
        Ok(duty)
    }

    fn duty_done(&self, member: usize, duty: Duty) {
        if duty.is_none() {
            return;
        }
        let mut state = self.members[member].lock();
        let mut order = self.order.lock();
        order.set_busy(member, false);
        if let Some(through) = state.done(duty, self.has(Step::MarkTwice), &self.tids) {
            order.washed(member, through);
        }
    }

    /// Applies, at these members, whose states these are, all that may be and need not stay in the log. Returns for each the first number that may not be read.
    pub(super) fn apply_now(&self, members: &[usize], states: &mut [MutexGuard<'_, State>]) -> Result<Limits> {
        let order = self.order.lock();
        let limits: Limits = members.iter().map(|member| order.limit(*member)).collect();
        drop(order);
        states.iter_mut().zip(&limits).try_for_each(|(state, limit)| state.apply_now(*limit))?;
        Ok(limits)
    }

    /// Everything committed is persistent in the files, and no log is needed any more. Three barriers.
    ///
    /// # Errors
    /// Those of a drain; [`Error::Stopped`].
    pub fn checkpoint(&self) -> Result<()> {
        let members: Vec<usize> = (0..self.members.len()).collect();
        // What is committed now can be applied, and nothing before it keeps its log, at whatever member that is.
        let newest = self.members.iter().map(|member| member.lock().newest()).max().unwrap_or(0);
        self.wait(|order| members.iter().all(|member| order.limit(*member) > newest))?;
        let mut underway = Underway { array: self, is_done: false };
        // Wash; then the mark; then its other slot.
        for _ in 0..3 {
            self.check_usable()?;
            let mut duties = Vec::with_capacity(members.len());
            for member in &members {
                duties.push(loop {
                    self.wait(|order| !order.is_busy(*member))?;
                    let mut state = self.members[*member].lock();
                    let limit = self.order.lock().limit(*member);
                    state.apply(limit)?;
                    let duty = self.take_duty(*member, &mut state, true)?;
                    if !duty.is_none() || !self.order.lock().is_busy(*member) {
                        break duty;
                    }
                });
            }
            let busy: Vec<usize> =
                members.iter().zip(&duties).filter(|(_, duty)| !duty.is_none()).map(|(member, _)| *member).collect();
            self.drain(&busy)?;
            for (member, duty) in members.iter().zip(duties) {
                self.duty_done(*member, duty);
            }
            self.wake();
        }
        underway.is_done = true;
        Ok(())
    }

    /// Until others have got so far. Each of them ends, with an error if need be.
    pub(super) fn wait(&self, is_there: impl Fn(&Order) -> bool) -> Result<()> {
        for tries in 0_u32.. {
            self.check_usable()?;
            if is_there(&self.order.lock()) {
                break;
            }
            match tries {
                _ if pmem::sync::wait_point() => {}
                0..50 => std::hint::spin_loop(),
                50..80 => std::thread::yield_now(),
                _ => self.sleep(&is_there),
            }
        }
        Ok(())
    }

    /// A thread that changes the order does it under its lock, and then looks for sleepers; so it sees this one, or this one sees the change.
    fn sleep(&self, is_there: &impl Fn(&Order) -> bool) {
        self.sleepers.fetch_add(1, SeqCst);
        pmem::sync::park_while(self.address(), LOOK, || {
            let order = self.order.lock();
            !self.stopped.load(Acquire) && !is_there(&order)
        });
        self.sleepers.fetch_sub(1, SeqCst);
    }

    pub(super) fn wake(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            pmem::sync::unpark(self.address());
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&self.order) as usize
    }
}
