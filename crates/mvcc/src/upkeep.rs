//! Upkeep: committed versions go to their masters, and records, versions, headers and blocks are given up that are no longer needed. One pass at a time, by a thread that
//! comes by.
//!
//! A pass goes through K, which is no higher than every commit that is decided.
//!
//! 1. *Collect* what has changed through K. Copy what calls have changed, whose records do not hold it, to a log of its own; barrier. Make K persistent: recovery takes every record at or below it for durable, and does not look at what masters hold (it could not: they
//!    are about to change). Keep a copy of each master that a long snapshot still sees. Draw a timestamp.
//! 2. *Wait* until every transaction slot is at or above it. Such a transaction finds a version at or below K, or a kept copy, and not the master. A pass does not stand still for that: it is gone
//!    on with when a thread comes by next.
//! 3. *Write back* the newest version through K of each object, as far as the master differs, and the bitmaps; barrier. Make W = K persistent.
//! 4. *Finish*: the masters are what they are from now on (`base`), versions go out of the chains, headers and blocks out of use; records at or below W may be overwritten.
//!    What went out of reach is given up when every transaction slot is at or above a timestamp that is drawn now.
//!
//! A long snapshot keeps of each object the newest version at or below it, and no other: in the chain, or as the master, or as a copy of what the master was.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use pmem::sync::switch_point;
use pmem::{Block, LINE};
use tx::{Error, Result};

use crate::core::{Core, Room};
use crate::failpoints::Step;
use crate::header::{Header, NEVER};
use crate::inbox::{Changed, GivenUp};
use crate::log::{Log, SPARE, VERSION_BYTES_MAX};
use crate::pass::{Pass, Pinned, Progress, Upkeep};
use crate::raw::{self, Claim, Owned};
use crate::record;

/// Most passes of one call of `upkeep`.
const PASSES: usize = 4;

impl Core {
    /// Goes on with a pass, as far as it gets, unless another thread does already.
    pub(crate) fn upkeep_if_due(&self, slot: usize) {
        let due = &self.counters[slot].is_due;
        if due.load(Relaxed) != 0 {
            due.store(0, Relaxed);
            if let Some(mut upkeep) = self.upkeep.try_lock() {
                self.note(self.step(&mut upkeep).map(drop));
            }
        }
    }

    /// Passes until there is nothing to do, or a transaction is in the way; a few at most, since others go on. No log is locked by the caller.
    pub(crate) fn upkeep(&self) -> Result<Progress> {
        let mut upkeep = self.upkeep.lock();
        let mut progress = Progress::Done;
        for _ in 0..PASSES {
            if progress == Progress::Done {
                progress = self.step(&mut upkeep)?;
            }
        }
        self.free(&mut upkeep)?;
        Ok(progress)
    }

    /// Before a transaction begins in a slot whose log had no room.
    #[cold]
    pub(crate) fn make_room(&self, slot: usize) -> Result<()> {
        let progress = self.upkeep()?;
        let log = self.logs[slot].lock();
        let has_room = log.room() > SPARE + self.log_bytes / 4 && log.version_bytes <= VERSION_BYTES_MAX;
        let is_own = || self.tx_slots.oldest().is_some_and(|(_, slot)| self.tx_slots.is_own(slot));
        let room = match progress {
            _ if has_room => Room::There,
            Progress::Blocked if is_own() => Room::KeptByOwn,
            _ => Room::Wanted,
        };
        self.counters[slot].set_room(room);
        Ok(())
    }

    fn step(&self, upkeep: &mut Upkeep) -> Result<Progress> {
        self.free(upkeep)?;
        if upkeep.pass.is_none() && !self.collect(upkeep)? {
            return Ok(Progress::Idle);
        }
        let Some(pass) = &upkeep.pass else { return Ok(Progress::Idle) };
        let is_seen = self.tx_slots.oldest().is_some_and(|(oldest, _)| oldest < pass.behind);
        if is_seen && !self.failpoints.skips(Step::WaitRunning) {
            return Ok(Progress::Blocked);
        }
        self.write_back(upkeep)?;
        self.finish(upkeep)?;
        Ok(Progress::Done)
    }

    // ---- collect ----------------------------------------------------------------------------------------------------

    /// Begins a pass; false if there is nothing to do.
    fn collect(&self, upkeep: &mut Upkeep) -> Result<bool> {
        let through = self.tx_slots.decided();
        // A commit whose barrier failed is decided, too, and counted nowhere: K must not pass it, not even in a cache.
        if self.pool.is_read_only() {
            return Ok(false); // all is written back
        }
        self.pool.check_usable()?;
        let held = self.held();
        let mut all = std::mem::take(&mut upkeep.later);
        all.append(&mut self.inbox.lock().listed);
        if held != upkeep.pinned_by {
            for Pinned { changed, uses } in upkeep.pinned.drain(..) {
                let header = self.headers.get(changed.header);
                if header.uses.load(Relaxed) != uses || self.header_of(&changed).is_none() {
                    continue;
                }
                header.is_pinned.store(false, Relaxed);
                // Else it is on a list already.
                if !header.is_listed.swap(true, AcqRel) {
                    all.push(changed);
                }
            }
        }
        let (mut intents, mut filled, mut records) = (Vec::new(), Vec::new(), 0);
        for log in &self.logs {
            let mut log = log.lock();
            all.append(&mut log.changed);
            intents.extend(log.intents.extract_if(.., |intent| intent.0 <= through));
            filled.extend(log.filled.extract_if(.., |filled| filled.0 <= through).map(|filled| filled.1));
            records += log.records.iter().take_while(|record| record.1 <= through).count() as u64;
        }
        all.sort_unstable_by_key(|changed| changed.header);
        debug_assert!(all.array_windows().all(|[one, next]| one.header != next.header), "each is listed once");
        let mut due = Vec::new();
        for changed in all {
            let Some(header) = self.header_of(&changed) else {
                debug_assert!(false, "one that is listed is not given up");
                continue;
            };
            let was_listed = header.is_listed.swap(false, AcqRel);
            debug_assert!(was_listed);
            switch_point();
            match header.chain.at_upkeep(through).is_some() || header.chain.is_empty() && header.base() <= through {
                true => due.push(changed),
                false => upkeep.postpone(changed, header),
            }
        }
        if due.is_empty() && intents.is_empty() && records == 0 {
            return Ok(false);
        }
        let copied = self.copy_called(upkeep, &due, &filled, through)?;
        if !self.failpoints.skips(Step::KFirst) {
            let written = upkeep.cell.get().written;
            Upkeep::write_copied(&mut upkeep.cell, through, written, records, copied)?;
        }
        for changed in &due {
            self.save_master(changed, through, &held)?;
        }
        switch_point();
        let behind = self.tx_slots.tick();
        upkeep.pass = Some(Pass { through, behind, changed: due, intents });
        upkeep.pinned_by = held;
        Ok(true)
    }

    /// Makes persistent what calls through K have done to objects, whose records are of no use behind K. Gives the timestamp of the copies, 0 if there are none.
    fn copy_called(&self, upkeep: &mut Upkeep, due: &[Changed], filled: &[Block], through: u64) -> Result<u64> {
        for block in filled.iter().filter(|_| !self.failpoints.skips(Step::FlushFilled)) {
            self.pool.flush(block.offset(), block.len())?; // its bytes stand as they were: no pass has gone through it
        }
        let (mut ranges, mut data) = (Vec::new(), Vec::new());
        for changed in due {
            self.copy_object(changed, through, &mut ranges, &mut data)?;
        }
        if ranges.is_empty() || self.failpoints.skips(Step::CopyCalled) {
            if !filled.is_empty() {
                self.pool.drain()?; // new objects, before K passes the calls that filled them
            }
            return Ok(0);
        }
        let mut record = Vec::new();
        record::begin(&mut record, ranges.into_iter(), &[], &[])?;
        record.extend_from_slice(&data);
        record::stamp(&mut record, through);
        upkeep.copied += data.len() as u64;
        let mut log = self.copies().lock();
        let appended = log.ring.append(&[&record])?;
        let persisted = self.pool.drain()?; // copies, and new objects, before K passes the calls
        log.ring.forced(&persisted);
        log.records.push_back((appended.end, through, 0));
        Ok(through)
    }

    /// The log of copies.
    pub(crate) fn copies(&self) -> &pmem::sync::OwnMutex<Log> {
        &self.logs[self.logs.len() - 1]
    }

    /// What a call has changed of an object: the lines that differ from the master, or all of it, where recovery will have changed the master by what others have logged.
    fn copy_object(
        &self,
        changed: &Changed,
        through: u64,
        ranges: &mut Vec<record::Bytes>,
        data: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(header) = self.header_of(changed) else { return Ok(()) };
        let (some, all) = header.chain.called(header.base(), through);
        let Some(new) = header.chain.at_upkeep(through).filter(|new| some && !new.gone) else { return Ok(()) };
        let block = &changed.block;
        if !all && !self.failpoints.skips(Step::CopyWhole) {
            ranges.push((block.offset(), block.len()));
            data.extend_from_slice(new.bytes);
            return Ok(());
        }
        self.differing(block, new.bytes, |from, bytes| {
            ranges.push((block.offset() + from as u64, bytes.len() as u64));
            data.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// The header of an object, if it is that one still.
    fn header_of(&self, changed: &Changed) -> Option<&Header> {
        let number = changed.word.get().load(Acquire);
        (number == changed.header).then(|| self.headers.get(number))
    }

    /// Timestamps of the snapshots that are held, in order, each once.
    fn held(&self) -> Vec<u64> {
        let mut held = self.held.lock().clone();
        held.sort_unstable();
        held.dedup();
        held
    }

    /// Keeps what the master holds, if a snapshot needs it behind this pass.
    fn save_master(&self, changed: &Changed, through: u64, held: &[u64]) -> Result<()> {
        let Some(header) = self.header_of(changed) else { return Ok(()) };
        let base = header.base();
        // What comes next behind the master; and whether the master was kept already.
        let newer = header.chain.stamps().take_while(|&stamp| stamp > base).last();
        let is_kept = header.chain.stamps().any(|stamp| stamp == base);
        let is_overwritten = header.chain.at_upkeep(through).is_some_and(|new| new.stamp > base && !new.gone);
        let Some(newer) = newer.filter(|_| is_overwritten && !is_kept) else { return Ok(()) };
        let is_seen = held.get(held.partition_point(|&held| held < base)).is_some_and(|&held| held < newer);
        if is_seen && !self.failpoints.skips(Step::SaveMaster) {
            let (offset, len) = (changed.block.offset(), changed.block.len());
            let mut saved = Owned::new(offset, len);
            saved.bytes_mut().copy_from_slice(raw::bytes(Claim::Upkeep, self, &self.pool, offset, len)?);
            header.chain.save(saved, base);
        }
        Ok(())
    }

    // ---- write back -------------------------------------------------------------------------------------------------

    fn write_back(&self, upkeep: &mut Upkeep) -> Result<()> {
        let Some(pass) = &mut upkeep.pass else { return Ok(()) };
        for changed in &pass.changed {
            let Some(header) = self.header_of(changed) else { continue };
            let through = if self.failpoints.skips(Step::NothingAboveK) { u64::MAX } else { pass.through };
            let new = header.chain.at_upkeep(through);
            if let Some(new) = new.filter(|new| new.stamp > header.base() && !new.gone) {
                upkeep.written_back += self.copy_to_master(&changed.block, new.bytes)?;
                upkeep.objects_back += 1;
            }
        }
        if !self.failpoints.skips(Step::IntentOrder) {
            pass.intents.sort_by_key(|intent| intent.0);
        }
        for (_, intent) in &pass.intents {
            self.alloc.apply(intent, &mut upkeep.lines)?;
        }
        self.pool.flush_set(&mut upkeep.lines)?;
        self.pool.drain()?; // masters and bitmaps, before W says so
        let through = pass.through;
        if self.failpoints.skips(Step::WFirst) {
            return Ok(());
        }
        Upkeep::write_state(&mut upkeep.cell, through, through, 0)
    }

    /// Makes the master what the version is, where they differ; returns how many bytes that were.
    fn copy_to_master(&self, block: &Block, bytes: &[u8]) -> Result<u64> {
        let mut copied = 0;
        self.differing(block, bytes, |from, bytes| {
            let (offset, len) = (block.offset() + from as u64, bytes.len() as u64);
            // no transaction slot resolves to it, and no other thread overwrites masters.
            raw::bytes_mut(Claim::Upkeep, self, &self.pool, offset, len)?.copy_from_slice(bytes);
            self.pool.flush(offset, len)?;
            copied += len;
            Ok(())
        })?;
        Ok(copied)
    }

    /// Calls `f` with the lines that differ from those of the master, as many at a time as there are side by side, and where in the block they begin.
    fn differing(&self, block: &Block, bytes: &[u8], mut f: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
        let line = LINE as usize;
        // A line of the medium, not of the block.
        let end =
            |at: usize| (((block.offset() as usize + at) / line + 1) * line - block.offset() as usize).min(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let first = at;
            while at < bytes.len() && {
                let offset = block.offset() + at as u64;
                raw::bytes(Claim::Upkeep, self, &self.pool, offset, (end(at) - at) as u64)? != &bytes[at..end(at)]
            } {
                at = end(at);
            }
            match at > first {
                true => f(first, &bytes[first..at])?,
                false => at = end(at),
            }
        }
        Ok(())
    }

    // ---- finish -----------------------------------------------------------------------------------------------------

    fn finish(&self, upkeep: &mut Upkeep) -> Result<()> {
        let Some(pass) = upkeep.pass.take() else { return Ok(()) };
        let held = self.held();
        let mut given_up = Vec::new();
        for changed in &pass.changed {
            self.write_objects(upkeep, changed, pass.through, &held, &mut given_up)?;
        }
        for log in &self.logs {
            let mut log = log.lock();
            while let Some((end, _, called)) = log.records.pop_front_if(|record| record.1 <= pass.through) {
                log.ring.retire(end);
                self.called.fetch_sub(called, Relaxed);
            }
            log.version_bytes = 0;
            while let Some((block, _)) = log.spills.pop_front_if(|spill| spill.1 <= pass.through) {
                self.alloc.release(block)?; // it never resolved
            }
        }
        switch_point();
        let at = self.tx_slots.tick();
        upkeep.given_up.extend(given_up.into_iter().map(|given_up| (at, given_up)));
        self.free(upkeep)
    }

    /// The master is as it was at K: takes out of the chain, and out of use, what no transaction that begins from now on needs.
    fn write_objects(
        &self,
        upkeep: &mut Upkeep,
        changed: &Changed,
        through: u64,
        held: &[u64],
        out: &mut Vec<GivenUp>,
    ) -> Result<()> {
        let Some(header) = self.header_of(changed) else { return Ok(()) };
        let new = header.chain.at_upkeep(through).map(|new| (new.stamp, new.gone));
        let gone = new.filter(|new| new.1).map(|new| new.0);
        if let Some((stamp, false)) = new
            && stamp > header.base()
        {
            header.set_base(stamp);
            switch_point();
        }
        let oldest = held.first().copied().unwrap_or(u64::MAX);
        let is_seen = |freed_at| {
            let base = header.base();
            let first = header.chain.stamps().last().map_or(base, |first| first.min(base));
            held.get(held.partition_point(|&held| held < first)).is_some_and(|&held| held < freed_at)
        };
        if let Some(freed_at) = gone
            && (!is_seen(freed_at) || self.failpoints.skips(Step::FreedStays))
        {
            return self.take_out_of_use(upkeep, changed, header, out);
        }
        let base = header.base();
        let below = if gone.is_some() { u64::MAX } else { base };
        let held = &held[..held.partition_point(|&held| held < below)];
        let is_needed = |stamp, newer: Option<u64>| {
            // Some snapshot sees this one, and not the one in front of it.
            let first = held.get(held.partition_point(|&held| held < stamp));
            first.is_some_and(|&held| newer.is_none_or(|newer| held < newer))
        };
        let keep = |stamp, newer| stamp > through || gone == Some(stamp) || is_needed(stamp, newer);
        header.chain.prune(keep, |version| out.push(GivenUp::Version(version)));
        let is_seen_without = oldest >= base || self.failpoints.skips(Step::HeaderStays);
        if header.chain.is_empty() && base <= through && is_seen_without {
            self.drop_header(upkeep, changed, header, out);
        } else if header.newest().0 > through {
            upkeep.postpone(*changed, header);
        } else {
            upkeep.pin(*changed, header);
        }
        Ok(())
    }

    /// The master is what every snapshot sees.
    fn drop_header(&self, upkeep: &mut Upkeep, changed: &Changed, header: &Header, out: &mut Vec<GivenUp>) {
        if header.is_listed.load(Acquire) {
            return; // it comes by again
        }
        if !header.try_kill() {
            // Locked by a transaction that may have looked already whether it is of use, when it had versions.
            upkeep.postpone(*changed, header);
            return;
        }
        switch_point();
        if !header.chain.is_empty() || header.is_listed.load(Acquire) {
            header.unlock(); // a transaction has committed just before
            return;
        }
        changed.word.get().store(0, Release);
        out.push(GivenUp::Header(changed.header));
    }

    /// A freed object that no snapshot sees.
    fn take_out_of_use(
        &self,
        upkeep: &mut Upkeep,
        changed: &Changed,
        header: &Header,
        out: &mut Vec<GivenUp>,
    ) -> Result<()> {
        if header.is_listed.load(Acquire) {
            return Ok(()); // it comes by again
        }
        if !header.try_kill() {
            upkeep.postpone(*changed, header); // locked by a transaction that is about to find it gone
            return Ok(());
        }
        self.alloc.begin_free(&changed.block)?;
        switch_point();
        header.set_base(NEVER); // a thread that has found it already finds nothing behind the versions
        changed.word.get().store(0, Release);
        header.chain.prune(|_, _| false, |version| out.push(GivenUp::Version(version)));
        out.extend([GivenUp::Header(changed.header), GivenUp::Block(changed.block)]);
        Ok(())
    }

    /// Gives up what no transaction slot can look at any more.
    fn free(&self, upkeep: &mut Upkeep) -> Result<()> {
        upkeep.given_up.extend(self.inbox.lock().given_up.drain(..));
        let oldest = self.tx_slots.oldest().map_or(u64::MAX, |(oldest, _)| oldest);
        let early = self.failpoints.skips(Step::ReleaseLate);
        while let Some((_, given_up)) = upkeep.given_up.pop_front_if(|(at, _)| *at <= oldest || early) {
            match given_up {
                GivenUp::Version(version) => drop(version),
                GivenUp::Header(header) => self.headers.give_back(header),
                GivenUp::Block(block) => {
                    self.alloc.release(block).map_err(Error::from)?;
                    self.freed.fetch_sub(1, Relaxed);
                }
            }
        }
        Ok(())
    }
}
