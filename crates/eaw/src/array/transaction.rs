//! A transaction until it commits: what it logs, and how that is changed.

use std::marker::PhantomData;

use smallvec::SmallVec;

use super::Array;
use super::commit::Committed;
use super::failpoints::Step;
use super::files::{Cut, File, file_mut};
use super::part::{Part, Piece};
use super::parts::{Extents, Parts, at_member};
use super::tid::Tid;
use crate::error::{Error, Result};
use crate::stamp::stamp;

/// A write that was logged: until the commit, [`Transaction::edit`] changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    index: usize,
    stamp: u64,
    len: u64,
}

impl Entry {
    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A moment of a transaction to which it can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    index: usize,
    stamp: u64,
}

/// A transaction: what it logs is in the files after [`commit`](Self::commit), all of it or nothing. Dropped, it is aborted.
///
/// It does not keep others away from the bytes that it is going to write: a caller that changes the same bytes in several transactions locks them, or lets one
/// thread do it. Of two that write the same bytes, the one that commits later wins; so does, of two writes of one transaction, the later one.
///
/// A commit consumes it: what is logged cannot be changed afterwards, since that would break the checksum of what was acknowledged.
///
/// ```compile_fail,E0382
/// # fn edit(array: &eaw::array::Array, file: &eaw::array::File) -> eaw::Result<()> {
/// let mut tx = array.begin()?;
/// let entry = tx.log_write(file, 0, b"one")?;
/// tx.commit()?;
/// tx.edit(&entry, 0, b"two")?; // borrow of moved value: `tx`
/// # Ok(()) }
/// ```
pub struct Transaction<'a> {
    entries: SmallVec<[Logged; 2]>,
    savepoints: Vec<Saved>,
    parts: Parts<'a>,
    /// It is one thread's, like what it has flushed.
    of: PhantomData<*const ()>,
}

struct Logged {
    stamp: u64,
    file: u32,
    offset: u64,
    len: u64,
}

struct Saved {
    stamp: u64,
    entries: usize,
    /// By member.
    extents: Extents,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(array: &'a Array, tid: Tid<'a>) -> Self {
        let parts = Parts::new(array, tid);
        Self { entries: SmallVec::new(), savepoints: Vec::new(), parts, of: PhantomData }
    }

    /// Its TID.
    pub fn id(&self) -> u32 {
        self.parts.tid.number
    }

    /// Logs a write: after the commit `data` is in the file at `offset` (`LogWrite`). It waits in memory, beyond
    /// [`Options::draft_max`](super::Options::draft_max) in the log, on the members that the bytes belong to.
    ///
    /// # Errors
    /// [`Error::OutOfFile`]; [`Error::Foreign`] for a file of another array; [`Error::LogFull`]; those of the pool. Nothing is logged then.
    pub fn log_write(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<Entry> {
        let (array, len, index) = (self.parts.array, data.len() as u64, self.entries.len());
        array.check_process()?;
        file.check(array.id, offset, len)?;
        for cut in array.striping.cut(offset, len) {
            let run = &data[cut.at as usize..][..cut.len as usize];
            let piece = Piece {
                entry: index,
                from: cut.at,
                target: cut.local,
                file: file.number(),
                len: 0,
                chunk: 0,
                at: 0,
                draft: None,
                is_stored: true,
                checksum: 0,
            };
            let part = self.parts.of(cut.member);
            if part.draft.len() + run.len() <= array.draft_max {
                part.keep(run, piece, array.chunk);
            } else if let Err(error) = array.spill(part, run, piece) {
                self.parts.list.iter_mut().for_each(|part| part.forget(index));
                self.parts.trim();
                return Err(error);
            }
        }
        let stamp = stamp();
        self.entries.push(Logged { stamp, file: file.number(), offset, len });
        Ok(Entry { index, stamp, len })
    }

    /// Writes past the log, at once, to a place of unneeded bytes: nothing else reads or writes there before this transaction has ended, and without its commit anything may be
    /// there. What is placed is durable before the transaction is, which has one barrier more for it, and is on media once. [`LogWrite`](Self::log_write) then says what makes it count.
    ///
    /// False, and nothing is written, if the place is on a file, where a sync more costs more than a copy, or if a log has bytes for it: recovery would write those over it.
    ///
    /// # Errors
    /// [`Error::OutOfFile`]; [`Error::Foreign`] for a file of another array; [`Error::Stopped`]; those of the pool.
    pub fn place(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<bool> {
        let (array, len) = (self.parts.array, data.len() as u64);
        array.check_usable()?;
        file.check(array.id, offset, len)?;
        let is_logged = |part: &Part, cut: &Cut| part.meets(file.number(), cut.local, cut.len);
        for cut in array.striping.cut(offset, len) {
            let member = &array.members[cut.member];
            let own = self.parts.list.iter().any(|part| part.member == cut.member && is_logged(part, &cut));
            let is_held = own || member.lock().holds(file.number(), cut.local, cut.len);
            if !member.is_memory() || is_held && array.has(Step::LogFirst) {
                return Ok(false);
            }
        }
        for cut in array.striping.cut(offset, len) {
            let run = &data[cut.at as usize..][..cut.len as usize];
            file_mut(&mut array.members[cut.member].lock().files, file.number())?.copy_nt(cut.local, run)?;
            if !self.parts.placed.contains(&cut.member) {
                self.parts.placed.push(cut.member);
            }
        }
        Ok(true)
    }

    fn entry(&self, entry: &Entry) -> Result<&Logged> {
        let found = self.entries.get(entry.index).filter(|logged| logged.stamp == entry.stamp);
        found.ok_or(Error::Foreign { what: "entry" })
    }

    /// Changes what was logged: `data` at `at` of the entry. No barrier, and nothing that was not logged anyway.
    ///
    /// # Errors
    /// [`Error::Foreign`] if the entry was rolled back or is of another transaction; [`Error::OutOfEntry`].
    pub fn edit(&mut self, entry: &Entry, at: u64, data: &[u8]) -> Result<()> {
        let len = self.entry(entry)?.len;
        let end = at.saturating_add(data.len() as u64);
        if end > len {
            return Err(Error::OutOfEntry { at, end, len });
        }
        for part in &mut self.parts.list {
            for index in part.pieces_of(entry.index) {
                let Piece { from: start, len, .. } = part.pieces[index];
                let (from, to) = (at.max(start), end.min(start + u64::from(len)));
                if from < to {
                    part.edit(index, from - start, &data[(from - at) as usize..(to - at) as usize])?;
                }
            }
        }
        Ok(())
    }

    /// Reads a range of a file as it will be: what is committed, with what this transaction has logged over it.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read(&self, file: &File, offset: u64, into: &mut [u8]) -> Result<()> {
        self.parts.array.read(file, offset, into)?;
        let end = offset + into.len() as u64;
        for part in &self.parts.list {
            for piece in part.pieces.iter().filter(|piece| piece.file == file.number()) {
                let start = self.entries[piece.entry].offset + piece.from;
                let (from, to) = (offset.max(start), end.min(start + u64::from(piece.len)));
                if from < to {
                    let bytes = &part.bytes(piece)?[(from - start) as usize..(to - start) as usize];
                    into[(from - offset) as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    /// A moment to return to.
    pub fn savepoint(&mut self) -> Savepoint {
        self.parts.list.iter_mut().for_each(|part| part.cut());
        let stamp = stamp();
        self.savepoints.push(Saved { stamp, entries: self.entries.len(), extents: self.parts.extents() });
        Savepoint { index: self.savepoints.len() - 1, stamp }
    }

    /// How many entries there were then, and how much of each part.
    fn saved(&self, savepoint: Savepoint) -> Result<(usize, Extents)> {
        self.parts.array.check_process()?;
        let found = self.savepoints.get(savepoint.index).filter(|saved| saved.stamp == savepoint.stamp);
        let saved = found.ok_or(Error::Foreign { what: "savepoint" })?;
        Ok((saved.entries, saved.extents.clone()))
    }

    /// Takes back what was logged behind a savepoint, which stays (`PartialAbort`). Savepoints behind it are gone.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let (entries, extents) = self.saved(savepoint)?;
        self.savepoints.truncate(savepoint.index + 1);
        self.entries.truncate(entries);
        self.parts.list.iter_mut().for_each(|part| part.truncate(at_member(&extents, part.member)));
        self.parts.trim();
        Ok(())
    }

    /// Commits what was logged behind a savepoint, whatever becomes of the transaction (`NestedTopAction`), and returns its number. The savepoint
    /// stays.
    ///
    /// # Errors
    /// [`Error::OuterWrite`] if that writes what was logged before the savepoint, too; [`Error::TooManyTransactions`], as it needs a TID of its own;
    /// nothing has changed then. Those of a [`commit`](Self::commit): what was logged behind the savepoint is gone.
    pub fn nested_top(&mut self, savepoint: Savepoint) -> Result<u64> {
        let (entries, extents) = self.saved(savepoint)?;
        let (outer, inner) = self.entries.split_at(entries);
        for (one, other) in outer.iter().flat_map(|one| inner.iter().map(move |other| (one, other))) {
            let (offset, end) = (one.offset.max(other.offset), (one.offset + one.len).min(other.offset + other.len));
            if one.file == other.file && offset < end {
                return Err(Error::OuterWrite { name: self.parts.array.name_of(one.file), offset, end });
            }
        }
        let mut nested = self.parts.array.begin()?;
        nested.parts.placed.clone_from(&self.parts.placed);
        self.savepoints.truncate(savepoint.index + 1);
        self.entries.truncate(entries);
        for part in &mut self.parts.list {
            let extent = at_member(&extents, part.member);
            if extent.pieces < part.pieces.len() {
                part.split_off(extent, nested.parts.of(part.member));
            }
        }
        Ok(nested.commit()?.sequence())
    }

    /// Gives everything up: nothing changes. No barrier.
    pub fn abort(self) {}

    /// All that was logged becomes durable, and then visible: durable when it returns, and seen by each reader there from then on. It does not wait for others; a read of its bytes waits for those
    /// that commit at the same time and have a number before it. A barrier for
    /// each pool that has a part, two above [`Options::checksum_max`](super::Options::checksum_max) and behind what was [placed](Self::place).
    ///
    /// # Errors
    /// [`Error::LogFull`]: nothing changes then. Those of a drain, and [`Error::Stopped`]: whether it happened shows when the array is opened again.
    pub fn commit(self) -> Result<Committed<'a>> {
        self.parts.array.commit(self.parts)
    }

    /// For tests: as a crash would leave it when all members but one have their parts complete. The array can only be dropped then.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    pub fn commit_in_part(mut self) -> Error {
        let most = self.parts.in_order().len().saturating_sub(1);
        let done = self.parts.array.commit_at(self.parts, most);
        done.map_or_else(|error| error, |_| Error::Stopped)
    }
}

impl Array {
    /// Writes a run to the log, behind what is filled of it. All but `piece`'s length and place in the log is said there.
    fn spill(&self, part: &mut Part, mut run: &[u8], mut piece: Piece) -> Result<()> {
        while !run.is_empty() {
            if part.used >= self.chunk {
                if part.filled == part.data.len() {
                    part.data.push(self.take_log(part.member)?);
                }
                (part.filled, part.used) = (part.filled + 1, 0);
            }
            let (now, rest) = run.split_at(run.len().min((self.chunk - part.used) as usize));
            let chunk = part.filled - 1;
            part.data[chunk].area.copy_nt(part.used, now)?;
            (piece.len, piece.chunk, piece.at) = (now.len() as u32, chunk as u32, part.used as u32);
            part.pieces.push(piece);
            let len = now.len() as u64;
            part.used = (part.used + len).next_multiple_of(pmem::LINE);
            (piece.from, piece.target, run) = (piece.from + len, piece.target + len, rest);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction")
            .field("id", &self.id())
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}
