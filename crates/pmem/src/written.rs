//! Which parts of a mapping were flushed since a copier looked ([`Image`](crate::Image)), and how many they may become.
//!
//! | a writer | the copier |
//! |---|---|
//! | stores; sets the granule's bit; flushes | takes the bit; reads the granule |
//!
//! Both change the bit by a read-modify-write: the copier either finds it, and with it the stores before it, or it is set behind it and found by the next pass.
//!
//! Once the copier has set a limit, a writer that would set one bit more waits until the copier has caught up. So no more granules are ever left to be copied than the
//! limit says.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};
use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

use crate::error::{Error, Result};
use crate::scheduler::{is_scheduled, wait_point};

/// Bytes that share a bit.
pub(crate) const GRANULE: u64 = 4096;
/// The first granules are the pool's header. Its writer has the lock that the copier's last look takes, and does not wait.
pub(crate) const HEADER_GRANULES: u64 = 2;
/// Bits that are made together: 32 KiB of memory, for a gibibyte of the pool.
const LEAF: u64 = 1 << 18;
/// A writer waits no longer for a copier, which may be stuck in the system.
const TIMEOUT: Duration = Duration::from_secs(10);
const NO_LIMIT: u64 = u64::MAX;

type Leaf = OnceLock<Box<[AtomicU64]>>;

/// Without a copier it costs every flush a load and a branch.
pub(crate) struct Written {
    on: AtomicBool,
    /// Made for the first copy, and kept: a writer may be late.
    leaves: OnceLock<Box<[Leaf]>>,
    /// Granules noted, and not given back by the copier.
    noted: AtomicU64,
    limit: AtomicU64,
    /// The least length the mapping has had since the copier asked.
    shortest: AtomicU64,
    /// Writers that wait for room below the limit.
    waiting: parking_lot::Mutex<usize>,
    room: parking_lot::Condvar,
    held_up: parking_lot::Condvar,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            on: AtomicBool::new(false),
            leaves: OnceLock::new(),
            noted: AtomicU64::new(0),
            limit: AtomicU64::new(NO_LIMIT),
            shortest: AtomicU64::new(u64::MAX),
            waiting: parking_lot::Mutex::new(0),
            room: parking_lot::Condvar::new(),
            held_up: parking_lot::Condvar::new(),
        }
    }
}

impl Written {
    // ---- writers ----------------------------------------------------------------------------------------------------

    /// Notes a range that is about to be flushed, or was stored past the cache.
    #[inline]
    pub(crate) fn note(&self, offset: u64, len: u64) {
        // The load stays behind the stores before it in the program; in the processor `begin` sees to that.
        compiler_fence(SeqCst);
        if self.on.load(Relaxed) {
            self.note_cold(offset, len);
        }
    }

    #[cold]
    fn note_cold(&self, offset: u64, len: u64) {
        let Some(leaves) = self.leaves.get() else { return };
        for at in offset / GRANULE..=(offset + len.max(1) - 1) / GRANULE {
            let Some(leaf) = leaves.get((at / LEAF) as usize) else { return };
            let leaf = leaf.get_or_init(|| (0..LEAF / 64).map(|_| AtomicU64::new(0)).collect());
            self.set(&leaf[(at % LEAF / 64) as usize], 1 << (at % 64), at < HEADER_GRANULES);
        }
    }

    fn set(&self, word: &AtomicU64, bit: u64, is_header: bool) {
        let (mut now, mut counted) = (word.load(Relaxed), false);
        loop {
            if now & bit == 0 && !counted {
                self.count(is_header);
                counted = true;
            }
            // Even if it is set: a plain load could pass the stores before it, and be of before the copier took the bit. What streams past the
            // cache is out before a locked instruction is.
            match word.compare_exchange_weak(now, now | bit, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        if counted && now & bit != 0 {
            self.give_back(1); // another writer was faster
        }
    }

    /// One more; waits for room.
    fn count(&self, is_header: bool) {
        let fits = |noted| (is_header || noted < self.limit.load(SeqCst)).then_some(noted + 1);
        if self.noted.fetch_update(SeqCst, SeqCst, fits).is_ok() {
            return;
        }
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        self.held_up.notify_one();
        while self.noted.fetch_update(SeqCst, SeqCst, fits).is_err() {
            if is_scheduled() {
                parking_lot::MutexGuard::unlocked(&mut waiting, wait_point);
                continue;
            }
            if self.room.wait_for(&mut waiting, TIMEOUT).timed_out() {
                self.noted.fetch_add(1, SeqCst);
                break;
            }
        }
        *waiting -= 1;
    }

    /// The mapping becomes as short as this: what it gets again behind that is zeros, and not noted.
    pub(crate) fn shrinks(&self, len: u64) {
        self.shortest.fetch_min(len, SeqCst);
    }

    // ---- the copier -------------------------------------------------------------------------------------------------

    /// From now on everything flushed is noted, unless another copier has asked for it and is not done.
    pub(crate) fn begin(&self, reserved: u64, path: &Path) -> Result<()> {
        if self.on.swap(true, Acquire) {
            return Err(Error::BackupRunning { path: path.to_owned() });
        }
        let leaves = self.leaves.get_or_init(|| (0..reserved.div_ceil(GRANULE * LEAF)).map(|_| Leaf::new()).collect());
        for word in leaves.iter().filter_map(Leaf::get).flat_map(|leaf| leaf.iter()) {
            word.store(0, Relaxed);
        }
        self.noted.store(0, SeqCst);
        self.shortest.store(u64::MAX, SeqCst);
        // A writer that has not seen it has its stores behind it: nothing of what is read from here on is older than they are.
        let everywhere = || {
            membarrier(MembarrierCommand::RegisterPrivateExpedited)
                .and_then(|()| membarrier(MembarrierCommand::PrivateExpedited))
                .or_else(|_| membarrier(MembarrierCommand::Global))
        };
        everywhere().map_err(|e| {
            self.on.store(false, Release);
            Error::Io { op: "membarrier", path: PathBuf::new(), source: e.into() }
        })
    }

    pub(crate) fn end(&self) {
        self.set_limit(NO_LIMIT); // first: the next copier may begin at once
        self.on.store(false, Release);
    }

    /// Granules that are noted, and not given back.
    pub(crate) fn noted(&self) -> u64 {
        self.noted.load(SeqCst)
    }

    /// No more granules are noted than this, but for those of the header.
    pub(crate) fn set_limit(&self, granules: u64) {
        self.limit.store(granules, SeqCst);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// Granules that were taken do not count any more. A writer of an earlier copy may be late, so that they are fewer than that.
    pub(crate) fn give_back(&self, granules: u64) {
        let fewer = |noted: u64| Some(noted.saturating_sub(granules));
        let _ = self.noted.fetch_update(SeqCst, SeqCst, fewer);
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    /// Waits this long at most for a writer to wait; true if one does, and has no room. (One that has some may just not have woken yet.)
    pub(crate) fn holds_up(&self, timeout: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        let is_one = |waiting: usize| waiting > 0 && self.noted() >= self.limit.load(SeqCst);
        if !is_one(*waiting) && !timeout.is_zero() {
            self.held_up.wait_for(&mut waiting, timeout);
        }
        is_one(*waiting)
    }

    /// The least length since this was asked last.
    pub(crate) fn take_shortest(&self) -> u64 {
        self.shortest.swap(u64::MAX, SeqCst)
    }

    /// Takes all bits, as ranges, and says how many they were. They count until they are given back.
    pub(crate) fn take(&self) -> (Vec<(u64, u64)>, u64) {
        let (mut ranges, mut taken) = (Vec::<(u64, u64)>::new(), 0);
        for (number, leaf) in self.leaves.get().into_iter().flatten().enumerate() {
            let Some(leaf) = leaf.get() else { continue };
            for (index, word) in leaf.iter().enumerate() {
                let mut set = if word.load(Relaxed) == 0 { 0 } else { word.swap(0, AcqRel) };
                taken += u64::from(set.count_ones());
                let first = number as u64 * LEAF + index as u64 * 64;
                while set != 0 {
                    let from = (first + u64::from(set.trailing_zeros())) * GRANULE;
                    set &= set - 1;
                    match ranges.last_mut() {
                        Some(last) if last.1 == from => last.1 = from + GRANULE,
                        _ => ranges.push((from, from + GRANULE)),
                    }
                }
            }
        }
        (ranges, taken)
    }
}
