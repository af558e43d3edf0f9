//! A transaction of the store: what it wrote is in one of the array, and what it did to places and slots in a list, to be taken back.

use super::space::Place;
use super::{HEADER, Mars, Step, slot_bytes};
use crate::array::{self, Transaction};
use crate::error::{Error, Result};
use crate::records::locks::{Mode, Owner};
use crate::records::{RecordId, RecordTx, Savepoint, Table};

/// A transaction of [`Mars`]. Dropped, it is aborted.
pub struct MarsTx<'a> {
    store: &'a Mars,
    /// None when it has committed.
    tx: Option<Transaction<'a>>,
    owner: Owner,
    /// Records, in the order in which they were locked.
    locked: Vec<u64>,
    changes: Vec<Change>,
    savepoints: Vec<Saved>,
    /// So many changes and savepoints are the outer transaction's.
    outer: (usize, usize),
    /// Numbers that nested actions gave up, for others when the locks are gone.
    ids: Vec<u64>,
    scratch: Vec<u8>,
}

/// What was done to a record.
struct Change {
    id: u64,
    /// Where it was; none if it was not there.
    before: Option<Place>,
    /// The slot it got.
    taken: Option<u64>,
    /// The slot it left.
    left: Option<u64>,
    is_deleted: bool,
}

struct Saved {
    point: array::Savepoint,
    stamp: u64,
    changes: usize,
    locked: usize,
}

impl<'a> MarsTx<'a> {
    pub(super) fn new(store: &'a Mars, tx: Transaction<'a>) -> Self {
        let owner = store.locks.owner();
        Self {
            store,
            tx: Some(tx),
            owner,
            locked: Vec::new(),
            changes: Vec::new(),
            savepoints: Vec::new(),
            outer: (0, 0),
            ids: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn tx(&mut self) -> Result<&mut Transaction<'a>> {
        self.tx.as_mut().ok_or(Error::Stopped)
    }

    /// True if it was not locked before.
    fn lock(&mut self, id: u64, mode: Mode) -> Result<bool> {
        let is_new = self.store.locks.take(self.owner, id, mode)?;
        if is_new {
            self.locked.push(id);
        }
        Ok(is_new)
    }

    /// Where a record is, locked.
    fn find(&mut self, table: Table, RecordId(id): RecordId, mode: Mode) -> Result<Place> {
        let is_new = self.lock(id, mode)?;
        if let Some(place) = self.store.space.lock().place(id).filter(|place| place.table == table.0) {
            return Ok(place);
        }
        if is_new {
            self.unlock(self.locked.len() - 1); // there is nothing to keep others from, who may get its number
        }
        Err(Error::NoRecord { table: self.store.table_name(table)?, id, damaged: self.store.damaged.len() })
    }

    fn read_at(&mut self, id: u64, place: Place, into: &mut Vec<u8>) -> Result<()> {
        let store = self.store;
        let (file, at) = store.locate(place.at)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(HEADER + place.len as usize, 0);
        let done = self.tx()?.read(&file, at, &mut scratch);
        let is_whole = store.keys.is_whole(place.at, id, &scratch);
        into.clear();
        into.extend_from_slice(&scratch[HEADER..]);
        self.scratch = scratch;
        done?;
        if !is_whole {
            let table = store.table_name(Table(place.table))?;
            return Err(Error::RecordDamaged { table, id });
        }
        Ok(())
    }

    fn check_len(&self, len: usize) -> Result<()> {
        let max = (self.store.block - super::LINE) as usize - HEADER;
        if len > max { Err(Error::RecordTooLong { len, max }) } else { Ok(()) }
    }

    /// An outer transaction's changes are not a nested action's to change.
    fn check_outer(&self, table: Table, id: u64) -> Result<()> {
        if self.changes[..self.outer.0].iter().any(|change| change.id == id) {
            return Err(Error::OuterRecord { table: self.store.table_name(table)?, id });
        }
        Ok(())
    }

    /// Logs the record at a slot.
    fn write(&mut self, at: u64, id: u64, table: Table, bytes: &[u8]) -> Result<()> {
        let (file, within) = self.store.locate(at)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        self.store.keys.record(at, id, table.0, bytes, &mut scratch);
        let done = self.tx().and_then(|tx| tx.log_write(&file, within, &scratch));
        self.scratch = scratch;
        done.map(drop)
    }

    /// Logs that there is no record at a slot.
    fn clear(&mut self, at: u64) -> Result<()> {
        if !self.store.has(Step::LeftLater) {
            self.store.space.lock().give_slot(at);
        }
        if !self.store.has(Step::ClearLeft) {
            return Ok(());
        }
        let (file, within) = self.store.locate(at)?;
        self.tx()?.log_write(&file, within, &[0; HEADER]).map(drop)
    }

    /// The record gets a slot, where it is written.
    fn place(&mut self, id: u64, table: Table, bytes: &[u8]) -> Result<Place> {
        let at = self.store.take_slot(bytes.len())?;
        if let Err(error) = self.write(at, id, table, bytes) {
            self.store.space.lock().give_slot(at);
            return Err(error);
        }
        Ok(Place { at, table: table.0, len: bytes.len() as u32 })
    }

    /// Takes back all changes but so many, and all locks but so many. What of it was logged is gone already.
    fn undo(&mut self, changes: usize, locked: usize) {
        let mut ids = Vec::new();
        let mut space = self.store.space.lock();
        for change in self.changes.drain(changes..).rev() {
            space.set_place(change.id, change.before);
            change.taken.into_iter().for_each(|at| space.give_slot(at));
            if change.before.is_none() {
                ids.push(change.id);
            }
        }
        drop(space);
        self.unlock(locked);
        self.give_ids(ids);
    }

    /// What these changes left, all but so many, is free.
    fn keep(&mut self, changes: usize) {
        let mut space = self.store.space.lock();
        for change in self.changes.drain(changes..) {
            if self.store.has(Step::LeftLater) {
                change.left.into_iter().for_each(|at| space.give_slot(at));
            }
            if change.is_deleted {
                space.set_place(change.id, None);
                self.ids.push(change.id);
            }
        }
    }

    fn unlock(&mut self, keep: usize) {
        self.locked.drain(keep..).for_each(|id| self.store.locks.release(self.owner, id));
    }

    /// Nobody waits for it any more.
    fn end(&mut self) {
        self.unlock(0);
        let ids = std::mem::take(&mut self.ids);
        self.give_ids(ids);
    }

    /// Behind the locks: whoever gets such a number locks it, and does not wait.
    fn give_ids(&self, ids: Vec<u64>) {
        if !ids.is_empty() {
            let mut space = self.store.space.lock();
            ids.into_iter().for_each(|id| space.give_id(id));
        }
    }

    fn saved(&self, savepoint: Savepoint) -> Result<&Saved> {
        let found = self.savepoints.get(savepoint.index).filter(|saved| saved.stamp == savepoint.stamp);
        found.ok_or(Error::Foreign { what: "savepoint" })
    }
}

impl RecordTx for MarsTx<'_> {
    fn insert(&mut self, table: Table, bytes: &[u8]) -> Result<RecordId> {
        self.store.table_name(table)?;
        self.check_len(bytes.len())?;
        let id = self.store.space.lock().take_id();
        let done = self.lock(id, Mode::Exclusive).and_then(|_| self.place(id, table, bytes));
        match done {
            Ok(place) => {
                self.store.space.lock().set_place(id, Some(place));
                self.changes.push(Change { id, before: None, taken: Some(place.at), left: None, is_deleted: false });
                Ok(RecordId(id))
            }
            Err(error) => {
                if self.locked.last() == Some(&id) {
                    self.unlock(self.locked.len() - 1);
                }
                self.give_ids(vec![id]);
                Err(error)
            }
        }
    }

    fn read(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        let place = self.find(table, id, Mode::Shared)?;
        self.read_at(id.0, place, into)
    }

    fn read_for_update(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        let place = self.find(table, id, Mode::Exclusive)?;
        self.read_at(id.0, place, into)
    }

    fn update(&mut self, table: Table, id: RecordId, bytes: &[u8]) -> Result<()> {
        self.check_len(bytes.len())?;
        let before = self.find(table, id, Mode::Exclusive)?;
        self.check_outer(table, id.0)?;
        let slot = self.store.space.lock().slot_at(before.at);
        let wanted = slot_bytes(bytes.len(), self.store.block);
        // Not for the sake of a little room.
        let stays = wanted <= slot && wanted >= slot / 2;
        let place = if stays {
            self.write(before.at, id.0, table, bytes)?;
            Place { len: bytes.len() as u32, ..before }
        } else {
            // Both or nothing: else there were two of it.
            let point = self.tx()?.savepoint();
            self.clear(before.at)?;
            match self.place(id.0, table, bytes) {
                Ok(place) => place,
                Err(error) => {
                    self.tx()?.rollback_to(point)?;
                    return Err(error);
                }
            }
        };
        self.store.space.lock().set_place(id.0, Some(place));
        self.changes.push(Change {
            id: id.0,
            before: Some(before),
            taken: (!stays).then_some(place.at),
            left: (!stays).then_some(before.at),
            is_deleted: false,
        });
        Ok(())
    }

    fn delete(&mut self, table: Table, id: RecordId) -> Result<()> {
        let before = self.find(table, id, Mode::Exclusive)?;
        self.check_outer(table, id.0)?;
        self.clear(before.at)?;
        self.store.space.lock().hide(id.0);
        let (before, left) = (Some(before), Some(before.at));
        self.changes.push(Change { id: id.0, before, taken: None, left, is_deleted: true });
        Ok(())
    }

    fn scan(&mut self, table: Table, each: &mut dyn FnMut(RecordId, &[u8])) -> Result<()> {
        self.store.table_name(table)?;
        let (mut from, mut record) = (1, Vec::new());
        loop {
            let some = self.store.space.lock().records(table.0, from);
            let Some(last) = some.last() else { return Ok(()) };
            from = last + 1;
            for id in some {
                match self.read(table, RecordId(id), &mut record) {
                    Ok(()) => each(RecordId(id), &record),
                    Err(Error::NoRecord { .. }) => {} // it was deleted meanwhile
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn savepoint(&mut self) -> Savepoint {
        let stamp = self.store.locks.owner();
        if let Some(tx) = &mut self.tx {
            let point = tx.savepoint();
            self.savepoints.push(Saved { point, stamp, changes: self.changes.len(), locked: self.locked.len() });
        }
        Savepoint { index: self.savepoints.len().wrapping_sub(1), stamp }
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let Saved { point, changes, locked, .. } = *self.saved(savepoint)?;
        if savepoint.index < self.outer.1 {
            return Err(Error::Foreign { what: "savepoint" });
        }
        self.tx()?.rollback_to(point)?;
        self.savepoints.truncate(savepoint.index + 1);
        self.undo(changes, locked);
        Ok(())
    }

    fn nested_top<R>(&mut self, act: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let savepoint = self.savepoint();
        let Saved { point, changes, .. } = *self.saved(savepoint)?;
        let outer = std::mem::replace(&mut self.outer, (changes, savepoint.index));
        let done = act(self).and_then(|done| self.tx()?.nested_top(point).map(|_| done));
        self.outer = outer;
        match done {
            Ok(_) => self.keep(changes),
            Err(_) => self.rollback_to(savepoint)?,
        }
        self.savepoints.truncate(savepoint.index);
        done
    }

    fn commit(mut self) -> Result<()> {
        let Some(tx) = self.tx.take() else { return Err(Error::Stopped) };
        if !self.store.has(Step::LocksToEnd) {
            self.unlock(0);
        }
        match tx.commit() {
            Ok(committed) => {
                self.keep(0);
                self.end();
                drop(committed); // behind the locks: whoever reads there sees to it
                Ok(())
            }
            Err(error) => {
                // Nothing changed; or nothing more will, and what did shows when the store is opened again.
                self.undo(0, 0);
                self.end();
                Err(error)
            }
        }
    }

    fn abort(self) -> Result<()> {
        Ok(())
    }
}

impl Drop for MarsTx<'_> {
    fn drop(&mut self) {
        if self.store.array.check_process().is_err() {
            return;
        }
        // First what is logged: a slot that is given back is written by others.
        drop(self.tx.take());
        self.undo(0, 0);
        self.end();
    }
}

impl std::fmt::Debug for MarsTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MarsTx").field("changes", &self.changes.len()).finish_non_exhaustive()
    }
}
