//! Refuses a pool in the child of a fork: two processes would write one mapping with one set of locks. What the child opens by itself is its own.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::{Error, Result};

/// A word in a page that the kernel wipes in a child, and what it is here; a child that opens something gives it a number that no parent of it had. Checking it is one
/// load of a line that never changes.
#[derive(Clone, Copy)]
pub(crate) struct ForkGuard {
    word: &'static AtomicU64,
    number: u64,
}

impl ForkGuard {
    pub(crate) fn new() -> Self {
        static PAGE: OnceLock<&'static AtomicU64> = OnceLock::new();
        /// Not wiped: a child goes on from its parent's.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        /// Where forks are not noticed.
        static ALWAYS: AtomicU64 = AtomicU64::new(1);
        let word = *PAGE.get_or_init(|| {
            if cfg!(miri) {
                return &ALWAYS; // it has no such advice, and no forks
            }
            let len = 4096;
            // SAFETY: a new private mapping at an address of the kernel's choice; it is never unmapped, and wiping on fork
            // changes only the child's copy.
            let page = unsafe {
                mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                    .and_then(|page| madvise(page, len, Advice::LinuxWipeOnFork).map(|()| page))
            };
            match page {
                // SAFETY: mapped above for the life of the process, aligned to a page, and only used as an atomic.
                Ok(page) => unsafe { &*page.cast::<AtomicU64>() },
                // No such advice (Linux before 4.14): forks are then not noticed, as in every other library.
                Err(_) => &ALWAYS,
            }
        });
        let number = match word.load(Acquire) {
            0 => {
                let next = NUMBERS.fetch_add(1, Relaxed) + 1;
                word.compare_exchange(0, next, SeqCst, Acquire).map_or_else(|other| other, |_| next)
            }
            number => number,
        };
        Self { word, number }
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.word.load(Relaxed) == self.number { Ok(()) } else { Err(Error::Forked) }
    }
}
