//! What transactions on records have in common, however the records are kept: which are locked, and what was done to places and slots, to be taken back.

use pmem::sync::Mutex;

use super::locks::{Locks, Mode, Owner, Taken};
use super::space::{Claimed, Location, Space};
use super::{RecordId, Savepoint, Table};
use crate::error::{Error, Result};
use crate::stamp::stamp;

/// Where a store may have the names of its tables, as records: no caller's to read or write.
pub(crate) const CATALOG: Table = Table(u32::MAX);

/// What all transactions of a store share.
pub(crate) struct Shared {
    pub(crate) space: Mutex<Space>,
    pub(crate) tables: Mutex<Vec<String>>,
    /// Records that could not be recovered.
    pub(crate) damaged: usize,
    record_max: usize,
    locks: Locks,
}

impl Shared {
    pub(crate) fn new(space: Space, record_max: usize) -> Self {
        Self { space: Mutex::new(space), tables: Mutex::new(Vec::new()), damaged: 0, record_max, locks: Locks::new() }
    }

    pub(crate) fn table_name(&self, table: Table) -> Result<String> {
        let name = self.tables.lock().get(table.0 as usize).cloned();
        name.ok_or_else(|| Error::NoTable { name: table.0.to_string() })
    }

    pub(crate) fn table(&self, name: &str) -> Result<Table> {
        let number = self.tables.lock().iter().position(|table| table == name);
        number.map(|number| Table(number as u32)).ok_or_else(|| Error::NoTable { name: name.to_owned() })
    }

    /// A free slot of this size. If there is none, `format` makes a block have such, which it says on the medium, and `grow` adds blocks and tells how many; no
    /// thread waits for that but one that wants slots, too.
    pub(crate) fn take_slot<H>(
        &self,
        head: &Mutex<H>,
        slot: u32,
        mut format: impl FnMut(&mut H, Claimed) -> Result<()>,
        mut grow: impl FnMut() -> Result<u64>,
    ) -> Result<u64> {
        if let Some(at) = self.space.lock().take_slot(slot) {
            return Ok(at);
        }
        let mut head = head.lock();
        loop {
            let mut space = self.space.lock();
            // Others may have made some meanwhile.
            if let Some(at) = space.take_slot(slot) {
                return Ok(at);
            }
            let claimed = space.claim();
            drop(space);
            let Some(claimed) = claimed else {
                let count = grow()?;
                self.space.lock().grow(count);
                continue;
            };
            let done = format(&mut head, claimed);
            let mut space = self.space.lock();
            if let Err(error) = done {
                space.unclaim(claimed);
                return Err(error);
            }
            space.make_slots(claimed.block, slot);
            if let Some(at) = space.take_slot(slot) {
                return Ok(at);
            }
        }
    }

    pub(crate) fn record_max(&self) -> usize {
        self.record_max
    }

    fn check_len(&self, len: usize) -> Result<()> {
        let max = self.record_max;
        if len > max { Err(Error::RecordTooLong { len, max }) } else { Ok(()) }
    }
}

/// A transaction's way of keeping records: what is the same whichever it is stands behind it.
pub(crate) trait Keeps<'a> {
    /// A moment of what it wrote.
    type Point: Copy;

    fn session(&mut self) -> &mut Session<'a, Self::Point>;

    /// Bytes of the slot that a record of so many wants.
    fn slot_for(&self, len: usize) -> u32;

    /// A record of so many bytes is not written over the one before it: it gets another slot, though it would fit, for which there is room.
    fn moves(&self, _id: u64, _len: usize) -> bool {
        false
    }

    /// The record gets a slot, where it is written. `grows`: there is to be room, and be it by more data files.
    fn write_new(&mut self, id: u64, table: Table, bytes: &[u8], grows: bool) -> Result<Location>;

    /// Another record is written where this one is.
    fn overwrite(&mut self, before: Location, id: u64, table: Table, bytes: &[u8]) -> Result<()>;

    /// There is no record in that slot any more.
    fn clear(&mut self, at: u64) -> Result<()>;

    fn point(&mut self) -> Result<Self::Point>;

    /// What was written behind it is taken back.
    fn back_to(&mut self, point: Self::Point) -> Result<()>;

    fn insert_record(&mut self, table: Table, bytes: &[u8]) -> Result<RecordId> {
        self.session().shared.check_len(bytes.len())?;
        let id = self.session().take_id()?;
        match self.write_new(id, table, bytes, true) {
            Ok(location) => {
                let change = Change { id, before: None, taken: Some(location.at), left: None, is_deleted: false };
                self.session().changed(change, Some(location));
                Ok(RecordId(id))
            }
            Err(error) => {
                self.session().give_id(id);
                Err(error)
            }
        }
    }

    fn update_record(&mut self, table: Table, id: RecordId, bytes: &[u8]) -> Result<()> {
        self.session().shared.check_len(bytes.len())?;
        let before = self.session().find(table, id, Mode::Exclusive)?;
        self.session().check_outer(table, id.0)?;
        let wanted = self.slot_for(bytes.len());
        let fits = self.session().shared.space.lock().fits(before.at, wanted);
        let moved = match fits && !self.moves(id.0, bytes.len()) {
            true => None,
            false => match self.move_record(before, id.0, table, bytes, !fits) {
                Err(_) if fits => None, // it need not move
                moved => Some(moved?),
            },
        };
        let location = match moved {
            Some(location) => location,
            None => {
                self.overwrite(before, id.0, table, bytes)?;
                Location { len: bytes.len() as u32, ..before }
            }
        };
        let (taken, left) = moved.map_or((None, None), |location| (Some(location.at), Some(before.at)));
        let change = Change { id: id.0, before: Some(before), taken, left, is_deleted: false };
        self.session().changed(change, Some(location));
        Ok(())
    }

    /// To another slot. Both or nothing: else there were two of it.
    fn move_record(&mut self, before: Location, id: u64, table: Table, bytes: &[u8], grows: bool) -> Result<Location> {
        let point = self.point()?;
        self.clear(before.at)?;
        let written = self.write_new(id, table, bytes, grows);
        if written.is_err() {
            self.back_to(point)?;
        }
        written
    }

    fn delete_record(&mut self, table: Table, id: RecordId) -> Result<()> {
        let before = self.session().find(table, id, Mode::Exclusive)?;
        self.session().check_outer(table, id.0)?;
        self.clear(before.at)?;
        let (before, left) = (Some(before), Some(before.at));
        self.session().changed(Change { id: id.0, before, taken: None, left, is_deleted: true }, None);
        Ok(())
    }
}

/// The bookkeeping of a transaction; `P` is a moment of what it wrote.
pub(crate) struct Session<'a, P> {
    pub(crate) shared: &'a Shared,
    pub(crate) owner: Owner,
    /// Records, in the order in which they were locked, and whether they were shared before.
    locked: Vec<(u64, bool)>,
    changes: Vec<Change>,
    savepoints: Vec<Saved<P>>,
    /// So many changes and savepoints are the outer transaction's.
    outer: (usize, usize),
    /// Nested actions that have begun and not ended.
    depth: usize,
    /// Numbers that nested actions gave up, for others when the locks are gone.
    ids: Vec<u64>,
}

/// What was done to a record.
struct Change {
    id: u64,
    /// Where it was; none if it was not there.
    before: Option<Location>,
    /// The slot it got.
    taken: Option<u64>,
    /// The slot it left.
    left: Option<u64>,
    is_deleted: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Saved<P> {
    pub(crate) point: P,
    stamp: u64,
    changes: usize,
    locked: usize,
}

/// The outer transaction's, while a nested action is under way.
pub(crate) struct Outer {
    before: (usize, usize),
    pub(crate) savepoint: Savepoint,
}

impl<'a, P: Copy> Session<'a, P> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        let owner = shared.locks.owner();
        let (locked, changes, savepoints, ids) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { shared, owner, locked, changes, savepoints, outer: (0, 0), depth: 0, ids }
    }

    /// True if it was not locked before.
    fn lock(&mut self, id: u64, mode: Mode) -> Result<bool> {
        let taken = self.shared.locks.take(self.owner, id, mode)?;
        if taken != Taken::Before {
            self.locked.push((id, taken == Taken::More));
        }
        Ok(taken == Taken::New)
    }

    /// Where a record is, locked.
    pub(crate) fn find(&mut self, table: Table, RecordId(id): RecordId, mode: Mode) -> Result<Location> {
        if table == CATALOG {
            return Err(Error::NoTable { name: table.0.to_string() });
        }
        let is_new = self.lock(id, mode)?;
        let space = self.shared.space.lock();
        let found = space.location(id).filter(|location| location.table == table.0);
        let is_twice = found.is_some_and(|location| space.is_twice(location));
        drop(space);
        if is_twice {
            return Err(Error::RecordTwice { table: self.shared.table_name(table)?, id });
        }
        if let Some(location) = found {
            return Ok(location);
        }
        if is_new {
            self.unlock(self.locked.len() - 1); // there is nothing to keep others from; they may get its number
        }
        Err(Error::NoRecord { table: self.shared.table_name(table)?, id, damaged: self.shared.damaged })
    }

    /// An outer transaction's changes are not a nested action's to change.
    fn check_outer(&self, table: Table, id: u64) -> Result<()> {
        if self.changes[..self.outer.0].iter().any(|change| change.id == id) {
            return Err(Error::OuterRecord { table: self.shared.table_name(table)?, id });
        }
        Ok(())
    }

    /// A number for a new record, locked.
    fn take_id(&mut self) -> Result<u64> {
        let id = self.shared.space.lock().take_id();
        match self.lock(id, Mode::Exclusive) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.give_ids(vec![id]);
                Err(error)
            }
        }
    }

    /// The record of this number was not made after all.
    fn give_id(&mut self, id: u64) {
        if self.locked.last() == Some(&(id, false)) {
            self.unlock(self.locked.len() - 1);
        }
        self.give_ids(vec![id]);
    }

    /// The record is there now; nowhere, if it is deleted.
    fn changed(&mut self, change: Change, location: Option<Location>) {
        let mut space = self.shared.space.lock();
        match location {
            Some(location) => space.set_location(change.id, Some(location)),
            None => space.hide(change.id),
        }
        self.changes.push(change);
    }

    // ---- savepoints and ends ----------------------------------------------------------------------------------

    pub(crate) fn save(&mut self, point: P) -> Savepoint {
        let stamp = stamp();
        self.savepoints.push(Saved { point, stamp, changes: self.changes.len(), locked: self.locked.len() });
        Savepoint { index: self.savepoints.len() - 1, stamp }
    }

    /// One that it may go back to: none of an outer transaction.
    pub(crate) fn saved(&self, savepoint: Savepoint) -> Result<Saved<P>> {
        let found = self.savepoints.get(savepoint.index).filter(|saved| saved.stamp == savepoint.stamp);
        found.filter(|_| savepoint.index >= self.outer.1).copied().ok_or(Error::Foreign { what: "savepoint" })
    }

    /// Takes back what was done behind it. What of it was written is gone already.
    pub(crate) fn undo_to(&mut self, savepoint: Savepoint, saved: Saved<P>) {
        self.savepoints.truncate(savepoint.index + 1);
        self.undo(saved.changes, saved.locked);
    }

    /// A nested action begins.
    pub(crate) fn enter(&mut self, point: P) -> Outer {
        let savepoint = self.save(point);
        self.depth += 1;
        let before = std::mem::replace(&mut self.outer, (self.changes.len(), savepoint.index));
        Outer { before, savepoint }
    }

    /// An error if this is another transaction now.
    pub(crate) fn check_inside(&self, outer: &Outer) -> Result<()> {
        let Savepoint { index, stamp } = outer.savepoint;
        let is_inside = self.savepoints.get(index).is_some_and(|saved| saved.stamp == stamp);
        if is_inside { Ok(()) } else { Err(Error::Unwound) }
    }

    /// It has ended, and can be taken back or kept.
    pub(crate) fn leave(&mut self, outer: &Outer) {
        self.outer = outer.before;
        self.depth -= 1;
    }

    /// An error if a nested action has not come to its end: it panicked, or this is another transaction than it began with.
    pub(crate) fn check_whole(&self) -> Result<()> {
        if self.depth == 0 { Ok(()) } else { Err(Error::Unwound) }
    }

    /// It stays, whatever comes.
    pub(crate) fn keep_nested(&mut self, outer: &Outer, gives: bool) {
        let changes = self.savepoints.get(outer.savepoint.index).map_or(0, |saved| saved.changes);
        self.keep(changes, gives);
        self.savepoints.truncate(outer.savepoint.index);
    }

    /// All of it stays: what it left is free, and no transaction waits for it any more.
    pub(crate) fn committed(&mut self, gives: bool) {
        self.keep(0, gives);
        self.end();
    }

    /// Nothing of it stays. What it wrote is gone already.
    pub(crate) fn aborted(&mut self) {
        self.undo(0, 0);
        self.end();
    }

    fn end(&mut self) {
        self.unlock(0);
        let ids = std::mem::take(&mut self.ids);
        self.give_ids(ids);
    }

    /// Takes back all changes but so many, and all locks but so many.
    fn undo(&mut self, changes: usize, locked: usize) {
        let mut ids = Vec::new();
        let mut space = self.shared.space.lock();
        for change in self.changes.drain(changes..).rev() {
            space.set_location(change.id, change.before);
            change.taken.into_iter().for_each(|at| space.give_slot(at));
            if change.before.is_none() {
                ids.push(change.id);
            }
        }
        drop(space);
        self.unlock(locked);
        self.give_ids(ids);
    }

    /// What these changes left, all but so many, is free; unless `gives` is false, for a test.
    fn keep(&mut self, changes: usize, gives: bool) {
        let mut space = self.shared.space.lock();
        for change in self.changes.drain(changes..) {
            change.left.into_iter().filter(|_| gives).for_each(|at| space.give_slot(at));
            if change.is_deleted {
                space.set_location(change.id, None);
                self.ids.push(change.id);
            }
        }
    }

    pub(crate) fn unlock(&mut self, keep: usize) {
        for (id, was_shared) in self.locked.drain(keep..).rev() {
            match was_shared {
                true if keep > 0 => self.shared.locks.share(self.owner, id),
                true => {} // it is released, too
                false => self.shared.locks.release(self.owner, id),
            }
        }
    }

    /// Behind the locks: a transaction that gets such a number locks it, and does not wait.
    fn give_ids(&self, ids: Vec<u64>) {
        if !ids.is_empty() {
            let mut space = self.shared.space.lock();
            ids.into_iter().for_each(|id| space.give_id(id));
        }
    }

    /// Shows each record of a table that `read` reads.
    pub(crate) fn numbers(&self, table: Table, from: u64) -> Vec<u64> {
        self.shared.space.lock().records(table.0, from)
    }

    pub(crate) fn changes(&self) -> usize {
        self.changes.len()
    }
}
