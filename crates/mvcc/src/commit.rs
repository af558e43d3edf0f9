//! How a transaction ends. A commit that changes something has one barrier, a read-only one and an abort none.
//!
//! 1. The record is made, of what was written, or of the call that wrote it, and has its place in the log: no thread waits for space from here on.
//! 2. The commit is announced, then its timestamp drawn. From now on transactions that have to see it wait for it.
//! 3. What was read is looked at again: nothing of it may have been changed since the snapshot. Of the transactions that are about to commit, only smaller timestamps are
//!    waited for.
//! 4. New objects are flushed, and the record, which has a checksum over them: **the one barrier**.
//! 5. The versions are put in front of their chains, the locks given up, the commit decided.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use pmem::{Block, Intent};
use tx::{Error, Isolation, Result};

use crate::core::{Core, Counters, Room};
use crate::durable::Commit;
use crate::failpoints::Step;
use crate::header::Owner;
use crate::inbox::{Changed, GivenUp};
use crate::log::{Log, SPARE, VERSION_BYTES, VERSION_BYTES_MAX};
use crate::procedures::Calling;
use crate::raw::{self, Claim, Owned};
use crate::record::{self, Bytes};
use crate::set::{Set, Write};
use crate::tx_slot::TxSlot;

/// What a commit has put where, before it is announced.
struct Placed {
    /// What it wrote to objects, in the log or, with `spill`, in a block.
    record: Vec<u8>,
    spill: Option<Block>,
    new: Vec<Bytes>,
    intents: Vec<Intent>,
    /// It is a call, which holds none of so many bytes.
    called: Option<u64>,
}

impl Core {
    /// Makes the transaction durable, and lets others see it.
    pub(crate) fn commit(&self, tx_slot: &TxSlot<'_>, set: &mut Set, isolation: Isolation) -> Result<()> {
        let counters = &self.counters[tx_slot.slot()];
        if set.ranges.is_empty() && !set.writes.iter().any(|write| write.is_new() || write.freed) {
            self.unlock_all(set);
            Counters::add(&counters.read_only, 1);
            return Ok(());
        }
        self.pool.check_usable()?;
        self.door.pass();
        let mut placed = self.place(tx_slot.slot(), set)?;
        let stamp = tx_slot.announce();
        let outcome = match isolation {
            Isolation::Snapshot => Ok(()),
            _ => self.validate(tx_slot, set, stamp),
        };
        let early = self.failpoints.skips(Step::PublishFirst);
        if early {
            tx_slot.decide();
        }
        let outcome = outcome.and_then(|()| {
            let mut log = self.logs[tx_slot.slot()].lock();
            self.make_durable(&mut log, &mut placed, stamp)?;
            self.publish(&mut log, set, stamp, placed.called.is_some());
            Counters::add(&counters.calls, placed.called.is_some().into());
            self.tell_due(&log, counters);
            log.intents.extend(placed.intents.drain(..).map(|intent| (stamp, intent)));
            log.spills.extend(placed.spill.take().map(|block| (block, stamp)));
            Counters::add(&counters.commits, 1);
            counters.was_short.store(0, Relaxed);
            Ok(())
        });
        set.keep_record(placed.record);
        if outcome.is_err() {
            self.called.fetch_sub(placed.called.unwrap_or(0), Relaxed);
        }
        if !early {
            tx_slot.decide();
        }
        match placed.spill {
            Some(block) => outcome.and(Ok(self.alloc.release(block)?)), // no record names it that counts
            None => outcome,
        }
    }

    /// Gives the locks up of objects that were not changed.
    fn unlock_all(&self, set: &mut Set) {
        for write in set.writes.drain(..) {
            self.unlock_unchanged(&write);
        }
    }

    fn unlock_unchanged(&self, write: &Write) {
        // It may have been made for this transaction.
        self.list_unchanged(Changed { header: write.header, word: write.word, block: write.block });
        self.headers.get(write.header).unlock();
    }

    // ---- the record -------------------------------------------------------------------------------------------------

    /// Makes the record, and finds room for it: in the log, to which no other thread adds, or in a block.
    fn place(&self, slot: usize, set: &mut Set) -> Result<Placed> {
        let (mut new, mut intents) = (Vec::new(), Vec::new());
        for write in &set.writes {
            match (write.is_new(), write.freed) {
                (true, false) => {
                    new.push((write.block.offset(), write.block.len()));
                    intents.push(Intent::alloc(&write.block));
                }
                (false, true) => intents.push(Intent::free(&write.block)),
                _ => {}
            }
        }
        join(set);
        if let Some(calling) = set.call.take()
            && let Some(placed) = self.place_call(slot, set, &calling, &new, &intents)?
        {
            return Ok(placed);
        }
        let mut record = std::mem::take(&mut set.record);
        let ranges = set.ranges.iter().map(|&(_, offset, len)| (offset, len));
        record::begin(&mut record, ranges, &new, &intents)?;
        for &(at, offset, len) in &set.ranges {
            let write = &set.writes[at as usize];
            let from = (offset - write.block.offset()) as usize;
            let bytes = write.copy.as_ref().and_then(|copy| copy.bytes().get(from..from + len as usize));
            record.extend_from_slice(bytes.unwrap_or_default());
        }
        let (len, log) = (record.len() as u64, self.logs[slot].lock());
        let (room, is_much) = (log.room(), log.version_bytes > VERSION_BYTES_MAX);
        let fits = len <= pmem::PAYLOAD_MAX - 8 && log.ring.takes(len + 8) <= room.saturating_sub(SPARE);
        let would_fit = len + pmem::LINE < self.log_bytes / 2;
        drop(log);
        if is_much || room < SPARE {
            return Err(self.wait_for_room(slot));
        }
        if fits {
            return Ok(Placed { record, spill: None, new, intents, called: None });
        }
        let block = match self.reserve(slot, len - 8, pmem::LINE) {
            // Of a full store; its log may have room again.
            Err(Error::Pool(pmem::Error::HeapFull { .. })) if would_fit => return Err(self.wait_for_room(slot)),
            other => other?,
        };
        // no other thread knows of it.
        raw::store(Claim::Spilled, &self.pool, block.offset(), &record[8..])?;
        Ok(Placed { record, spill: Some(block), new, intents, called: None })
    }

    /// The record of a call, if it is shorter than what the call wrote, and there is room for it and, later, for a copy of that.
    fn place_call(
        &self,
        slot: usize,
        set: &mut Set,
        calling: &Calling,
        new: &[Bytes],
        intents: &[Intent],
    ) -> Result<Option<Placed>> {
        // Blocks that came and went in the same transaction are in no record.
        let is_brief = set.writes.iter().any(|write| write.is_new() && write.freed);
        let lines = |bytes: u64| (bytes + pmem::RECORD_HEADER).div_ceil(pmem::LINE);
        let written: u64 = set.ranges.iter().map(|&(_, _, len)| len + 8).sum();
        let made: u64 = new.iter().map(|new| new.1.div_ceil(pmem::LINE)).sum();
        let other = lines(16 + written + (new.len() * 8 + size_of_val(intents)) as u64) + made;
        let len = record::call_len(intents.len(), calling.args.len()) as u64;
        if is_brief || lines(len) >= other || len > pmem::PAYLOAD_MAX || intents.len() as u64 > record::COUNT_MAX {
            return Ok(None);
        }
        let log = self.logs[slot].lock();
        let fits = log.ring.takes(len) <= log.room().saturating_sub(SPARE);
        if !fits || log.version_bytes > VERSION_BYTES_MAX {
            return Ok(None);
        }
        drop(log);
        let copied = set.writes.iter().filter(|write| !write.is_new() && !write.freed);
        let bytes: u64 = copied.map(|write| write.block.len() + record::RANGE_MAX).sum();
        if self.called.fetch_add(bytes, Relaxed) + bytes > self.called_max {
            self.called.fetch_sub(bytes, Relaxed);
            self.counters[slot].is_due.store(1, Relaxed);
            return Ok(None);
        }
        let digest = self.digest(slot, set)?;
        let mut record = std::mem::take(&mut set.record);
        record::call(&mut record, calling.procedure, digest, intents, &calling.args);
        Ok(Some(Placed { record, spill: None, new: Vec::new(), intents: intents.to_vec(), called: Some(bytes) }))
    }

    /// Of all that a transaction has written, by the key of a slot's log.
    pub(crate) fn digest(&self, slot: usize, set: &mut Set) -> Result<u32> {
        join(set);
        let mut targets = Vec::new();
        for &(_, offset, len) in &set.ranges {
            targets.extend([offset, len].map(u64::to_le_bytes).concat());
        }
        for write in set.writes.iter().filter(|write| write.freed && !write.is_new()) {
            targets.extend([write.block.offset(), 0].map(u64::to_le_bytes).concat());
        }
        let mut written: Vec<&[u8]> = vec![&targets];
        for &(at, offset, len) in &set.ranges {
            let write = &set.writes[at as usize];
            let from = (offset - write.block.offset()) as usize;
            written.extend(write.copy.as_ref().and_then(|copy| copy.bytes().get(from..from + len as usize)));
        }
        for write in set.writes.iter().filter(|write| write.is_new() && !write.freed) {
            // this transaction's, to its end.
            written.push(raw::bytes(Claim::Fresh, self, &self.pool, write.block.offset(), write.block.len())?);
        }
        Ok(self.logs[slot].lock().ring.outside_checksum(written.into_iter()) as u32)
    }

    /// Lets the versions of a commit be found that is durable, by recovery.
    pub(crate) fn publish_again(&self, set: &mut Set, commit: &Commit, intents: &[Intent]) {
        let mut log = self.logs[commit.slot].lock();
        let is_call = commit.call().is_some();
        let copied = set.writes.iter().filter(|write| is_call && !write.is_new() && !write.freed);
        let bytes = copied.map(|write| write.block.len() + record::RANGE_MAX).sum();
        self.called.fetch_add(bytes, Relaxed);
        log.records.push_back((commit.end, commit.stamp, bytes));
        log.intents.extend(intents.iter().map(|intent| (commit.stamp, *intent)));
        self.publish(&mut log, set, commit.stamp, is_call);
    }

    /// Space comes when the transactions that run now have ended, this one among them.
    #[cold]
    fn wait_for_room(&self, slot: usize) -> Error {
        let counters = &self.counters[slot];
        if counters.room() == Room::KeptByOwn {
            return Error::LogFull; // waiting would be for ever
        }
        counters.set_room(Room::Wanted);
        Error::Conflict { offset: 0 }
    }

    /// Flushes what the record vouches for, and the record: the one barrier.
    fn make_durable(&self, log: &mut Log, placed: &mut Placed, stamp: u64) -> Result<()> {
        let Placed { record, spill, new, called, .. } = placed;
        let skip = self.failpoints.skips(Step::ChecksumNew);
        let mut checksummed: Vec<&[u8]> = Vec::new();
        if let Some(block) = spill {
            checksummed.push(&record[8..]);
            debug_assert!(block.len() >= record.len() as u64 - 8);
        }
        for &(offset, len) in new.iter() {
            // this transaction's, to its end.
            checksummed.push(raw::bytes(Claim::Fresh, self, &self.pool, offset, len)?);
            self.pool.flush(offset, len)?;
        }
        let checksum =
            (!checksummed.is_empty() && !skip).then(|| log.ring.outside_checksum(checksummed.iter().copied()));
        let appended = match spill {
            Some(block) => {
                let mut short = record::spilled((block.offset(), record.len() as u64 - 8));
                record::stamp(&mut short, stamp);
                log.ring.append_checksummed(&[&short], checksum)
            }
            None => {
                record::stamp(record, stamp);
                log.ring.append_checksummed(&[record], checksum)
            }
        }?;
        let persisted = self.pool.drain()?; // the one barrier
        log.ring.forced(&persisted);
        log.records.push_back((appended.end, stamp, called.unwrap_or(0)));
        Ok(())
    }

    // ---- others -----------------------------------------------------------------------------------------------------

    /// An error if something that was read has changed since the snapshot, and before this commit.
    fn validate(&self, tx_slot: &TxSlot<'_>, set: &mut Set, stamp: u64) -> Result<()> {
        if self.failpoints.skips(Step::Validate) {
            return Ok(());
        }
        set.reads.sort_unstable();
        set.reads.dedup();
        for &(word, offset) in &set.reads {
            pmem::sync::switch_point();
            // Without a header it is older than every snapshot of those that run.
            let Some(header) = self.header(word) else { continue };
            if let Owner::Slot(owner) = header.owner()
                && owner != tx_slot.slot()
            {
                self.tx_slots.wait_for(owner, stamp)?;
            }
            if header.newest().0 > tx_slot.snapshot() {
                return Err(Error::Conflict { offset });
            }
        }
        Ok(())
    }

    /// Lets the versions be found, and gives the locks up. A thread that has to see all of them waits until the commit is decided.
    fn publish(&self, log: &mut Log, set: &mut Set, stamp: u64, called: bool) {
        for Write { header: number, word, block, copy, freed } in set.writes.drain(..) {
            let header = self.headers.get(number);
            match (copy, freed) {
                (None, true) => {
                    self.give_up_new(number, word, block);
                    continue;
                }
                (None, false) => {
                    header.set_base(stamp);
                    if called {
                        log.filled.push((stamp, block));
                    }
                }
                (Some(_), true) => {
                    self.freed.fetch_add(1, Relaxed);
                    header.chain.push(Owned::gone(), stamp);
                }
                (Some(mut copy), false) => {
                    if called {
                        copy.set_called();
                    }
                    log.version_bytes += block.len();
                    log.published += 1;
                    header.chain.push(copy, stamp);
                }
            }
            pmem::sync::switch_point();
            if !header.is_listed.swap(true, AcqRel) {
                log.changed.push(Changed { header: number, word, block });
            }
            header.unlock();
        }
    }

    /// A transaction that does not commit: its locks go, and its new objects.
    pub(crate) fn take_back(&self, _tx_slot: &TxSlot<'_>, set: &mut Set) {
        for write in set.writes.drain(..) {
            self.take_back_one(write);
        }
    }

    pub(crate) fn take_back_one(&self, write: Write) {
        match write.is_new() {
            true => self.give_up_new(write.header, write.word, write.block),
            false => self.unlock_unchanged(&write),
        }
    }

    /// Notes that the upkeep is to come by.
    fn tell_due(&self, log: &Log, counters: &Counters) {
        let is_copied_soon = self.called.load(Relaxed) > self.called_max / 2;
        if log.ring.unretired() > log.ring.capacity() / 2 || log.version_bytes > VERSION_BYTES || is_copied_soon {
            counters.is_due.store(1, Relaxed);
        }
    }

    /// A new object that was never committed. Others may have found its block, and are looking at its header.
    fn give_up_new(&self, header: u32, word: raw::Word, block: Block) {
        self.note(self.alloc.begin_free(&block).map_err(Error::from));
        word.get().store(0, Release);
        let at = self.tx_slots.tick();
        self.freed.fetch_add(1, Relaxed);
        self.inbox.lock().given_up.extend([(at, GivenUp::Header(header)), (at, GivenUp::Block(block))]);
    }

    /// A header that no thread can find any more, though some may have found it.
    pub(crate) fn give_up_header(&self, header: u32) {
        let at = self.tx_slots.tick();
        self.inbox.lock().given_up.push((at, GivenUp::Header(header)));
    }

    /// Has the upkeep look whether the header is of use. Before it is unlocked: a header that is listed is not given up.
    pub(crate) fn list_unchanged(&self, changed: Changed) {
        let header = self.headers.get(changed.header);
        if header.chain.is_empty() && !header.is_listed.swap(true, AcqRel) {
            self.inbox.lock().listed.push(changed);
        }
        pmem::sync::switch_point();
    }
}

/// Sorts ranges, and joins those of one object that touch or overlap.
fn join(set: &mut Set) {
    let writes = &set.writes;
    set.ranges.retain(|range| !writes[range.0 as usize].freed);
    if set.ranges.len() < 2 {
        return;
    }
    set.ranges.sort_unstable_by_key(|range| (range.1, range.0));
    let mut last = 0;
    for at in 1..set.ranges.len() {
        let (write, offset, len) = set.ranges[at];
        let end = set.ranges[last].1 + set.ranges[last].2;
        if write == set.ranges[last].0 && offset <= end {
            set.ranges[last].2 = end.max(offset + len) - set.ranges[last].1;
        } else {
            last += 1;
            set.ranges[last] = (write, offset, len);
        }
    }
    set.ranges.truncate(last + 1);
}
