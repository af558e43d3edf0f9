//! Commit: parts sealed at all members under one number, one barrier, then the files.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use pmem::sync::MutexGuard;

use super::Array;
use super::chunks::Chunk;
use super::layout::Sealed;
use super::member::{Body, Duty, State};
use super::order::Order;
use super::sabotage::Step;
use super::tid::Tid;
use crate::error::{Error, Result};

/// A sleeper looks by itself after this long.
const LOOK: Duration = Duration::from_millis(10);

/// A transaction that is durable. When this is dropped, it is in the files; until then whoever reads there sees to it.
///
/// Between the two there is time to tell others: they need not wait for the copying.
#[derive(Debug)]
pub struct Committed<'a> {
    array: &'a Array,
    sequence: u64,
    members: Vec<usize>,
}

impl Committed<'_> {
    /// Its number in the order of commits; 0 if there was nothing to commit.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl Drop for Committed<'_> {
    fn drop(&mut self) {
        let mut states: Vec<_> = self.members.iter().map(|m| self.array.members[*m].lock()).collect();
        if let Err(error) = self.array.apply(&self.members, &mut states) {
            // In a forked child, where nothing of the array works, or after a barrier failed. The log has it.
            tracing::warn!(%error, "what is committed could not be copied to the files; it is when the array is opened");
        }
    }
}

/// A commit between its number and its drain: if it does not get there, nobody knows whether it happened. Or what is done for others with a drain.
struct Underway<'a> {
    array: &'a Array,
    is_done: bool,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.array.order.lock().failed = true;
            self.array.wake();
        }
    }
}

impl Array {
    /// `parts`: of each member that has one, in their order.
    pub(super) fn commit(&self, tid: Arc<Tid>, parts: Vec<(usize, Body)>) -> Result<Committed<'_>> {
        self.commit_at(tid, parts, usize::MAX)
    }

    /// Stops when so many members have sealed their parts: what a crash may leave.
    pub(super) fn commit_at(&self, tid: Arc<Tid>, mut parts: Vec<(usize, Body)>, most: usize) -> Result<Committed<'_>> {
        let members: Vec<usize> = parts.iter().map(|(member, _)| *member).collect();
        if parts.is_empty() {
            return Ok(Committed { array: self, sequence: 0, members });
        }
        if let Err(error) = self.check_usable().and_then(|()| self.take_metadata(&mut parts)) {
            for (member, body) in parts {
                self.members[member].lock().give_back(body);
            }
            return Err(error);
        }

        // What nobody needs to be alone for: the seals, which read all data, or a barrier in their place.
        let bytes: u64 = parts.iter().flat_map(|(_, body)| &body.pieces).map(|piece| u64::from(piece.len)).sum();
        let drained = parts.iter().all(|(member, _)| self.members[*member].is_memory()) && bytes > self.seal_max;
        for (_, body) in &parts {
            body.flush_data()?;
        }
        if drained && self.has(Step::DataFirst) {
            self.drain(&members)?;
        }
        let mut seals = Vec::with_capacity(parts.len());
        for (member, body) in &mut parts {
            seals.push(body.seal(&self.members[*member].keys, self.chunk, self.entries, !drained)?);
            body.flush_meta(self.entries)?;
        }
        let digest = self.digest.seal_words(seals.iter().copied());
        let participants = members.iter().fold(0, |set, member| set | 1 << member);

        // The number, and the lines by which the parts count.
        let mut underway = Underway { array: self, is_done: false };
        let mut states: Vec<_> = members.iter().map(|member| self.members[*member].lock()).collect();
        let (sequence, durable) = self.order.lock().seal(members.iter().copied());
        let durable_back = u32::try_from(sequence - durable).unwrap_or(u32::MAX);
        let mut duties = Vec::with_capacity(parts.len());
        for ((state, (member, body)), part) in states.iter_mut().zip(parts).zip(seals).take(most) {
            let (count, meta) = (body.pieces.len() as u32, body.meta[0].number);
            let (tid_number, drained) = (tid.number, u32::from(drained));
            let mut line = Sealed {
                seal: 0,
                sequence,
                digest,
                part,
                participants,
                tid: tid_number,
                durable_back,
                count,
                meta,
                drained,
                reserved: 0,
            };
            line.seal = self.members[member].keys.seal(&line);
            state.write_line(&line)?;
            duties.push(self.take_duty(member, state, self.every)?);
            state.enqueue(sequence, Arc::clone(&tid), body);
        }
        if !self.has(Step::ApplyLate) {
            members.iter().zip(&mut states).try_for_each(|(_, state)| state.apply(u64::MAX))?;
        }
        drop(states);
        if self.has(Step::CommitBarrier) {
            self.drain(&members)?; // the barrier
        }
        if most < members.len() {
            return Err(Error::Stopped);
        }
        self.order.lock().durable(sequence);
        for (member, duty) in members.iter().zip(duties) {
            self.duty_done(*member, duty);
        }
        self.wake();
        if self.has(Step::WaitEarlier) {
            self.wait(|order| members.iter().all(|member| order.limit(*member) > sequence))?;
        }
        underway.is_done = true;
        Ok(Committed { array: self, sequence, members })
    }

    /// Chunks for the parts' metadata.
    fn take_metadata(&self, parts: &mut [(usize, Body)]) -> Result<()> {
        let per_chunk = self.entries as usize - 1;
        for (member, body) in parts {
            while body.meta.len() < body.pieces.len().div_ceil(per_chunk) {
                body.meta.push(self.take_chunk(*member, |state| &mut state.meta)?);
            }
        }
        Ok(())
    }

    /// A chunk of a member's log.
    pub(super) fn take_log(&self, member: usize) -> Result<Chunk> {
        self.take_chunk(member, |state| &mut state.log)
    }

    fn take_chunk(&self, member: usize, chunks: fn(&mut State) -> &mut super::chunks::Chunks) -> Result<Chunk> {
        if let Some(chunk) = chunks(&mut self.members[member].lock()).take() {
            return Ok(chunk);
        }
        self.settle()?; // what is committed may give some back
        let mut state = self.members[member].lock();
        let chunks = chunks(&mut state);
        if let Some(chunk) = chunks.take() {
            return Ok(chunk);
        }
        chunks.grow()?;
        chunks.take().ok_or(Error::LogFull { bytes: 0, max: 0 })
    }

    /// One barrier for each pool that one of these members is in.
    #[track_caller]
    fn drain(&self, members: &[usize]) -> Result<()> {
        for (index, member) in members.iter().enumerate() {
            let pool = self.drains[*member];
            if members[..index].iter().all(|earlier| self.drains[*earlier] != pool) {
                self.members[*member].pool.drain()?;
            }
        }
        Ok(())
    }

    /// What this commit does for others at a member, if nobody else does.
    fn take_duty(&self, member: usize, state: &mut State, every: usize) -> Result<Duty> {
        let mut order = self.order.lock();
        if order.is_busy(member) || state.waiting() < every {
            return Ok(Duty::default());
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
        if let Some(through) = state.done(duty, self.has(Step::MarkTwice)) {
            order.washed(member, through);
        }
    }

    /// Applies, at these members, whose states these are, all that may be.
    pub(super) fn apply(&self, members: &[usize], states: &mut [MutexGuard<'_, State>]) -> Result<()> {
        let order = self.order.lock();
        let limits: Vec<u64> = members.iter().map(|member| order.limit(*member)).collect();
        drop(order);
        states.iter_mut().zip(limits).try_for_each(|(state, limit)| state.apply(limit))
    }

    /// Everything committed is persistent in the files, and no log is needed any more. Three barriers.
    ///
    /// # Errors
    /// Those of a drain; [`Error::Stopped`].
    pub fn settle(&self) -> Result<()> {
        let members: Vec<usize> = (0..self.members.len()).collect();
        let mut underway = Underway { array: self, is_done: false };
        // Wash; then the mark; then its other slot.
        for _ in 0..3 {
            self.check_usable()?;
            let mut duties = Vec::with_capacity(members.len());
            for member in &members {
                duties.push(loop {
                    self.wait(|order| !order.is_busy(*member))?;
                    let mut state = self.members[*member].lock();
                    self.apply(&[*member], std::slice::from_mut(&mut state))?;
                    let duty = self.take_duty(*member, &mut state, 0)?;
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
    fn wait(&self, is_there: impl Fn(&Order) -> bool) -> Result<()> {
        for tries in 0_u32.. {
            let order = self.order.lock();
            if order.failed {
                return Err(Error::Stopped);
            }
            if is_there(&order) {
                break;
            }
            drop(order);
            match tries {
                _ if pmem::sync::wait_point() => {}
                0..100 => std::hint::spin_loop(),
                100..500 => std::thread::yield_now(),
                _ => self.sleep(&is_there),
            }
        }
        Ok(())
    }

    /// Who changes the order does it under its lock, and then looks for sleepers; so it sees this one, or this one sees the change.
    fn sleep(&self, is_there: &impl Fn(&Order) -> bool) {
        self.sleepers.fetch_add(1, SeqCst);
        pmem::sync::park_while(self.address(), LOOK, || {
            let order = self.order.lock();
            !order.failed && !is_there(&order)
        });
        self.sleepers.fetch_sub(1, SeqCst);
    }

    fn wake(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            pmem::sync::unpark(self.address());
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&self.order) as usize
    }
}
