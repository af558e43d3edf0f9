//! One member: its files, its log, and what it does with its part of a transaction.

use std::collections::VecDeque;

use pmem::sync::{Mutex, MutexGuard};
use pmem::{Area, Domain, FlushSet, Pool};

use super::chunks::{Chunk, Chunks};
use super::files::{file_mut, no_file};
use super::layout::{Header, Keys, LINE};
use super::mark::MarkCell;
use super::part::{Part, Piece};
use super::recovery::Opened;
use super::tid::Tids;
use crate::error::Result;

/// A run of so many bytes goes to a file past the cache, whatever lines it begins and ends in.
const PAST_CACHE: u64 = 512;

/// A member of an array.
pub(super) struct Member {
    pub(super) pool: Pool,
    pub(super) keys: Keys,
    state: Mutex<State>,
}

/// What its lock guards.
pub(super) struct State {
    pub(super) mark: MarkCell,
    /// By number.
    pub(super) files: Vec<Option<Area>>,
    pub(super) meta: Chunks,
    pub(super) log: Chunks,
    /// The slots of the table, by TID, of those that are not in use here.
    slots: Vec<Option<Area>>,
    /// Parts that are not in use.
    #[expect(clippy::vec_box, reason = "they are in one place as long as there are any")]
    spare: Vec<Box<Part>>,
    /// Memory for drafts: few of them, which stay in the cache.
    drafts: Vec<Vec<u8>>,
    /// Parts in the order of numbers: first those that are washed, whose logs wait for the mark; then those that are being washed; then those that are applied;
    /// then those that are checksummed. A part does not move: these ends do.
    held: VecDeque<Held>,
    washed: usize,
    washing: usize,
    applied: usize,
    /// Pieces of those that are checksummed.
    late: usize,
    /// What the two slots of the mark say at least: the newer one, the older one.
    marks: [u64; 2],
    /// The media is a cache's lines, not a file's pages.
    is_memory: bool,
    when: When,
}

/// When a member does what can wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    /// So many parts are washed together.
    pub(super) every: usize,
    /// What is durable stays in the log until as many wait as are washed together: a sync writes pages, not lines, and those of the files are elsewhere than those of the log. A reader
    /// looks into the log first.
    pub(super) is_late: bool,
}

/// So many pieces wait in the log at most: each read looks through them.
const LATE_MAX: usize = 256;

/// A part that is durable, until its log is not needed any more.
struct Held {
    sequence: u64,
    tid: u32,
    part: Box<Part>,
    /// The thread that copied it to the files.
    applied_by: usize,
}

/// What a thread has taken upon itself for the others while it commits: with its own drain, it is done.
#[derive(Default)]
pub(super) struct Duty {
    washes: bool,
    mark: Option<u64>,
}

impl Duty {
    pub(super) fn is_none(&self) -> bool {
        !self.washes && self.mark.is_none()
    }
}

impl Member {
    pub(super) fn new(pool: Pool, keys: Keys, state: State) -> Self {
        Self { pool, keys, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The media is a cache's lines, not a file's pages.
    pub(super) fn is_memory(&self) -> bool {
        self.pool.domain() != Domain::File
    }
}

impl State {
    /// Of a member that is recovered.
    pub(super) fn new(opened: Opened, header: &Header, when: When) -> Result<Self> {
        let Opened { pool, table, mark, files, log, meta, .. } = opened;
        let mut slots = Vec::with_capacity(header.tids as usize);
        let mut rest = table;
        for _ in 0..header.tids {
            let (slot, behind) = rest.split_at(header.stride())?;
            slots.push(Some(slot));
            rest = behind;
        }
        Ok(Self {
            marks: [mark.retired(); 2],
            is_memory: pool.domain() != Domain::File,
            when,
            late: 0,
            mark,
            files,
            meta,
            log,
            slots,
            spare: Vec::new(),
            drafts: Vec::new(),
            held: VecDeque::new(),
            washed: 0,
            washing: 0,
            applied: 0,
        })
    }

    /// A file's area.
    pub(super) fn file(&self, number: u32) -> Result<&Area> {
        self.files.get(number as usize).and_then(Option::as_ref).ok_or_else(|| no_file(number))
    }

    /// A part for a transaction.
    pub(super) fn take_part(&mut self, member: usize, tid: u32) -> Box<Part> {
        let mut part = self.spare.pop().unwrap_or_default();
        (part.member, part.slot, part.is_due) = (member, self.slots[tid as usize].take(), self.is_due());
        part.draft = self.drafts.pop().unwrap_or_default();
        part.cut();
        part
    }

    /// It is not needed any more.
    pub(super) fn give_back(&mut self, mut part: Box<Part>, tid: u32) {
        take_draft(&mut self.drafts, &mut part);
        let (data, meta) = part.clear();
        data.for_each(|chunk| self.log.give_back(chunk));
        meta.for_each(|chunk| self.meta.give_back(chunk));
        self.slots[tid as usize] = part.slot.take();
        self.spare.push(part);
    }

    /// A chunk of the log that is not in use.
    pub(super) fn take_log(&mut self) -> Option<Chunk> {
        self.log.take().or_else(|| self.spare.iter_mut().find_map(|part| part.data.pop()))
    }

    /// A metadata chunk that is not in use.
    pub(super) fn take_meta(&mut self) -> Option<Chunk> {
        self.meta.take().or_else(|| self.spare.iter_mut().find_map(|part| part.meta.pop()))
    }

    /// Chunks of the log that are not in use.
    pub(super) fn log_free(&self) -> u64 {
        self.log.free() + self.spare.iter().map(|part| part.data.len() as u64).sum::<u64>()
    }

    /// A part that is durable waits for its turn to be applied. Later ones may have come before it.
    pub(super) fn enqueue(&mut self, sequence: u64, tid: u32, part: Box<Part>) {
        let mut at = self.held.len();
        while at > self.applied && self.held[at - 1].sequence > sequence {
            at -= 1;
        }
        self.late += part.pieces.len();
        self.held.insert(at, Held { sequence, tid, part, applied_by: usize::MAX });
    }

    /// A log that is needed, or may be applied again, has bytes for this range.
    pub(super) fn holds(&self, file: u32, target: u64, len: u64) -> bool {
        self.held.iter().any(|held| held.part.meets(file, target, len))
    }

    /// The newest number that is durable here; 0 if there is none in the log.
    pub(super) fn newest(&self) -> u64 {
        self.held.back().map_or(0, |held| held.sequence)
    }

    /// Whether there is something to apply.
    pub(super) fn has_checksummed(&self) -> bool {
        self.applied < self.held.len()
    }

    /// The newest number, from `limit` on, of what is not applied, and has bytes for this range.
    pub(super) fn to_come(&self, file: u32, target: u64, len: u64, limit: u64) -> Option<u64> {
        let mut checksummed = self.held.range(self.applied..).rev().take_while(|held| held.sequence >= limit);
        checksummed.find(|held| held.part.meets(file, target, len)).map(|held| held.sequence)
    }

    /// Reads what is in a file.
    pub(super) fn read(&self, file: u32, target: u64, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(self.file(file)?.bytes(target, into.len())?);
        Ok(())
    }

    /// Puts over what was read of a file what is below `limit` and in the log only, in the order of numbers.
    pub(super) fn read_late(&self, file: u32, target: u64, limit: u64, into: &mut [u8]) -> Result<()> {
        let end = target + into.len() as u64;
        for held in self.held.range(self.applied..).take_while(|held| held.sequence < limit) {
            for piece in held.part.pieces.iter().filter(|piece| piece.file == file) {
                let (from, to) = (target.max(piece.target), end.min(piece.target + u64::from(piece.len)));
                if from < to {
                    let bytes = &held.part.bytes(piece)?[(from - piece.target) as usize..(to - piece.target) as usize];
                    into[(from - target) as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }

    /// Applies all below `limit` that need not stay in the log.
    pub(super) fn apply_now(&mut self, limit: u64) -> Result<()> {
        if self.when.is_late && self.late <= LATE_MAX { Ok(()) } else { self.apply(limit) }
    }

    /// Applies all below `limit`, in order.
    pub(super) fn apply(&mut self, limit: u64) -> Result<()> {
        let here = pmem::thread_number();
        while let Some(held) = self.held.get_mut(self.applied).filter(|held| held.sequence < limit) {
            held.applied_by = here;
            for piece in &held.part.pieces {
                let bytes = held.part.bytes(piece)?;
                let file = file_mut(&mut self.files, piece.file)?;
                if is_past_cache(self.is_memory, piece) {
                    file.copy_nt(piece.target, bytes)?;
                } else {
                    file.bytes_mut(piece.target, bytes.len())?.copy_from_slice(bytes);
                }
            }
            self.applied += 1;
            self.late -= held.part.pieces.len();
            take_draft(&mut self.drafts, &mut held.part);
        }
        Ok(())
    }

    /// Whether a commit here is to do something for the others.
    pub(super) fn is_due(&self) -> bool {
        if self.when.is_late {
            self.is_late_due() || self.washed > 0
        } else {
            self.applied - self.washing >= self.when.every
        }
    }

    /// What is durable has been in the log for long enough, or the log needs room.
    pub(super) fn is_late_due(&self) -> bool {
        let waits = self.held.len() - self.washing;
        self.when.is_late && (waits >= self.when.every || waits > 0 && self.log_free() < self.log.len() / 2)
    }

    /// Something to do for others: what was applied is flushed, and the mark moves over what is `retired`; the caller drains, and is
    /// [`done`](Self::done). One thread at a time.
    pub(super) fn duty(&mut self, pool: &Pool, retired: u64, twice: bool) -> Result<Duty> {
        let mut lines = FlushSet::default();
        let here = pmem::thread_number();
        for held in self.held.range(self.washing..self.applied) {
            let is_here = held.applied_by == here;
            for piece in held.part.pieces.iter().filter(|piece| !(is_here && is_past_cache(self.is_memory, piece))) {
                let at = self.file(piece.file)?.offset() + piece.target;
                pool.add_lines(&mut lines, at, piece.len.into());
            }
        }
        pool.flush_set(&mut lines)?;
        let mut duty = Duty { washes: self.washing < self.applied, mark: None };
        self.washing = self.applied;
        if retired > self.marks[usize::from(twice)] {
            self.mark.stage(retired)?;
            duty.mark = Some(retired);
        }
        Ok(duty)
    }

    /// The newest number that is applied here.
    pub(super) fn applied_through(&self) -> Option<u64> {
        self.applied.checked_sub(1).and_then(|last| Some(self.held.get(last)?.sequence))
    }

    /// The drain behind a duty is over. Returns through which number everything of this member is washed.
    pub(super) fn done(&mut self, duty: Duty, twice: bool, tids: &Tids) -> Option<u64> {
        if let Some(mark) = duty.mark {
            self.marks = [mark, self.marks[0]];
        }
        if duty.washes {
            self.washed = self.washing;
        }
        let through = self.washed.checked_sub(1).and_then(|last| Some(self.held.get(last)?.sequence));
        let free = self.marks[usize::from(twice)];
        while self.washed > 0 && self.held.front().is_some_and(|held| held.sequence <= free) {
            let Some(held) = self.held.pop_front() else { break };
            (self.washed, self.washing, self.applied) = (self.washed - 1, self.washing - 1, self.applied - 1);
            self.give_back(held.part, held.tid);
            tids.release(held.tid);
        }
        through
    }
}

/// It is not read any more.
fn take_draft(drafts: &mut Vec<Vec<u8>>, part: &mut Part) {
    if part.draft.capacity() > 0 {
        part.draft.clear();
        drafts.push(std::mem::take(&mut part.draft));
    }
}

/// A file that is memory gets whole lines past the cache: what overwrites a line wholly need not read it. Less goes through the cache, where it stays for what is written there
/// next.
fn is_past_cache(is_memory: bool, piece: &Piece) -> bool {
    let len = u64::from(piece.len);
    is_memory && (len >= PAST_CACHE || (piece.target | len).is_multiple_of(LINE))
}
