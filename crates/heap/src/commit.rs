//! How a transaction ends, by policy. The barriers are counted here, and in `docs/barriers.md`.

use pmem::{Block, Intent};
use tx::{Error, Result};

use crate::core::{Core, Counters};
use crate::counted::behind;
use crate::failpoints::Step;
use crate::lock;
use crate::log::{Log, Parts};
use crate::options::{Intents, Policy};
use crate::record::{self, Bytes, COMMIT, END, is_short};
use crate::stage::Stage;
use crate::state::Set;

impl Core {
    /// Makes the transaction in `slot` durable, and gives its locks up.
    #[inline]
    pub(crate) fn commit(&self, slot: usize, set: &mut Set) -> Result<()> {
        let counters = &self.counters[slot];
        if set.writes.is_empty()
            && set.entries.is_empty()
            && set.allocs + set.frees == 0
            && set.undo.is_empty()
            && (!set.rewrites || self.policy == Policy::Eaw)
        {
            self.make_sure(set)?;
            if self.intents == Intents::Objects && set.held.iter().any(|held| held.kept.1 > 0) {
                self.intents_are_void(slot);
            }
            if set.rewrites {
                self.logs[slot].lock().give_back(slot, |word| set.give_back(word));
            }
            for held in &set.held {
                match held.write {
                    true if held.given_back => {}
                    true => lock::end_write_but(held.word.get(), held.outer), // declared, not changed
                    false => lock::end_read(held.word.get()),
                }
            }
            Counters::add(&counters.read_only);
            return Ok(());
        }
        // What is refused must not come up at the next open, as what was stored before a failed barrier may.
        self.pool.check_usable()?;
        record::coalesce(&mut set.writes);
        if !set.stage.is_empty() {
            self.unstage_joined(set)?;
        }
        collect(set);
        self.door.pass();
        match self.policy {
            Policy::None => self.commit_none(slot, set)?,
            Policy::Undo => self.commit_undo(slot, set)?,
            Policy::InPlace | Policy::InPlacePartial => self.commit_in_place(slot, set)?,
            Policy::Eaw => self.commit_redo(slot, set)?,
        }
        Counters::add(&counters.commits);
        Ok(())
    }

    /// Undoes the transaction in `slot`, and gives its locks up.
    pub(crate) fn abort(&self, slot: usize, set: &mut Set) -> Result<()> {
        forget_fresh(set);
        let stays_pending = self.policy == Policy::Undo && !set.undo.is_empty();
        let undone = match self.policy {
            Policy::None if !set.writes.is_empty() => self.unstage_all(set).and(Err(Error::NoRollback)),
            Policy::None => Ok(()),
            Policy::Undo => self.abort_undo(slot, set),
            Policy::InPlace | Policy::InPlacePartial => self.abort_in_place(slot, set),
            Policy::Eaw => Ok(()), // nothing of it is in main
        };
        match undone {
            Ok(()) | Err(Error::NoRollback) => {}
            failed => return failed,
        }
        if set.rewrites && !self.failpoints.skips(Step::AbortApplies) {
            // The earlier records must not come up again once others may write their objects.
            let mut log = self.logs[slot].lock();
            match self.policy {
                Policy::Eaw => log.give_back(slot, |word| set.give_back(word)), // nothing of them has changed
                _ => log.apply(self)?,
            }
        }
        for held in &set.held {
            match held.write {
                true if held.fresh => self.cancel_own(held.block)?,
                true if stays_pending => {}
                true if held.given_back => {}
                true => lock::end_write_but(held.word.get(), held.outer),
                false if set.reads_over => {}
                false => lock::end_read(held.word.get()),
            }
        }
        undone
    }

    // ---- none: one barrier ------------------------------------------------------------------------------------------

    fn commit_none(&self, slot: usize, set: &mut Set) -> Result<()> {
        self.end_reads(set);
        if set.intents.is_empty() && set.freed.is_empty() {
            self.write_out(set)?;
            self.pool.drain()?;
            behind::drained();
        } else {
            let mut log = self.logs[slot].lock();
            for intent in &set.intents {
                self.alloc.apply(intent, &mut log.lines)?;
            }
            self.pool.flush_set(&mut log.lines)?;
            self.write_out(set)?;
            self.pool.drain()?; // the blocks, too
            behind::drained();
            drop(log);
            self.out_of_use(&mut set.freed, None);
        }
        for held in set.held.iter().filter(|held| held.write) {
            lock::end_write(held.word.get());
        }
        for block in set.freed.drain(..) {
            self.after_durable(self.alloc.release(block).map_err(Error::from));
        }
        Ok(())
    }

    /// All that was written, persistent after the next drain.
    #[inline]
    fn write_out(&self, set: &Set) -> Result<()> {
        for &(offset, len) in set.writes.iter().filter(|w| !set.stage.holds(w)) {
            self.pool.flush(offset, len)?;
        }
        self.store_staged(&set.stage)
    }

    // ---- in place: one barrier, two past the break-even of the checksum -------------------------------------------------

    #[inline]
    fn commit_in_place(&self, slot: usize, set: &mut Set) -> Result<()> {
        let staged = |w: &Bytes| set.stage.holds(w);
        // What is staged has just been copied, and is checksummed at little cost.
        let long: u64 = set.writes.iter().filter(|w| !is_short(w) && !staged(w)).map(|w| w.1).sum();
        let checksummed = long <= self.checksum_max;
        let checksum = checksummed && (long > 0 || !set.stage.is_empty());
        let mut log = self.logs[slot].lock();
        // Atomic operations first: behind a flush, each would wait for it as the drain does.
        self.after_durable(log.release(self));
        self.end_reads(set);
        log.copy_if_due(self);
        if !checksummed {
            self.store_staged(&set.stage)?;
            self.flush_long(set)?;
            if !self.failpoints.skips(Step::DataChecksum) {
                log.drain(self)?; // the data, before a record vouches for them unseen
            }
        }
        let mut payload = std::mem::take(&mut log.scratch);
        record::begin(&mut payload, COMMIT, &set.writes);
        for range in set.writes.iter().filter(|w| is_short(w)) {
            payload.extend_from_slice(self.written(range));
        }
        record::add_intents(&mut payload, set.intents.iter().copied());
        let mut spill = self.spill_if_long(slot, &mut log, &mut payload)?;
        log.before_append();
        // What is staged leaves as early as it can: as soon as nothing atomic is left to do. Should no record be appended, the backup has what was there.
        let late = self.failpoints.skips(Step::StagedInTime).then(|| set.stage.clone());
        let early = checksum && late.is_none() && set.freed.is_empty() && spill.is_none();
        let appended = match checksum.then(|| self.checksum(log.ring.outside(), set, early)).transpose() {
            Ok(outside) => self.append_last(slot, &mut log, &mut payload, &mut spill, outside),
            Err(e) => Err(Box::new(e)), // of a store: there is no block then
        };
        log.scratch = payload;
        let end = appended.map_err(|e| *e)?;
        self.too_early(&mut log, set)?;
        // From here on only the drain can fail, and nothing here matters then. Behind it remain few and plain stores.
        self.out_of_use(&mut set.freed, spill);
        set.order_copies();
        set.words.clear();
        for held in set.held.iter().filter(|held| held.write) {
            set.words.push((held.word, is_carried(&set.writes, &held.block)));
        }
        // Nothing atomic from here on.
        if checksum && !early && late.is_none() {
            self.store_staged(&set.stage)?;
        }
        let (ranges, copies) = (&*set.writes, &*set.copies);
        let (words, intents, frees) = (&*set.words, &*set.intents, &*set.freed);
        log.push(self, &Parts { end, ranges, copies, words, intents, frees, checksummed }, &mut set.stage);
        self.tell_pending(slot, &log);
        if checksum {
            self.flush_long(set)?;
        }
        if self.failpoints.skips(Step::WritersStay) {
            set.words.drain(..).for_each(|(word, _)| lock::set_pending(word.get(), slot));
            pmem::sync::switch_point(); // under a scheduler others come in between
        }
        log.drain(self)?; // the one barrier
        if let Some(stage) = late {
            self.store_staged(&stage)?;
        }
        log.after_append(self);
        self.set_pending(slot, set);
        Ok(())
    }

    /// What was written is readers' from here on; writers of other slots apply this one first.
    #[inline]
    fn set_pending(&self, slot: usize, set: &Set) {
        for (word, _) in &set.words {
            lock::set_pending(word.get(), slot);
        }
    }

    fn flush_long(&self, set: &Set) -> Result<()> {
        for &(offset, len) in set.writes.iter().filter(|w| !is_short(w) && !set.stage.holds(w)) {
            self.pool.flush(offset, len)?;
        }
        Ok(())
    }

    /// What must wait for the barrier, for tests in front of it.
    #[inline]
    fn too_early(&self, log: &mut Log, set: &Set) -> Result<()> {
        if self.failpoints.skips(Step::CopyLate) {
            set.writes.iter().try_for_each(|&(offset, len)| self.copy_to_backup(offset, len))?;
        }
        if self.failpoints.skips(Step::ApplyLate) {
            set.intents.iter().try_for_each(|intent| self.alloc.apply(intent, &mut log.lines))?;
        }
        Ok(())
    }

    /// Copies that were made for this transaction are sure on media before another transaction has their objects.
    #[inline]
    fn make_sure(&self, set: &Set) -> Result<()> {
        if set.unsure && !self.failpoints.skips(Step::SureLate) {
            self.pool.drain()?;
        }
        Ok(())
    }

    fn abort_in_place(&self, slot: usize, set: &mut Set) -> Result<()> {
        if set.rewrites && !self.failpoints.skips(Step::AbortCopies) {
            // Held while the backup is read: another thread would apply from the first record on once more.
            let mut log = self.logs[slot].lock();
            log.copy(self)?; // what earlier records carry of the same objects
            self.take_back(set)?;
        } else {
            self.take_back(set)?;
        }
        if set.writes.is_empty() {
            if self.intents == Intents::Objects && set.held.iter().any(|held| held.kept.1 > 0) {
                self.intents_are_void(slot);
            }
            return self.make_sure(set);
        }
        if !self.failpoints.skips(Step::AbortBarrier) {
            self.pool.drain()?; // before the zone may count as quiet, or a copy be given up
        }
        if self.intents == Intents::Objects {
            self.intents_are_void(slot);
        }
        Ok(())
    }

    /// Main as the backup is, where the transaction has written.
    fn take_back(&self, set: &mut Set) -> Result<()> {
        if self.copies.is_some() {
            return self.copy_back(set);
        }
        set.writes.iter().try_for_each(|&(offset, len)| self.copy_from_backup(offset, len))
    }

    // ---- undo: the old bytes have had a barrier; two more -----------------------------------------------------------

    fn commit_undo(&self, slot: usize, set: &mut Set) -> Result<()> {
        let mut log = self.logs[slot].lock();
        self.after_durable(log.release(self));
        self.end_reads(set);
        log.copy_if_due(self);
        self.flush_writes(&set.writes)?;
        log.drain(self)?; // the new bytes, before the old ones are given up
        let spill = self.end_undo(slot, &mut log, set, true)?;
        self.out_of_use(&mut set.freed, spill);
        set.undo.reset(self, &mut set.freed);
        set.words.clear();
        for held in set.held.iter().filter(|held| held.write) {
            // Until the record is retired, recovery carries its intents out again; and should it be corrupt, puts the old bytes back:
            // no transaction may change these blocks meanwhile.
            set.words.push((held.word, true));
            lock::set_pending(held.word.get(), slot);
        }
        self.push_undo(slot, &mut log, set);
        Ok(())
    }

    fn abort_undo(&self, slot: usize, set: &mut Set) -> Result<()> {
        if set.undo.is_empty() {
            return Ok(());
        }
        set.undo.restore(self)?;
        let mut log = self.logs[slot].lock();
        log.drain(self)?; // the old bytes are back before the log says so
        set.intents.clear();
        set.freed.clear();
        self.end_undo(slot, &mut log, set, false)?; // short: it names no blocks
        set.undo.reset(self, &mut set.freed);
        set.words.clear();
        for held in set.held.iter().filter(|h| h.write && !h.fresh) {
            set.words.push((held.word, true));
            lock::set_pending(held.word.get(), slot); // as behind a commit
        }
        self.push_undo(slot, &mut log, set);
        Ok(())
    }

    /// The record that makes the old bytes before it void. Returns the block it was moved to, if it was.
    fn end_undo(&self, slot: usize, log: &mut Log, set: &Set, intents: bool) -> Result<Option<Block>> {
        let mut payload = std::mem::take(&mut log.scratch);
        record::begin(&mut payload, END, &[]);
        if intents {
            record::add_intents(&mut payload, set.intents.iter().copied());
        }
        let mut spill = self.spill_if_long(slot, log, &mut payload)?;
        log.before_append();
        let appended = self.append_last(slot, log, &mut payload, &mut spill, None);
        log.scratch = payload;
        appended.map_err(|e| *e)?;
        log.drain(self)?;
        log.after_append(self);
        Ok(spill)
    }

    fn push_undo(&self, slot: usize, log: &mut Log, set: &Set) {
        let end = log.ring.durable();
        let (words, intents, frees) = (&*set.words, &*set.intents, &*set.freed);
        let parts = Parts { end, ranges: &[], copies: &[], words, intents, frees, checksummed: false };
        log.push(self, &parts, &mut Stage::default());
        self.tell_pending(slot, log);
    }
}

/// Whether the record carries all that was written to this block. The ranges are in order, and apart.
#[inline]
fn is_carried(writes: &[Bytes], block: &Block) -> bool {
    let first = writes.partition_point(|w| w.0 + w.1 <= block.offset());
    writes[first..].iter().take_while(|w| w.0 < block.offset() + block.len()).all(is_short)
}

/// Drops the writes to blocks that the transaction has allocated itself: nothing of them is to be restored. A commit that failed may have joined them with
/// writes to their neighbours.
fn forget_fresh(set: &mut Set) {
    let mut fresh: Vec<Bytes> =
        set.held.iter().filter(|h| h.fresh).map(|h| (h.block.offset(), h.block.len())).collect();
    if fresh.is_empty() {
        return;
    }
    fresh.sort_unstable();
    let mut rest = Vec::with_capacity(set.writes.len());
    for &(offset, len) in &set.writes {
        let (mut from, end) = (offset, offset + len);
        let first = fresh.partition_point(|f| f.0 + f.1 <= from);
        for &(start, bytes) in fresh[first..].iter().take_while(|f| f.0 < end) {
            if from < start {
                rest.push((from, start - from));
            }
            from = from.max(start + bytes);
        }
        if from < end {
            rest.push((from, end - from));
        }
    }
    set.writes = rest;
}

/// What the transaction allocated and freed, for its record.
fn collect(set: &mut Set) {
    set.intents.clear();
    set.freed.clear();
    if set.allocs + set.frees == 0 {
        return;
    }
    for held in &set.held {
        match (held.fresh, held.freed) {
            (true, false) => set.intents.push(Intent::alloc(&held.block)),
            (false, true) => set.intents.push(Intent::free(&held.block)),
            _ => {}
        }
        if held.freed {
            set.freed.push(held.block);
        }
    }
}
