//! The buffer pool: pages in memory, which go to the medium when others need their frames (steal), and not because a transaction commits (no force).
//!
//! Invariant: a page is written when the log is durable through its last change.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};

use pmem::sync::{Mutex, MutexGuard};

use super::disk::{BATCH, Disk, Page};
use super::failpoints::Step;
use super::wal::Wal;
use crate::error::Result;

/// No page's number.
const NONE: u64 = u64::MAX;

/// A page in its frame, latched.
pub(super) struct Held {
    number: u64,
    pub(super) page: Page,
    /// The first change that the medium lacks; 0 if it lacks none.
    since: u64,
    /// It was used since the clock's hand came by.
    is_used: bool,
    /// What is on the medium is not what was written.
    pub(super) is_damaged: bool,
}

impl Held {
    /// Bytes of the page change, by the log's record of this number.
    pub(super) fn change(&mut self, at: usize, bytes: &[u8], lsn: u64) {
        self.page.0[at..at + bytes.len()].copy_from_slice(bytes);
        self.changed(lsn);
    }

    pub(super) fn format(&mut self, slot: u32, lsn: u64) {
        self.page.format(slot);
        self.is_damaged = false;
        self.changed(lsn);
    }

    /// It has slots, and what is in them is what was written.
    pub(super) fn is_sound(&self) -> bool {
        !self.is_damaged && self.page.slot() > 0
    }

    fn changed(&mut self, lsn: u64) {
        self.page.set_lsn(lsn);
        if self.since == 0 {
            self.since = lsn;
        }
    }
}

struct Frame {
    /// Threads that use it, or wait for that: it keeps its page meanwhile.
    pins: AtomicU32,
    held: Mutex<Held>,
}

struct Table {
    /// By page: its frame, counted from 1; 0: none.
    frames: Vec<u32>,
    hand: usize,
}

pub(super) struct Buffer {
    frames: Box<[Frame]>,
    /// Taken before latches and the disk.
    table: Mutex<Table>,
    disk: Mutex<Disk>,
    /// Pages of the disk's first region.
    first: u64,
    /// One cleans at a time, and there is no checkpoint meanwhile.
    cleaning: Mutex<()>,
}

impl Buffer {
    pub(super) fn new(disk: Disk, first: u64, page: u64, frames: usize) -> Self {
        let held = || Held { number: NONE, page: Page::new(page), since: 0, is_used: false, is_damaged: false };
        let frame = |_| Frame { pins: AtomicU32::new(0), held: Mutex::new(held()) };
        let table = Table { frames: vec![0; disk.pages(first) as usize], hand: 0 };
        Self {
            frames: (0..frames).map(frame).collect(),
            table: Mutex::new(table),
            disk: Mutex::new(disk),
            first,
            cleaning: Mutex::new(()),
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.table.lock().frames.len() as u64
    }

    /// See [`Disk::ahead`].
    pub(super) fn ahead(&self) -> Vec<u64> {
        self.disk.lock().ahead().iter().copied().collect()
    }

    pub(super) fn grow(&self) -> Result<u64> {
        let mut table = self.table.lock();
        let count = self.disk.lock().grow(self.first)?;
        let len = table.frames.len() + count as usize;
        table.frames.resize(len, 0);
        Ok(count)
    }

    /// Does something with a page, which no other thread has meanwhile.
    pub(super) fn with<R>(&self, wal: &Wal, number: u64, act: impl FnOnce(&mut Held) -> Result<R>) -> Result<R> {
        let frame = loop {
            let mut table = self.table.lock();
            let at = match table.frames[number as usize] {
                0 => self.load(wal, &mut table, number)?,
                frame => Some(frame as usize - 1),
            };
            if let Some(at) = at {
                self.frames[at].pins.fetch_add(1, AcqRel);
                break &self.frames[at];
            }
            drop(table);
            pmem::sync::switch_point();
            std::thread::yield_now();
        };
        let mut held = frame.held.lock();
        held.is_used = true;
        let done = act(&mut held);
        drop(held);
        frame.pins.fetch_sub(1, AcqRel);
        done
    }

    /// Reads a page into a frame that is not in use; none if there is none.
    fn load(&self, wal: &Wal, table: &mut Table, number: u64) -> Result<Option<usize>> {
        for _ in 0..3 * self.frames.len() {
            let at = table.hand;
            table.hand = (at + 1) % self.frames.len();
            let frame = &self.frames[at];
            if frame.pins.load(Acquire) > 0 {
                continue;
            }
            let Some(mut held) = frame.held.try_lock() else { continue };
            // Asked again with the latch: a thread that cleans pins a page without the table's lock.
            if frame.pins.load(Acquire) > 0 && wal.steps.has(Step::AskAgain) {
                continue;
            }
            if std::mem::take(&mut held.is_used) {
                continue;
            }
            if held.since > 0 {
                held = self.write_others(wal, at, held)?;
            }
            if held.number != NONE {
                table.frames[held.number as usize] = 0;
            }
            held.number = NONE;
            held.is_damaged = !self.disk.lock().read(number, self.first, &mut held.page)?;
            held.number = number;
            table.frames[number as usize] = at as u32 + 1;
            return Ok(Some(at));
        }
        Ok(None)
    }

    /// Writes a page, and with it others that are not in use. Under the table's lock.
    fn write_others<'a>(&'a self, wal: &Wal, at: usize, held: MutexGuard<'a, Held>) -> Result<MutexGuard<'a, Held>> {
        let mut batch = vec![held];
        for step in 1..self.frames.len() {
            if batch.len() == BATCH {
                break;
            }
            let frame = &self.frames[(at + step) % self.frames.len()];
            if frame.pins.load(Acquire) == 0
                && let Some(held) = frame.held.try_lock()
                && held.since > 0
            {
                batch.push(held);
            }
        }
        let mut pages: Vec<_> = batch.iter().map(|held| (held.number, held.page.clone())).collect();
        self.write(wal, &mut pages)?;
        batch.iter_mut().for_each(|held| held.since = 0);
        Ok(batch.swap_remove(0))
    }

    fn write(&self, wal: &Wal, pages: &mut [(u64, Page)]) -> Result<()> {
        if wal.steps.has(Step::LogFirst) {
            wal.force(pages.iter().map(|(_, page)| page.lsn()).max().unwrap_or(0))?;
        }
        self.disk.lock().write(self.first, pages)
    }

    /// No other thread cleans, or makes a checkpoint, meanwhile.
    fn alone(&self, wal: &Wal) -> Option<MutexGuard<'_, ()>> {
        wal.steps.has(Step::CleanAlone).then(|| self.cleaning.lock())
    }

    /// Writes pages that were changed, those first whose change is oldest, until so few are left.
    pub(super) fn clean(&self, wal: &Wal, left: usize) -> Result<()> {
        let _cleaning = self.alone(wal);
        let mut dirty: Vec<(u64, &Frame)> = Vec::new();
        for frame in &self.frames {
            let held = frame.held.lock();
            if held.since > 0 {
                dirty.push((held.since, frame));
            }
        }
        dirty.sort_unstable_by_key(|(since, _)| *since);
        dirty.truncate(dirty.len().saturating_sub(left));
        for batch in dirty.chunks(BATCH) {
            // Each is pinned while it is on its way: no thread reads it from the medium before it is there.
            let (mut pages, mut pinned) = (Vec::new(), Vec::new());
            for (_, frame) in batch {
                let mut held = frame.held.lock();
                if held.since > 0 {
                    if wal.steps.has(Step::PinWritten) {
                        frame.pins.fetch_add(1, AcqRel);
                    }
                    pages.push((held.number, held.page.clone()));
                    pinned.push((*frame, std::mem::take(&mut held.since)));
                }
            }
            let done = self.write(wal, &mut pages);
            for (frame, since) in pinned {
                if done.is_err() {
                    frame.held.lock().since = since;
                }
                if wal.steps.has(Step::PinWritten) {
                    frame.pins.fetch_sub(1, AcqRel);
                }
            }
            done?;
        }
        Ok(())
    }

    /// Pages that were changed and not written, each with the first change that it lacks; no thread cleans while `act` has them.
    pub(super) fn with_dirty<R>(&self, wal: &Wal, act: impl FnOnce(Vec<(u64, u64)>) -> Result<R>) -> Result<R> {
        let _cleaning = self.alone(wal);
        let mut dirty = Vec::new();
        for frame in &self.frames {
            let held = frame.held.lock();
            if held.since > 0 {
                dirty.push((held.number, held.since));
            }
        }
        act(dirty)
    }

    /// How many were changed and not written, about.
    pub(super) fn dirty(&self) -> usize {
        self.frames.iter().filter(|frame| frame.held.try_lock().is_some_and(|held| held.since > 0)).count()
    }

    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }
}
