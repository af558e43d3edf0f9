//! One member: its files, its log, and what it does with its part of a transaction.

use std::collections::VecDeque;
use std::sync::Arc;

use pmem::sync::{Mutex, MutexGuard};
use pmem::{Area, Domain, FlushSet, Pool, SealKey};

use super::chunks::{Chunk, Chunks};
use super::layout::{ENTRY, Entry, LINE, LINK, Sealed};
use super::mark::MarkCell;
use super::tid::Tid;
use crate::error::{Error, Result};

/// A member of an array.
pub(crate) struct Member {
    pub(crate) pool: Pool,
    pub(crate) keys: Keys,
    state: Mutex<State>,
}

/// For seals on this member.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) line: SealKey,
    pub(crate) part: SealKey,
    pub(crate) data: SealKey,
    pub(crate) mark: SealKey,
}

impl Keys {
    pub(crate) fn new(key: &SealKey) -> Self {
        Self { line: key.of_kind(1), part: key.of_kind(2), data: key.of_kind(3), mark: key.of_kind(5) }
    }

    /// The seal of a line of the table.
    pub(crate) fn seal(&self, line: &Sealed) -> u64 {
        self.line.seal(&pmem::bytes_of(line)[8..])
    }
}

/// What its lock guards.
pub(crate) struct State {
    pub(crate) table: Area,
    pub(crate) mark: MarkCell,
    /// By number.
    pub(crate) files: Vec<Option<Area>>,
    pub(crate) meta: Chunks,
    pub(crate) log: Chunks,
    /// Sealed and not applied, in order.
    queue: VecDeque<Part>,
    /// Applied, not washed, in order.
    applied: VecDeque<Part>,
    /// Washed: their logs wait for the mark.
    washed: VecDeque<Part>,
    /// What the two slots of the mark say at least: the newer one, the older one.
    marks: [u64; 2],
}

/// A member's part of a transaction.
pub(crate) struct Part {
    sequence: u64,
    /// Given back with the last part.
    _tid: Arc<Tid>,
    body: Body,
}

/// What it consists of.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) data: Vec<Chunk>,
    pub(crate) meta: Vec<Chunk>,
    pub(crate) pieces: Vec<Piece>,
}

/// A run of bytes in one chunk that goes to one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) file: u32,
    pub(crate) len: u32,
    /// In the member's stripes of the file.
    pub(crate) target: u64,
    /// Which of the part's chunks, and where in it.
    pub(crate) chunk: u32,
    pub(crate) at: u32,
    /// The thread that stored it past the cache, if it was.
    pub(crate) past_cache: Option<usize>,
}

impl Body {
    pub(crate) fn bytes(&self, piece: &Piece) -> Result<&[u8]> {
        Ok(self.data[piece.chunk as usize].area.bytes(piece.at.into(), piece.len as usize)?)
    }

    /// Fills the metadata chunks; the seal of what stands there.
    pub(crate) fn seal(&mut self, keys: &Keys, chunk_bytes: u64, entries: u32, with_data: bool) -> Result<u64> {
        let per_chunk = entries as usize - 1;
        let mut seals = Vec::with_capacity(self.meta.len());
        for (index, pieces) in self.pieces.chunks(per_chunk).enumerate() {
            for (place, piece) in pieces.iter().enumerate() {
                let seal = if with_data { keys.data.seal(self.bytes(piece)?) } else { 0 };
                let log = u64::from(self.data[piece.chunk as usize].number) * chunk_bytes + u64::from(piece.at);
                let entry = Entry { target: piece.target, log, seal, file: piece.file, len: piece.len };
                self.meta[index].area.put(place as u64 * ENTRY, &entry)?;
            }
            let mut used = pieces.len() as u64;
            if let Some(next) = self.meta.get(index + 1).map(|next| next.number) {
                let link = Entry { target: 0, log: next.into(), seal: 0, file: LINK, len: 0 };
                self.meta[index].area.put(used * ENTRY, &link)?;
                used += 1;
            }
            seals.push(keys.part.seal(self.meta[index].area.bytes(0, (used * ENTRY) as usize)?));
        }
        Ok(keys.part.seal_list(seals.into_iter()))
    }

    /// Starts the way to media of the data that is not on it.
    pub(crate) fn flush_data(&self) -> Result<()> {
        let here = pmem::thread_number();
        for piece in self.pieces.iter().filter(|piece| piece.past_cache != Some(here)) {
            self.data[piece.chunk as usize].area.flush(piece.at.into(), piece.len.into())?;
        }
        Ok(())
    }

    /// The same of the metadata.
    pub(crate) fn flush_meta(&self, entries: u32) -> Result<()> {
        let mut left = self.pieces.len() as u64;
        for chunk in &self.meta {
            let used = left.min(u64::from(entries) - 1);
            left -= used;
            chunk.area.flush(0, (used + u64::from(left > 0)) * ENTRY)?;
        }
        Ok(())
    }
}

/// What a thread has taken upon itself for the others while it commits: with its own drain, it is done.
#[derive(Default)]
pub(crate) struct Duty {
    washing: Vec<Part>,
    mark: Option<u64>,
}

impl Duty {
    pub(crate) fn is_none(&self) -> bool {
        self.washing.is_empty() && self.mark.is_none()
    }
}

impl Member {
    pub(crate) fn new(pool: Pool, keys: Keys, state: State) -> Self {
        Self { pool, keys, state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The media is a cache's lines, not a file's pages.
    pub(crate) fn is_memory(&self) -> bool {
        self.pool.domain() != Domain::File
    }
}

impl State {
    pub(crate) fn new(
        table: Area,
        mark: MarkCell,
        files: Vec<Option<Area>>,
        meta: Chunks,
        log: Chunks,
        marks: [u64; 2],
    ) -> Self {
        let [queue, applied, washed] = [VecDeque::new(), VecDeque::new(), VecDeque::new()];
        Self { table, mark, files, meta, log, queue, applied, washed, marks }
    }

    /// A file's area.
    pub(crate) fn file(&self, number: u32) -> Result<&Area> {
        self.files.get(number as usize).and_then(Option::as_ref).ok_or_else(|| no_file(number))
    }

    /// Writes the line of the table by which the part counts, and flushes it.
    pub(crate) fn write_line(&mut self, line: &Sealed) -> Result<()> {
        let at = u64::from(line.tid) * LINE;
        self.table.put(at, line)?;
        self.table.flush(at, LINE)?;
        Ok(())
    }

    /// A part that was sealed waits for its turn to be applied.
    pub(crate) fn enqueue(&mut self, sequence: u64, tid: Arc<Tid>, body: Body) {
        self.queue.push_back(Part { sequence, _tid: tid, body });
    }

    /// Whether there is something to apply.
    pub(crate) fn has_sealed(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Applies all below `limit`, in order.
    pub(crate) fn apply(&mut self, limit: u64) -> Result<()> {
        while self.queue.front().is_some_and(|part| part.sequence < limit) {
            let Some(part) = self.queue.pop_front() else { break };
            for piece in &part.body.pieces {
                let bytes = part.body.bytes(piece)?;
                file_mut(&mut self.files, piece.file)?.bytes_mut(piece.target, bytes.len())?.copy_from_slice(bytes);
            }
            self.applied.push_back(part);
        }
        Ok(())
    }

    /// Parts that wait to be washed.
    pub(crate) fn waiting(&self) -> usize {
        self.applied.len()
    }

    /// Something to do for others: what was applied is flushed, and the mark moves over what is `retired`; the caller drains, and is
    /// [`done`](Self::done). One thread at a time.
    pub(crate) fn duty(&mut self, pool: &Pool, retired: u64, twice: bool) -> Result<Duty> {
        let mut lines = FlushSet::default();
        for part in &self.applied {
            for piece in &part.body.pieces {
                let at = self.file(piece.file)?.offset() + piece.target;
                pool.add_lines(&mut lines, at, piece.len.into());
            }
        }
        pool.flush_set(&mut lines)?;
        let mut duty = Duty { washing: self.applied.drain(..).collect(), mark: None };
        if retired > self.marks[usize::from(twice)] {
            self.mark.stage(retired)?;
            duty.mark = Some(retired);
        }
        Ok(duty)
    }

    /// The newest number that is applied here.
    pub(crate) fn applied_through(&self) -> Option<u64> {
        self.applied.back().map(|part| part.sequence)
    }

    /// The drain behind a duty is over. Returns through which number everything of this member is washed.
    pub(crate) fn done(&mut self, duty: Duty, twice: bool) -> Option<u64> {
        if let Some(mark) = duty.mark {
            self.marks = [mark, self.marks[0]];
        }
        let through = duty.washing.last().map(|part| part.sequence);
        self.washed.extend(duty.washing);
        let free = self.marks[usize::from(twice)];
        while self.washed.front().is_some_and(|part| part.sequence <= free) {
            let Some(part) = self.washed.pop_front() else { break };
            self.give_back(part.body);
        }
        through
    }

    pub(crate) fn give_back(&mut self, body: Body) {
        body.data.into_iter().for_each(|chunk| self.log.give_back(chunk));
        body.meta.into_iter().for_each(|chunk| self.meta.give_back(chunk));
    }
}

/// The area of a file, to be changed.
pub(crate) fn file_mut(files: &mut [Option<Area>], number: u32) -> Result<&mut Area> {
    files.get_mut(number as usize).and_then(Option::as_mut).ok_or_else(|| no_file(number))
}

/// Of another array, which has more.
fn no_file(number: u32) -> Error {
    Error::NoFile { name: format!("number {number}") }
}
