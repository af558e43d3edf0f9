//! Policy `eaw`: the new bytes go into the log, and from there to main (*editable atomic writes*: MARS, SOSP 2013, §3.1). One barrier, and a log instead of a second copy.
//!
//! What a transaction writes to objects that were there before is kept in DRAM ([`entries`](crate::entries)). The commit appends one record with all of it, drains, and only then
//! stores it in main. So main holds nothing of a transaction that is not durable, and an abort has nothing to undo.
//!
//! New objects are written where they are: nobody else can reach them. Small ones are in the record too. The others are flushed in front of the commit's barrier, and under the
//! record's checksum; if they are too many bytes for that they get a barrier of their own.
//!
//! What was stored in main is flushed when its transactions are settled ([`log`](crate::log)), lines that many of them have changed once. Until the record is retired the
//! object's lock is pending: a record that comes up again must find no later bytes of another slot. Those of its own slot come up again behind it, in order: the slot owes
//! nothing before it writes an object again.
//!
//! Recovery holds a slot's last record against its checksum, and no other: a slot begins a record when the one before is durable, data and all. So it does not matter that a later
//! record changes bytes that an earlier one has the checksum of.

use pmem::{Intent, Recovered};
use tx::Result;

use crate::core::Core;
use crate::failpoints::Step;
use crate::lock;
use crate::log::Parts;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, REDO};
use crate::recovery::{Recovery, carry_out, check_range, damaged, is_retired, whole};
use crate::staged::Stage;
use crate::state::{Held, Set};

/// Longest new object whose bytes are in the record. Longer ones cost less under the checksum.
const CARRIED: u64 = 64;

impl Held {
    /// A new object that is part of the commit.
    #[inline]
    fn is_new(&self) -> bool {
        self.fresh && !self.freed
    }

    fn bytes(&self) -> Bytes {
        (self.block.offset(), self.block.len())
    }
}

impl Core {
    /// One barrier; another one for many bytes of new objects, or for a record that has no room in the ring.
    pub(crate) fn commit_redo(&self, slot: usize, set: &mut Set) -> Result<()> {
        self.write_new(set)?;
        let checksummed = |held: &&Held| held.is_new() && held.block.len() > CARRIED;
        let new =
            if set.allocs > 0 { set.held.iter().filter(checksummed).map(Held::bytes).collect() } else { Vec::new() };
        let bytes: u64 = new.iter().map(|new| new.1).sum();
        let checksum = (1..=self.checksum_max).contains(&bytes);
        let mut log = self.logs[slot].lock();
        // Atomic operations first: behind a flush, each would wait for it as the drain does.
        self.after_durable(log.release(self));
        self.end_reads(set);
        log.copy_if_due(self);
        if bytes > 0 && !checksum {
            self.flush_writes(&new)?;
            if !self.failpoints.skips(Step::DataChecksum) {
                log.drain(self)?; // the data, before a record counts that does not tell whether they are there
            }
        }
        // What the record carries: of old objects, then of new ones.
        set.writes.clear();
        set.writes.extend(set.entries.in_order().map(|(range, _)| range));
        if set.allocs > 0 {
            set.writes.extend(set.held.iter().filter(|held| held.is_new() && !checksummed(held)).map(Held::bytes));
        }
        let mut payload = std::mem::take(&mut log.scratch);
        record::begin(&mut payload, REDO, &set.writes);
        if checksum {
            record::add_ranges(&mut payload, &new);
        }
        set.entries.ordered().for_each(|(_, bytes)| payload.extend_from_slice(bytes));
        let old = set.entries.ordered().count();
        set.writes[old..].iter().for_each(|range| payload.extend_from_slice(self.written(range)));
        record::add_intents(&mut payload, set.intents.iter().copied());
        let mut spill = self.spill_if_long(slot, &mut log, &mut payload)?;
        log.before_append();
        let outside = checksum.then(|| {
            let key = log.ring.outside();
            key.checksum_list(new.iter().map(|range| key.checksum(self.written(range))))
        });
        let appended = self.append_last(slot, &mut log, &mut payload, &mut spill, outside);
        log.scratch = payload;
        let end = appended.map_err(|e| *e)?;
        if self.failpoints.skips(Step::ApplyLate) {
            set.intents.iter().try_for_each(|intent| self.alloc.apply(intent, &mut log.lines))?;
        }
        if self.failpoints.skips(Step::RedoLate) {
            self.store_entries(set)?;
        }
        self.out_of_use(&mut set.freed, spill);
        set.words.clear();
        for held in set.held.iter().filter(|held| held.write) {
            set.words.push((held.word, true));
        }
        let (ranges, words, intents, frees) = (&*set.writes, &*set.words, &*set.intents, &*set.freed);
        let parts = Parts { end, ranges, copies: &[], words, intents, frees, checksummed: true };
        log.push(self, &parts, &mut Stage::default());
        self.tell_pending(slot, &log);
        if checksum {
            self.flush_writes(&new)?;
        }
        log.drain(self)?; // the one barrier
        // Durable. Nobody else may see the objects before they are as it says.
        self.store_entries(set)?;
        log.after_append(self);
        for held in set.held.iter().filter(|held| held.write) {
            lock::set_pending_but(held.word.get(), slot, held.outer);
        }
        Ok(())
    }

    /// What was written to new objects behind a savepoint, now that nobody goes back to it.
    fn write_new(&self, set: &mut Set) -> Result<()> {
        if set.allocs == 0 || set.entries.is_empty() {
            return Ok(());
        }
        for held in set.held.iter().filter(|held| held.is_new() && held.staged) {
            set.entries.take(held.bytes(), |(offset, len), bytes| {
                // the transaction is the writer of these bytes, and at its end.
                raw::bytes_mut(Claim::Writer, self, &self.pool, offset, len)?.copy_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(())
    }

    #[inline]
    fn store_entries(&self, set: &Set) -> Result<()> {
        for ((offset, len), bytes) in set.entries.ordered() {
            // as above.
            raw::bytes_mut(Claim::Writer, self, &self.pool, offset, len)?.copy_from_slice(bytes);
        }
        Ok(())
    }
}

// ---- recovery -------------------------------------------------------------------------------------------------------

/// What a transaction that was durable has written and changed in the allocator.
struct Durable {
    slot: usize,
    ranges: Vec<Bytes>,
    /// Bytes that its record vouches for, elsewhere than in the ring.
    outside: Vec<Bytes>,
    /// What the ranges held, one behind the other.
    carried: Vec<u8>,
    intents: Vec<Intent>,
}

/// Stores in main what the records say that are whole, in the order of each slot. Of two slots none has a record about the same object.
pub(crate) fn forward(core: &Core, found: &[Recovered], recovery: &mut Recovery) -> Result<()> {
    let mut durable = Vec::new();
    for (slot, recovered) in found.iter().enumerate() {
        find_durable(core, slot, recovered, &mut durable)?;
    }
    recovery.finished += durable.len() as u64;
    // What verified may stand in a cache only. It is on media before main changes: else a crash could leave a part of a transaction, and nothing that tells the rest.
    if !core.failpoints.skips(Step::MainFirst) {
        for &(offset, len) in durable.iter().flat_map(|d| &d.outside) {
            core.pool.flush(offset, len)?;
        }
        if durable.iter().any(|d| !d.outside.is_empty()) {
            core.pool.drain()?;
        }
    }
    for Durable { slot, ranges, carried, intents, .. } in &durable {
        let mut carried = &carried[..];
        for &(offset, len) in ranges {
            let (bytes, rest) = carried.split_at(len as usize);
            // nobody else has the heap during recovery.
            raw::bytes_mut(Claim::Recovery, core, &core.pool, offset, len)?.copy_from_slice(bytes);
            core.pool.flush(offset, len)?;
            recovery.restored_bytes += len;
            carried = rest;
        }
        carry_out(core, &mut core.logs[*slot].lock(), intents)?;
    }
    Ok(())
}

fn find_durable(core: &Core, slot: usize, recovered: &Recovered, durable: &mut Vec<Durable>) -> Result<()> {
    let log = core.logs[slot].lock();
    for (number, found) in recovered.records.iter().enumerate() {
        let is_last = number + 1 == recovered.records.len();
        let place = found.position.get();
        let payload = log.ring.payload(found)?;
        if is_retired(payload) {
            continue;
        }
        let mut outside = Vec::new();
        outside.extend(record::decode(payload).filter(|r| r.kind == record::SPILLED).map_or(Vec::new(), |r| r.ranges));
        let payload = whole(core, payload, place)?;
        let record = record::decode(&payload).filter(|r| r.kind == REDO);
        let record = record.ok_or_else(|| damaged(place, "it is of no heap with policy eaw"))?;
        let (ranges, mut rest) = (record.ranges, record.rest);
        let mut arrived = true;
        if let Some(checksum) = found.outside {
            let (new, behind) = record::split_ranges(rest).ok_or_else(|| damaged(place, "ranges are missing"))?;
            rest = behind;
            let mut data = Vec::with_capacity(new.len());
            for &(offset, len) in &new {
                check_range(core, (offset, len), place)?;
                // nobody else has the heap during recovery, and nothing is written while this lasts.
                data.push(raw::bytes(Claim::Recovery, core, &core.pool, offset, len)?);
            }
            let holds = || {
                checksum == log.ring.outside_checksum(data.iter().copied())
                    || core.failpoints.skips(Step::VerifyChecksum)
            };
            arrived = !is_last && !core.failpoints.skips(Step::OnlyLast) || holds();
            outside.extend(new);
        }
        let mut bytes: u64 = 0;
        for &range in &ranges {
            check_range(core, range, place)?;
            bytes = bytes.saturating_add(range.1);
        }
        let split = usize::try_from(bytes).ok().and_then(|bytes| rest.split_at_checked(bytes));
        let (carried, intents) = split.ok_or_else(|| damaged(place, "bytes are missing"))?;
        let intents = record::intents(intents).ok_or_else(|| damaged(place, "part of an intent"))?;
        if arrived {
            durable.push(Durable { slot, ranges, outside, carried: carried.to_vec(), intents });
        }
    }
    Ok(())
}
