//! Policy `eaw`: the new bytes go into the log, and from there to main (*editable atomic writes*: MARS, SOSP 2013, §3.1). One barrier, and a log instead of a second copy.
//!
//! What a transaction writes to objects that were there before is kept in DRAM ([`entries`](crate::entries)). The commit appends one record with all of it, drains, and only then
//! stores it in main. So main holds nothing of a transaction that is not durable, and an abort has nothing to undo.
//!
//! New objects are written where they are: no other transaction can reach them. Small ones are in the record too. The others are flushed in front of the commit's barrier, and
//! under the record's checksum; if they are too many bytes for that they get a barrier of their own.
//!
//! What was stored in main is flushed when its transactions are applied ([`log`](crate::log)), lines that many of them have changed once. Until the record is retired the
//! object's lock is pending: a record that comes up again must find no later bytes of another slot. Those of its own slot come up again behind it, in order: the slot owes
//! nothing before it writes an object again.

use tx::Result;

use crate::core::Core;
use crate::failpoints::Step;
use crate::lock;
use crate::log::Parts;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, REDO};
use crate::stage::Stage;
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
        // Durable. No other transaction may see the objects before they are as it says.
        self.store_entries(set)?;
        log.after_append(self);
        for held in set.held.iter().filter(|held| held.write) {
            lock::set_pending_but(held.word.get(), slot, held.outer);
        }
        Ok(())
    }

    /// What was written to new objects behind a savepoint, now that the transaction cannot go back to it.
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
