//! Transaction IDs: each names a line in the table of every member.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

use pmem::sync::Mutex;

/// All of them.
pub(super) struct Tids {
    free: Mutex<Vec<u32>>,
    /// By number: its transaction, and parts of that whose logs are needed.
    uses: Vec<AtomicU32>,
    /// Those that a transaction has which is not committed.
    open: AtomicU32,
}

/// One that a transaction has.
pub(super) struct Tid<'a> {
    pub(super) number: u32,
    tids: &'a Tids,
}

impl Tids {
    pub(super) fn new(count: u32) -> Self {
        Self {
            free: Mutex::new((0..count).rev().collect()),
            uses: (0..count).map(|_| AtomicU32::new(0)).collect(),
            open: AtomicU32::new(0),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.uses.len() as u32
    }

    pub(super) fn take(&self) -> Option<Tid<'_>> {
        let number = self.free.lock().pop()?;
        let tid = Tid { number, tids: self };
        self.open.fetch_add(1, AcqRel);
        tid.hold(0);
        Some(tid)
    }

    /// One that needs it less; with the last, it is free.
    pub(super) fn release(&self, number: u32) {
        if self.uses[number as usize].fetch_sub(1, AcqRel) == 1 {
            self.free.lock().push(number);
        }
    }

    /// How many have a transaction that is not committed.
    pub(super) fn open(&self) -> u32 {
        self.open.load(Acquire)
    }

    pub(super) fn free(&self) -> usize {
        self.free.lock().len()
    }
}

impl Tid<'_> {
    /// So many need it beside this, each of which [releases](Tids::release) it. Said before any of them has it.
    pub(super) fn hold(&self, count: u32) {
        self.tids.uses[self.number as usize].store(1 + count, Release);
    }

    /// It is never free again: in the child of a fork, where no lock may be taken.
    pub(super) fn keep(&self) {
        self.hold(1);
    }
}

impl Drop for Tid<'_> {
    fn drop(&mut self) {
        self.tids.open.fetch_sub(1, AcqRel);
        self.tids.release(self.number);
    }
}
