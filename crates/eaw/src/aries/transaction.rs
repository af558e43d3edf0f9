//! A transaction: changes in pages and in the log, and how they are undone.

use super::Core;
use super::disk::HEADER;
use super::failpoints::Step;
use super::room::{ENDING, FORMATTING, changing, undoing};
use super::wal::{Entry, differing};
use crate::error::{Error, Result};
use crate::records::locks::Mode;
use crate::records::session::{Keeps, Session};
use crate::records::space::{Location, slot_bytes};
use crate::records::{RecordId, RecordTx, Savepoint, Table, scan};

/// A transaction of [`Aries`](super::Aries). Dropped, it is aborted.
pub struct AriesTx<'a> {
    core: &'a Core,
    /// A savepoint is how many changes there were.
    session: Session<'a, usize>,
    undo: Vec<Undo>,
    /// The bytes before each change.
    before: Vec<u8>,
    has_logged: bool,
    scratch: Vec<u8>,
    /// It is one thread's.
    of: std::marker::PhantomData<*const ()>,
}

/// How a change is undone.
#[derive(Clone, Copy)]
struct Undo {
    lsn: u64,
    page: u64,
    at: u32,
    /// Its bytes are behind this many.
    start: usize,
}

impl<'a> AriesTx<'a> {
    pub(super) fn new(core: &'a Core) -> Self {
        let (undo, before, scratch) = (Vec::new(), Vec::new(), Vec::new());
        let session = Session::new(&core.shared);
        Self { core, session, undo, before, has_logged: false, scratch, of: std::marker::PhantomData }
    }

    /// Whose its records in the log are.
    fn number(&self) -> u64 {
        self.session.owner
    }

    /// Before the first record: a checkpoint sees it, or comes before it.
    fn begin(&mut self) {
        if !self.has_logged {
            self.core.active.lock().insert(self.session.owner, self.core.wal.next_at_least());
            self.has_logged = true;
        }
    }

    /// That it ended is in the log.
    fn ended(&mut self) {
        self.core.active.lock().remove(&self.session.owner);
        self.core.owe_less(ENDING);
        self.has_logged = false;
    }

    /// Changes what is in a slot, of which so many bytes count now.
    fn change(&mut self, location: u64, now: usize, bytes: &[u8]) -> Result<()> {
        self.core.check_usable()?;
        let ending = if self.has_logged { 0 } else { ENDING };
        let mut room = self.core.make_room(self.session.owner, changing(now, bytes.len()) + ending)?;
        room.keep(ending);
        self.begin();
        let (page, offset) = (location / self.core.page, (location % self.core.page) as usize);
        let (core, number) = (self.core, self.number());
        let Self { undo, before: arena, scratch, .. } = self;
        core.buffer.with(&core.wal, page, |held| {
            if !held.is_sound() {
                return Err(core.damaged_page());
            }
            let (skip, before, after) = differing(&held.page.0[offset..offset + now], bytes);
            if before.is_empty() && after.is_empty() {
                return Ok(());
            }
            let (at, len) = (offset + skip, after.len());
            let lsn = core.wal.add(number, &Entry::Change { page, at: at as u32, before, after }, scratch)?;
            undo.push(Undo { lsn, page, at: at as u32, start: arena.len() });
            room.keep(undoing(before.len()));
            arena.extend_from_slice(before);
            held.change(at, &bytes[skip..][..len], lsn);
            Ok(())
        })
    }

    /// A record in a slot of which so many bytes count now.
    fn write(&mut self, location: u64, now: usize, id: u64, table: Table, bytes: &[u8]) -> Result<()> {
        let mut record = Vec::with_capacity(HEADER + bytes.len());
        record.extend_from_slice(&id.to_le_bytes());
        record.extend_from_slice(&table.0.to_le_bytes());
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(bytes);
        self.change(location, now, &record)
    }

    /// Nothing of the changes but so many is to be undone any more.
    fn forget(&mut self, count: usize) {
        let Some(first) = self.undo.get(count).copied() else { return };
        let ends = self.undo[count + 1..].iter().map(|undo| undo.start).chain([self.before.len()]);
        let owed = self.undo[count..].iter().zip(ends).map(|(undo, end)| undoing(end - undo.start)).sum();
        self.core.owe_less(owed);
        self.undo.truncate(count);
        self.before.truncate(first.start);
    }

    /// Undoes all changes but so many, and logs each step. If it cannot, only a restart can.
    fn undo_to(&mut self, count: usize) -> Result<()> {
        let (core, number) = (self.core, self.number());
        while self.undo.len() > count {
            let Some(Undo { lsn, page, at, start }) = self.undo.last().copied() else { break };
            let (before, scratch) = (&self.before[start..], &mut self.scratch);
            let undone = core.buffer.with(&core.wal, page, |held| {
                if !held.is_sound() {
                    return Err(core.damaged_page());
                }
                let entry = Entry::Compensation { page, at, after: before, next: lsn };
                let own = core.wal.add(number, &entry, scratch)?;
                held.change(at as usize, before, own);
                Ok(())
            });
            undone.inspect_err(|_| core.wal.stop())?;
            self.forget(self.undo.len() - 1);
        }
        Ok(())
    }

    fn read_at(&mut self, id: u64, location: Location, into: &mut Vec<u8>) -> Result<()> {
        let (page, offset) = (location.at / self.core.page, (location.at % self.core.page) as usize);
        let core = self.core;
        let is_whole = core.buffer.with(&core.wal, page, |held| {
            into.clear();
            into.extend_from_slice(&held.page.0[offset + HEADER..][..location.len as usize]);
            Ok(held.is_sound())
        })?;
        if is_whole {
            return Ok(());
        }
        into.clear();
        let table = core.shared.table_name(Table(location.table))?;
        Err(Error::RecordDamaged { table, id })
    }

    /// Nothing of it stays.
    fn give_up(&mut self) -> Result<()> {
        self.undo_to(0)?;
        if self.has_logged {
            self.core.wal.add(self.number(), &Entry::End, &mut self.scratch).inspect_err(|_| self.core.wal.stop())?;
            self.ended();
        }
        Ok(())
    }
}

impl<'a> Keeps<'a> for AriesTx<'a> {
    type Point = usize;

    fn session(&mut self) -> &mut Session<'a, usize> {
        &mut self.session
    }

    fn slot_for(&self, len: usize) -> u32 {
        slot_bytes(len + HEADER, self.core.page)
    }

    fn write_new(&mut self, id: u64, table: Table, bytes: &[u8], _: bool) -> Result<Location> {
        let room = self.core.make_room(self.session.owner, FORMATTING)?;
        let at = self.core.take_slot(bytes.len())?;
        drop(room);
        if let Err(error) = self.write(at, HEADER, id, table, bytes) {
            self.core.shared.space.lock().give_slot(at);
            return Err(error);
        }
        Ok(Location { at, table: table.0, len: bytes.len() as u32 })
    }

    fn overwrite(&mut self, before: Location, id: u64, table: Table, bytes: &[u8]) -> Result<()> {
        self.write(before.at, HEADER + before.len as usize, id, table, bytes)
    }

    fn clear(&mut self, at: u64) -> Result<()> {
        self.change(at, HEADER, &[0; HEADER])
    }

    fn point(&mut self) -> Result<usize> {
        Ok(self.undo.len())
    }

    fn back_to(&mut self, point: usize) -> Result<()> {
        self.undo_to(point)
    }
}

impl RecordTx for AriesTx<'_> {
    fn insert(&mut self, table: Table, bytes: &[u8]) -> Result<RecordId> {
        self.core.check_usable()?;
        self.core.shared.table_name(table)?;
        self.insert_record(table, bytes)
    }

    fn read(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        self.core.check_usable()?;
        let location = self.session.find(table, id, Mode::Shared)?;
        self.read_at(id.0, location, into)
    }

    fn read_for_update(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()> {
        self.core.check_usable()?;
        let location = self.session.find(table, id, Mode::Exclusive)?;
        self.read_at(id.0, location, into)
    }

    fn update(&mut self, table: Table, id: RecordId, bytes: &[u8]) -> Result<()> {
        self.core.check_usable()?;
        self.update_record(table, id, bytes)
    }

    fn delete(&mut self, table: Table, id: RecordId) -> Result<()> {
        self.core.check_usable()?;
        self.delete_record(table, id)
    }

    fn scan(&mut self, table: Table, each: &mut dyn FnMut(RecordId, &[u8])) -> Result<()> {
        self.core.check_usable()?;
        self.core.shared.table_name(table)?;
        scan(self, table, |tx, from| tx.session.numbers(table, from), each)
    }

    fn savepoint(&mut self) -> Savepoint {
        self.session.save(self.undo.len())
    }

    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.core.check_usable()?;
        let saved = self.session.saved(savepoint)?;
        self.undo_to(saved.point)?;
        self.session.undo_to(savepoint, saved);
        Ok(())
    }

    fn nested_top<R>(&mut self, act: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.core.check_usable()?;
        let count = self.undo.len();
        let outer = self.session.enter(count);
        let done = act(self);
        self.session.check_inside(&outer)?;
        let done = done.and_then(|done| {
            let Some(first) = self.undo.get(count).copied() else { return Ok(done) };
            if self.core.wal.steps.has(Step::NestedOver) {
                let lsn = self.core.wal.add(self.number(), &Entry::Nested { next: first.lsn }, &mut self.scratch)?;
                self.core.wal.force(lsn)?;
            }
            self.forget(count);
            if count == 0 {
                // Nothing keeps the log.
                self.core.active.lock().insert(self.number(), self.core.wal.next_at_least());
            }
            Ok(done)
        });
        self.session.leave(&outer);
        if done.is_err() {
            self.rollback_to(outer.savepoint)?;
        }
        self.session.keep_nested(&outer, true);
        done
    }

    fn commit(mut self) -> Result<()> {
        self.core.check_usable()?;
        self.session.check_whole()?;
        if self.has_logged {
            let (number, core) = (self.number(), self.core);
            let lsn = core.wal.add(number, &Entry::Commit, &mut self.scratch)?;
            if core.wal.steps.has(Step::CommitForce) {
                core.wal.force(lsn)?; // else whether it is durable shows at the restart
            }
            self.forget(0);
            self.ended();
        }
        self.session.committed(true);
        Ok(())
    }

    fn abort(mut self) -> Result<()> {
        self.core.check_usable()?;
        let done = self.give_up();
        self.session.aborted();
        done
    }
}

impl Drop for AriesTx<'_> {
    fn drop(&mut self) {
        if matches!(self.core.pool.check_usable(), Err(pmem::Error::Forked)) {
            return;
        }
        if self.core.check_usable().is_ok()
            && let Err(error) = self.give_up()
        {
            tracing::warn!(%error, "a transaction that was dropped could not be undone; it is when the store is opened");
        }
        self.session.aborted();
    }
}

impl std::fmt::Debug for AriesTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AriesTx").field("changes", &self.undo.len()).finish_non_exhaustive()
    }
}
