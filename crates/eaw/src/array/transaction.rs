//! A transaction until it commits: what it logs, and how that is changed.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Array;
use super::commit::Committed;
use super::files::File;
use super::member::{Body, Piece};
use super::tid::Tid;
use crate::error::{Error, Result};

/// Data begins on a line in the log.
const ALIGN: u64 = pmem::LINE;

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
/// It does not keep others away from the bytes that it is going to write: whoever changes the same bytes in several transactions locks them, or lets one thread do it.
/// Of two that write the same bytes, the one that commits later wins; so does, of two writes of one transaction, the later one.
///
/// A commit consumes it: what is logged cannot be changed afterwards, since that would break the seal of what was acknowledged.
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
    array: &'a Array,
    tid: Arc<Tid>,
    /// By member.
    open: Vec<Open>,
    entries: Vec<Logged>,
    savepoints: Vec<Saved>,
    /// It is one thread's at a time, like what it has flushed.
    of: PhantomData<*const ()>,
}

/// A member's part, so far.
#[derive(Default)]
struct Open {
    body: Body,
    /// Bytes used in the last chunk.
    used: u64,
    /// The next piece begins in a chunk of its own: what is before it belongs to what is before a savepoint.
    is_cut: bool,
}

struct Logged {
    stamp: u64,
    file: File,
    offset: u64,
    len: u64,
    pieces: Vec<Place>,
}

/// Where a run of an entry is.
struct Place {
    member: usize,
    piece: usize,
    /// From the start of the entry.
    at: u64,
}

struct Saved {
    stamp: u64,
    entries: usize,
    /// By member: pieces and chunks so far.
    parts: Vec<(usize, usize)>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(array: &'a Array, tid: Arc<Tid>) -> Self {
        let open = array.members.iter().map(|_| Open::default()).collect();
        Self { array, tid, open, entries: Vec::new(), savepoints: Vec::new(), of: PhantomData }
    }

    /// Its TID.
    pub fn id(&self) -> u32 {
        self.tid.number
    }

    /// Logs a write: after the commit `data` is in the file at `offset` (`LogWrite`). The log is on the members that the bytes belong to.
    ///
    /// # Errors
    /// [`Error::OutOfFile`]; [`Error::Foreign`] for a file of another array; [`Error::LogFull`]; those of the pool. Nothing is logged then.
    pub fn log_write(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<Entry> {
        file.check(self.array.id, offset, data.len() as u64)?;
        let before: Vec<(usize, usize, u64, bool)> = self.open.iter().map(Open::extent).collect();
        let mut pieces = Vec::new();
        for cut in self.array.striping.cut(offset, data.len() as u64) {
            let run = &data[cut.at as usize..][..cut.len as usize];
            if let Err(error) = self.log_run(file, cut.member, cut.local, cut.at, run, &mut pieces) {
                for (member, (pieces, chunks, used, is_cut)) in before.into_iter().enumerate() {
                    self.truncate(member, pieces, chunks);
                    self.open[member].used = used;
                    self.open[member].is_cut = is_cut;
                }
                return Err(error);
            }
        }
        let (stamp, len) = (self.array.stamp(), data.len() as u64);
        self.entries.push(Logged { stamp, file: file.clone(), offset, len, pieces });
        Ok(Entry { index: self.entries.len() - 1, stamp, len })
    }

    fn log_run(
        &mut self,
        file: &File,
        member: usize,
        mut target: u64,
        mut at: u64,
        mut run: &[u8],
        places: &mut Vec<Place>,
    ) -> Result<()> {
        let array = self.array;
        let chunk_bytes = array.chunk;
        while !run.is_empty() {
            let open = &mut self.open[member];
            if open.is_cut || open.body.data.is_empty() || open.used == chunk_bytes {
                let chunk = array.take_log(member)?;
                open.body.data.push(chunk);
                (open.used, open.is_cut) = (0, false);
            }
            let len = (run.len() as u64).min(chunk_bytes - open.used) as usize;
            let (now, rest) = run.split_at(len);
            let chunk = open.body.data.len() - 1;
            let past_cache =
                (array.members[member].is_memory() && len as u64 > array.seal_max).then(pmem::thread_number);
            let area = &mut open.body.data[chunk].area;
            if past_cache.is_some() {
                area.copy_nt(open.used, now)?;
            } else {
                area.bytes_mut(open.used, len)?.copy_from_slice(now);
            }
            places.push(Place { member, piece: open.body.pieces.len(), at });
            let (file, len) = (file.number(), len as u32);
            open.body.pieces.push(Piece { file, len, target, chunk: chunk as u32, at: open.used as u32, past_cache });
            open.used = (open.used + u64::from(len)).next_multiple_of(ALIGN).min(chunk_bytes);
            (target, at, run) = (target + u64::from(len), at + u64::from(len), rest);
        }
        Ok(())
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
        let logged = self.entry(entry)?;
        let (end, len) = (at.saturating_add(data.len() as u64), logged.len);
        if end > len {
            return Err(Error::OutOfEntry { at, end, len });
        }
        let index = entry.index;
        for place in &self.entries[index].pieces {
            let body = &mut self.open[place.member].body;
            let piece = &mut body.pieces[place.piece];
            let (from, to) = (at.max(place.at), end.min(place.at + u64::from(piece.len)));
            if from < to {
                piece.past_cache = None; // flushed again
                let bytes = &data[(from - at) as usize..(to - at) as usize];
                let within = u64::from(piece.at) + (from - place.at);
                body.data[piece.chunk as usize].area.bytes_mut(within, bytes.len())?.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Reads a range of a file as it will be: what is committed, with what this transaction has logged over it.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read(&self, file: &File, offset: u64, into: &mut [u8]) -> Result<()> {
        self.array.read(file, offset, into)?;
        let end = offset + into.len() as u64;
        for logged in self.entries.iter().filter(|logged| logged.file == *file) {
            for place in &logged.pieces {
                let body = &self.open[place.member].body;
                let piece = &body.pieces[place.piece];
                let start = logged.offset + place.at;
                let (from, to) = (offset.max(start), end.min(start + u64::from(piece.len)));
                if from < to {
                    let bytes = &body.bytes(piece)?[(from - start) as usize..(to - start) as usize];
                    into[(from - offset) as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    /// A moment to return to.
    pub fn savepoint(&mut self) -> Savepoint {
        for open in &mut self.open {
            open.is_cut = true;
        }
        let stamp = self.array.stamp();
        let parts = self.open.iter().map(|open| (open.body.pieces.len(), open.body.data.len())).collect();
        self.savepoints.push(Saved { stamp, entries: self.entries.len(), parts });
        Savepoint { index: self.savepoints.len() - 1, stamp }
    }

    fn saved(&self, savepoint: Savepoint) -> Result<&Saved> {
        let found = self.savepoints.get(savepoint.index).filter(|saved| saved.stamp == savepoint.stamp);
        found.ok_or(Error::Foreign { what: "savepoint" })
    }

    fn truncate(&mut self, member: usize, pieces: usize, chunks: usize) {
        let open = &mut self.open[member];
        open.body.pieces.truncate(pieces);
        let gone = open.body.data.split_off(chunks);
        open.is_cut = true;
        if !gone.is_empty() {
            let mut state = self.array.members[member].lock();
            gone.into_iter().for_each(|chunk| state.log.give_back(chunk));
        }
    }

    /// Takes back what was logged behind a savepoint, which stays (`PartialAbort`). Savepoints behind it are gone.
    ///
    /// # Errors
    /// [`Error::Foreign`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let saved = self.saved(savepoint)?;
        let (entries, parts) = (saved.entries, saved.parts.clone());
        self.entries.truncate(entries);
        self.savepoints.truncate(savepoint.index + 1);
        for (member, (pieces, chunks)) in parts.into_iter().enumerate() {
            self.truncate(member, pieces, chunks);
        }
        Ok(())
    }

    /// Commits what was logged behind a savepoint, whatever becomes of the transaction (`NestedTopAction`), and returns its number. The savepoint
    /// stays.
    ///
    /// # Errors
    /// [`Error::OuterWrite`] if that writes what was logged before the savepoint, too; [`Error::TooManyTransactions`], as it needs a TID of its own;
    /// nothing has changed then. Those of a [`commit`](Self::commit): what was logged behind the savepoint is gone.
    pub fn nested_top(&mut self, savepoint: Savepoint) -> Result<u64> {
        let saved = self.saved(savepoint)?;
        let (outer, inner) = self.entries.split_at(saved.entries);
        for (one, other) in outer.iter().flat_map(|one| inner.iter().map(move |other| (one, other))) {
            let (offset, end) = (one.offset.max(other.offset), (one.offset + one.len).min(other.offset + other.len));
            if one.file == other.file && offset < end {
                return Err(Error::OuterWrite { name: one.file.name().to_owned(), offset, end });
            }
        }
        let mut nested = self.array.begin()?;
        let (entries, parts) = (saved.entries, saved.parts.clone());
        self.entries.truncate(entries);
        self.savepoints.truncate(savepoint.index + 1);
        for (member, (pieces, chunks)) in parts.into_iter().enumerate() {
            let open = &mut self.open[member];
            let body = &mut nested.open[member].body;
            body.pieces = open.body.pieces.split_off(pieces);
            body.pieces.iter_mut().for_each(|piece| piece.chunk -= chunks as u32);
            body.data = open.body.data.split_off(chunks);
            open.is_cut = true;
        }
        Ok(nested.commit()?.sequence())
    }

    /// Gives everything up: nothing changes. No barrier.
    pub fn abort(self) {}

    /// All that was logged becomes durable, and then visible: durable when it returns, visible when what it returns is dropped, or somebody reads there. A barrier for
    /// each pool that has a part, two above [`Options::seal_max`](super::Options::seal_max).
    ///
    /// # Errors
    /// [`Error::LogFull`]: nothing changes then. Those of a drain, and [`Error::Stopped`]: whether it happened shows when the array is opened again.
    pub fn commit(mut self) -> Result<Committed<'a>> {
        let parts = self.parts();
        self.array.commit(Arc::clone(&self.tid), parts)
    }

    fn parts(&mut self) -> Vec<(usize, Body)> {
        let open = std::mem::take(&mut self.open).into_iter().enumerate();
        open.filter(|(_, open)| !open.body.pieces.is_empty()).map(|(member, open)| (member, open.body)).collect()
    }

    /// For tests: as a crash would leave it when all members but one have sealed their parts. The array can only be dropped then.
    #[cfg(any(test, feature = "sabotage", feature = "testing"))]
    pub fn commit_in_part(mut self) -> Error {
        let parts = self.parts();
        let most = parts.len().saturating_sub(1);
        let done = self.array.commit_at(Arc::clone(&self.tid), parts, most);
        done.map_or_else(|error| error, |_| Error::Stopped)
    }
}

impl Open {
    fn extent(&self) -> (usize, usize, u64, bool) {
        (self.body.pieces.len(), self.body.data.len(), self.used, self.is_cut)
    }
}

impl Array {
    pub(super) fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Relaxed)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        for (member, open) in std::mem::take(&mut self.open).into_iter().enumerate() {
            if !open.body.data.is_empty() {
                self.array.members[member].lock().give_back(open.body);
            }
        }
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
