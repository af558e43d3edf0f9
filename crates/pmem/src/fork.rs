//! Refuses a pool in the child of a fork: two processes would write one mapping with one set of locks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::{Error, Result};

/// A word in a page that the kernel wipes in a child: 1 here, 0 there. Checking it is one load of a line that never changes.
#[derive(Clone, Copy)]
pub(crate) struct ForkGuard(&'static AtomicU64);

impl ForkGuard {
    pub(crate) fn new() -> Self {
        static PAGE: OnceLock<&'static AtomicU64> = OnceLock::new();
        Self(PAGE.get_or_init(|| {
            let len = 4096;
            // SAFETY: a new private mapping at an address of the kernel's choice; it is never unmapped, and wiping on fork
            // changes only the child's copy.
            let page = unsafe {
                mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                    .and_then(|page| madvise(page, len, Advice::LinuxWipeOnFork).map(|()| page))
            };
            match page {
                Ok(page) => {
                    // SAFETY: mapped above for the life of the process, aligned to a page, and only used as an atomic.
                    let word: &'static AtomicU64 = unsafe { &*page.cast::<AtomicU64>() };
                    word.store(1, Relaxed);
                    word
                }
                // No such advice (Linux before 4.14): forks are then not noticed, as in every other library.
                Err(_) => {
                    static ALWAYS: AtomicU64 = AtomicU64::new(1);
                    &ALWAYS
                }
            }
        }))
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Relaxed) == 1 { Ok(()) } else { Err(Error::Forked) }
    }
}
