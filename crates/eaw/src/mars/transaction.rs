//! A transaction of the store: what it wrote is in one of the array.

use std::collections::BTreeSet;

use super::{HEADER, LINE, Mars, Step, slot_bytes};
use crate::array::{self, Transaction};
use crate::error::{Error, Result};
use crate::records::locks::Mode;
use crate::records::session::{Keeps, Session};
use crate::records::space::Location;
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

    fn read_at(&mut self, id: u64, location: Location, into: &mut Vec<u8>) -> Result<()> {
        let store = self.store;
        let (file, at) = store.locate(location.at)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(HEADER + location.len as usize, 0);
        let done = match self.written.contains(&id) {
            true => self.tx()?.read(file, at, &mut scratch),
            false => store.array.read(file, at, &mut scratch),
        };
        let is_whole = store.keys.is_whole(location.at, id, &scratch);
        into.clear();
        if done.is_ok() && is_whole {
            into.extend_from_slice(&scratch[HEADER..]);
        }
        self.scratch = scratch;
        done?;
        if !is_whole {
            let table = store.shared.table_name(Table(location.table))?;
            return Err(Error::RecordDamaged { table, id });
        }
        Ok(())
    }

    /// Logs the record at a slot. In one that holds no record, all but its first line is placed there at once, if that is worth it.
    fn write(&mut self, at: u64, id: u64, table: Table, bytes: &[u8], is_new: bool) -> Result<()> {
        let (file, within) = self.store.locate(at)?;
        self.written.insert(id);
        let mut scratch = std::mem::take(&mut self.scratch);
        self.store.keys.record(at, id, table.0, bytes, &mut scratch);
        let done = self.tx.as_mut().ok_or(Error::Stopped).and_then(|tx| {
            let mut logged = scratch.len();
            if is_new && self.store.places(bytes.len()) {
                scratch.resize(logged.next_multiple_of(LINE as usize), 0);
                if tx.place(file, within + LINE, &scratch[LINE as usize..])? {
                    logged = LINE as usize;
                }
            }
            tx.log_write(file, within, &scratch[..logged])
        });
        self.scratch = scratch;
        done.map(drop)
    }
}

impl<'a> Keeps<'a> for MarsTx<'a> {
    type Point = array::Savepoint;

    fn session(&mut self) -> &mut Session<'a, array::Savepoint> {
        &mut self.session
    }

    fn slot_for(&self, len: usize) -> u32 {
        slot_bytes(len + HEADER, self.store.block)
    }

    /// Once in a transaction: a record that is written again and again has one slot more, not one each time.
    fn moves(&self, id: u64, len: usize) -> bool {
        let has_room = || self.store.shared.space.lock().has_room(self.slot_for(len));
        self.store.places(len) && self.store.has(Step::Elsewhere) && !self.written.contains(&id) && has_room()
    }

    fn write_new(&mut self, id: u64, table: Table, bytes: &[u8], grows: bool) -> Result<Location> {
        let at = self.store.take_slot(bytes.len(), grows)?;
        if let Err(error) = self.write(at, id, table, bytes, true) {
            self.store.shared.space.lock().give_slot(at);
            return Err(error);
        }
        Ok(Location { at, table: table.0, len: bytes.len() as u32 })
    }

    fn overwrite(&mut self, before: Location, id: u64, table: Table, bytes: &[u8]) -> Result<()> {
        self.write(before.at, id, table, bytes, !self.store.has(Step::Elsewhere))
    }

    fn clear(&mut self, at: u64) -> Result<()> {
        if !self.store.has(Step::LeftLater) {
            self.store.shared.space.lock().give_slot(at);
        }
        if !self.store.has(Step::ClearLeft) {
            return Ok(());
        }
        let (file, within) = self.store.locate(at)?;
        let empty = self.store.keys.empty(at);
        self.tx()?.log_write(file, within, &empty).map(drop)
    }

    fn point(&mut self) -> Result<array::Savepoint> {
        Ok(self.tx()?.savepoint())
    }

    fn back_to(&mut self, point: array::Savepoint) -> Result<()> {
        self.tx()?.rollback_to(point)
    }
}

impl RecordTx for MarsTx<'_> {
    fn insert(&mut self, table: Table, bytes: &[u8]) -> Result<RecordId> {
        self.store.array.check_process()?;
        self.store.shared.table_name(table)?;
        self.insert_record(table, bytes)
    }

    fn read(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        self.store.array.check_process()?;
        let location = self.session.find(table, id, Mode::Shared)?;
        self.read_at(id.0, location, into)
    }

    fn read_for_update(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        self.store.array.check_process()?;
        let location = self.session.find(table, id, Mode::Exclusive)?;
        self.read_at(id.0, location, into)
    }

    fn update(&mut self, table: Table, id: RecordId, bytes: &[u8]) -> Result<()> {
        self.store.array.check_process()?;
        self.update_record(table, id, bytes)
    }

    fn delete(&mut self, table: Table, id: RecordId) -> Result<()> {
        self.store.array.check_process()?;
        self.delete_record(table, id)
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
        let done = act(self);
        self.session.check_inside(&outer)?;
        let done = done.and_then(|done| self.tx()?.nested_top(point).map(|_| done));
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
                drop(committed); // behind the locks: a reader there sees to it
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
