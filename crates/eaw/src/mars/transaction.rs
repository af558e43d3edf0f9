//! A transaction of the store: what it wrote is in one of the array.

use std::collections::BTreeSet;

use super::{HEADER, Mars, Step, slot_bytes};
use crate::array::{self, Transaction};
use crate::error::{Error, Result};
use crate::records::locks::Mode;
use crate::records::session::{Change, Session};
use crate::records::space::Place;
use crate::records::{RecordId, RecordTx, Savepoint, Table, scan};

/// A transaction of [`Mars`]. Dropped, it is aborted.
pub struct MarsTx<'a> {
    store: &'a Mars,
    /// None when it has committed.
    tx: Option<Transaction<'a>>,
    session: Session<'a, array::Savepoint>,
    /// Records that it wrote, if only once: of others the array has all there is.
    written: BTreeSet<u64>,
    scratch: Vec<u8>,
}

impl<'a> MarsTx<'a> {
    pub(super) fn new(store: &'a Mars, tx: Transaction<'a>) -> Self {
        Self {
            store,
            tx: Some(tx),
            session: Session::new(&store.shared),
            written: BTreeSet::new(),
            scratch: Vec::new(),
        }
    }

    fn tx(&mut self) -> Result<&mut Transaction<'a>> {
        self.tx.as_mut().ok_or(Error::Stopped)
    }

    fn read_at(&mut self, id: u64, place: Place, into: &mut Vec<u8>) -> Result<()> {
        let store = self.store;
        let (file, at) = store.locate(place.at)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(HEADER + place.len as usize, 0);
        let done = match self.written.contains(&id) {
            true => self.tx()?.read(&file, at, &mut scratch),
            false => store.array.read(&file, at, &mut scratch),
        };
        let is_whole = store.keys.is_whole(place.at, id, &scratch);
        into.clear();
        if done.is_ok() && is_whole {
            into.extend_from_slice(&scratch[HEADER..]);
        }
        self.scratch = scratch;
        done?;
        if !is_whole {
            let table = store.shared.table_name(Table(place.table))?;
            return Err(Error::RecordDamaged { table, id });
        }
        Ok(())
    }

    /// Logs the record at a slot.
    fn write(&mut self, at: u64, id: u64, table: Table, bytes: &[u8]) -> Result<()> {
        let (file, within) = self.store.locate(at)?;
        self.written.insert(id);
        let mut scratch = std::mem::take(&mut self.scratch);
        self.store.keys.record(at, id, table.0, bytes, &mut scratch);
        let done = self.tx().and_then(|tx| tx.log_write(&file, within, &scratch));
        self.scratch = scratch;
        done.map(drop)
    }

    /// Logs that there is no record at a slot.
    fn clear(&mut self, at: u64) -> Result<()> {
        if !self.store.has(Step::LeftLater) {
            self.store.shared.space.lock().give_slot(at);
        }
        if !self.store.has(Step::ClearLeft) {
            return Ok(());
        }
        let (file, within) = self.store.locate(at)?;
        let empty = self.store.keys.empty(at);
        self.tx()?.log_write(&file, within, &empty).map(drop)
    }

    /// The record gets a slot, where it is written.
    fn place(&mut self, id: u64, table: Table, bytes: &[u8]) -> Result<Place> {
        let at = self.store.take_slot(bytes.len())?;
        if let Err(error) = self.write(at, id, table, bytes) {
            self.store.shared.space.lock().give_slot(at);
            return Err(error);
        }
        Ok(Place { at, table: table.0, len: bytes.len() as u32 })
    }
}

impl RecordTx for MarsTx<'_> {
    fn insert(&mut self, table: Table, bytes: &[u8]) -> Result<RecordId> {
        self.store.array.check_process()?;
        self.store.shared.table_name(table)?;
        self.store.shared.check_len(bytes.len())?;
        let id = self.session.take_id()?;
        match self.place(id, table, bytes) {
            Ok(place) => {
                let change = Change { id, before: None, taken: Some(place.at), left: None, is_deleted: false };
                self.session.changed(change, Some(place));
                Ok(RecordId(id))
            }
            Err(error) => {
                self.session.give_id(id);
                Err(error)
            }
        }
    }

    fn read(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        self.store.array.check_process()?;
        let place = self.session.find(table, id, Mode::Shared)?;
        self.read_at(id.0, place, into)
    }

    fn read_for_update(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        self.store.array.check_process()?;
        let place = self.session.find(table, id, Mode::Exclusive)?;
        self.read_at(id.0, place, into)
    }

    fn update(&mut self, table: Table, id: RecordId, bytes: &[u8]) -> Result<()> {
        self.store.array.check_process()?;
        self.store.shared.check_len(bytes.len())?;
        let before = self.session.find(table, id, Mode::Exclusive)?;
        self.session.check_outer(table, id.0)?;
        let stays = self.store.shared.space.lock().fits(before.at, slot_bytes(bytes.len() + HEADER, self.store.block));
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
        let (taken, left) = if stays { (None, None) } else { (Some(place.at), Some(before.at)) };
        let change = Change { id: id.0, before: Some(before), taken, left, is_deleted: false };
        self.session.changed(change, Some(place));
        Ok(())
    }

    fn delete(&mut self, table: Table, id: RecordId) -> Result<()> {
        self.store.array.check_process()?;
        let before = self.session.find(table, id, Mode::Exclusive)?;
        self.session.check_outer(table, id.0)?;
        self.clear(before.at)?;
        let (before, left) = (Some(before), Some(before.at));
        self.session.changed(Change { id: id.0, before, taken: None, left, is_deleted: true }, None);
        Ok(())
    }

    fn scan(&mut self, table: Table, each: &mut dyn FnMut(RecordId, &[u8])) -> Result<()> {
        self.store.array.check_process()?;
        self.store.shared.table_name(table)?;
        scan(self, table, |tx, from| tx.session.numbers(table, from), each)
    }

    fn savepoint(&mut self) -> Savepoint {
        match &mut self.tx {
            Some(tx) => self.session.save(tx.savepoint()),
            None => Savepoint { index: usize::MAX, stamp: 0 },
        }
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.store.array.check_process()?;
        let saved = self.session.saved(savepoint)?;
        self.tx()?.rollback_to(saved.point)?;
        self.session.undo_to(savepoint, saved);
        Ok(())
    }

    fn nested_top<R>(&mut self, act: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.store.array.check_process()?;
        let point = self.tx()?.savepoint();
        let outer = self.session.enter(point);
        let done = act(self).and_then(|done| self.tx()?.nested_top(point).map(|_| done));
        self.session.leave(&outer);
        if done.is_err() {
            self.rollback_to(outer.savepoint)?;
        }
        self.session.keep_nested(&outer, self.store.has(Step::LeftLater));
        done
    }

    fn commit(mut self) -> Result<()> {
        self.store.array.check_process()?;
        self.session.check_whole()?;
        let Some(tx) = self.tx.take() else { return Err(Error::Stopped) };
        if !self.store.has(Step::LocksToEnd) {
            self.session.unlock(0);
        }
        match tx.commit() {
            Ok(committed) => {
                self.session.committed(self.store.has(Step::LeftLater));
                drop(committed); // behind the locks: whoever reads there sees to it
                Ok(())
            }
            Err(error) => {
                // Nothing changed; or nothing more will, and what did shows when the store is opened again.
                self.session.aborted();
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
        self.session.aborted();
    }
}

impl std::fmt::Debug for MarsTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MarsTx").field("changes", &self.session.changes()).finish_non_exhaustive()
    }
}
