//! The simulated medium: working memory, what the media has of it, and the events between.
//!
//! A `Sim` is the memory of a *program* (everything that is stored is tracked) or, inside an exploration, of a
//! *recovery*: then it starts from an [`Image`], opens words when they are first read, and tracks the blocks that recovery may store to.
//! The second is a full model too, so that recovery can be crashed as well.

mod events;
mod faults;
#[expect(unsafe_code, reason = "a promise to `pmem`")]
mod raw;
mod recovery;
mod snapshot;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use pmem::sim::Site;

use crate::config::{Barrier, Config, FaultKind, Kind, Model};
use crate::decide::Decider;
use crate::image::Image;
use crate::pending::{LINE_WORDS, Pending};
use crate::raw::{BLOCK, Memory, PAGE};

const UNDECIDED: u64 = u64::MAX;
const NO_LINE: u64 = u64::MAX;

/// Told of every event, before it takes effect.
pub(crate) trait Hook: Send + Sync {
    fn event(&self, sim: &Sim, kind: Kind, site: Site);
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

/// Numbers that `pmem` knows threads of workloads by begin here: hardly ever does a process have so many of its own, and these have counts of their own still. The first
/// thread's home is the first of two, three, five or six slots.
const NUMBERS: usize = 30;

/// Runs `f` as this thread of a workload: flushes and drains count for it, and what a program makes of its thread's number (its home among slots, say) does not depend on
/// what else runs in this process. For tests that play several threads on one, too.
pub fn as_thread<R>(thread: usize, f: impl FnOnce() -> R) -> R {
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            THREAD.set(self.0);
        }
    }
    let _back = Back(THREAD.replace(thread));
    pmem::sync::as_thread_number(NUMBERS + thread, f)
}

fn thread_mask() -> u64 {
    1 << (THREAD.get() % 64)
}

/// Simulated persistent memory with a model of what a crash leaves of it.
///
/// `pmem` opens pools on it (`Options::create_on`, `Options::open_on`). Structures that need no pool can be tested right on it,
/// with [`load`](Sim::load), [`store`](Sim::store), [`flush`](Sim::flush) and [`drain`](Sim::drain).
pub struct Sim {
    memory: Memory,
    capacity: u64,
    model: Model,
    recovering: bool,
    len: AtomicU64,
    /// One bit for each word whose value is still open.
    open: Vec<AtomicU64>,
    any_open: AtomicBool,
    /// One bit for each word that recovery has read.
    seen: Vec<AtomicU64>,
    granted: Vec<AtomicBool>,
    /// Set while accesses need a closer look: reads are recorded, or a line is poisoned.
    watched: AtomicBool,
    poisoned: AtomicU64,
    /// The cache has words that a failed sync gave up.
    any_given_up: AtomicBool,
    pub(crate) state: Mutex<State>,
    hook: Mutex<Option<Arc<dyn Hook>>>,
    muted: Vec<Barrier>,
    plays: Plays,
}

/// What the device does wrong, on request.
#[derive(Clone, Copy, Debug, Default)]
struct Plays {
    fail_drain: Option<u64>,
    disk_full: Option<u64>,
    keep_old_lines: bool,
}

/// What a line held before a barrier wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldLine {
    /// Number of the barrier.
    pub(crate) barrier: u64,
    pub(crate) line: u32,
    pub(crate) content: [u64; LINE_WORDS],
}

/// What the model knows. `shadow` and `media` hold only granted blocks; elsewhere the memory is both.
pub(crate) struct State {
    interval: u32,
    shadow: Vec<u64>,
    media: Vec<u64>,
    media_hash: u64,
    blocks: Vec<u32>,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
    pending: Pending,
    media_len: u64,
    lens: Vec<u64>,
    drains: u64,
    armed: bool,
    old_lines: VecDeque<OldLine>,
    planted: Option<FaultKind>,
    image: Arc<Image>,
    leaf_hash: u64,
    pub(crate) decider: Decider,
    pub(crate) reads: Vec<(u32, u32)>,
    /// Ranges of words that recovery reads, both ends included, each when it has something new.
    trace: Vec<(u32, u32)>,
}

impl Sim {
    /// An empty file of `capacity` bytes at most, for a program.
    #[must_use]
    pub fn new(capacity: u64, model: Model) -> Arc<Self> {
        Arc::new(Self::build(capacity, model, false, Vec::new(), Plays::default()))
    }

    pub(crate) fn for_program(capacity: u64, config: &Config) -> Arc<Self> {
        let plays =
            Plays { fail_drain: config.fail_drain, disk_full: config.disk_full, keep_old_lines: config.faults > 0 };
        Arc::new(Self::build(capacity, config.model, false, config.muted.clone(), plays))
    }

    pub(crate) fn for_recovery(capacity: u64, config: &Config) -> Arc<Self> {
        Arc::new(Self::build(capacity, config.model, true, config.muted.clone(), Plays::default()))
    }

    fn build(capacity: u64, model: Model, recovering: bool, muted: Vec<Barrier>, plays: Plays) -> Self {
        let pages = usize::try_from(capacity).map_or(1, |c| c.div_ceil(PAGE)).max(1);
        let (words, blocks) = (pages * PAGE / 8, pages * PAGE / BLOCK);
        Self {
            memory: Memory::new(pages),
            capacity: (pages * PAGE) as u64,
            model,
            recovering,
            len: AtomicU64::new(0),
            open: (0..words.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            any_open: AtomicBool::new(false),
            seen: (0..words.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            granted: (0..blocks).map(|_| AtomicBool::new(false)).collect(),
            watched: AtomicBool::new(false),
            poisoned: AtomicU64::new(NO_LINE),
            any_given_up: AtomicBool::new(false),
            state: Mutex::new(State {
                interval: 0,
                shadow: vec![0; words],
                media: vec![0; words],
                media_hash: 0,
                blocks: Vec::new(),
                touched: Vec::new(),
                is_touched: vec![false; blocks],
                pending: Pending::new(words),
                media_len: 0,
                lens: Vec::new(),
                drains: 0,
                armed: false,
                old_lines: VecDeque::new(),
                planted: None,
                image: Arc::default(),
                leaf_hash: 0,
                decider: Decider::default(),
                reads: Vec::new(),
                trace: Vec::new(),
            }),
            hook: Mutex::new(None),
            muted,
            plays,
        }
    }

    // ---- for structures that are tested right on the medium ----

    /// The word at this offset.
    ///
    /// # Errors
    /// The access is outside the file, or the medium fails there.
    pub fn load(&self, offset: u64) -> io::Result<u64> {
        self.touch(offset, 8, false)?;
        Ok(self.memory.load(word_at(offset)))
    }

    /// Stores a word, in volatile order: nothing of it is persistent before a flush and a drain.
    ///
    /// # Errors
    /// As [`load`](Sim::load).
    pub fn store(&self, offset: u64, value: u64) -> io::Result<()> {
        self.touch(offset, 8, true)?;
        self.memory.store(word_at(offset), value);
        Ok(())
    }

    /// Sends the lines of this range on their way.
    #[track_caller]
    pub fn flush(&self, offset: u64, len: u64) {
        self.start_write_back(offset, len, Location::caller());
    }

    /// Waits until what this thread flushed is persistent.
    ///
    /// # Errors
    /// A failed sync, when the model plays one.
    #[track_caller]
    pub fn drain(&self) -> io::Result<()> {
        self.finish_write_back(Location::caller())
    }

    /// Changes the length of the file.
    ///
    /// # Errors
    /// The disk is full.
    #[track_caller]
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(len, Location::caller())
    }

    /// A crash may show the present values, though nothing was flushed.
    #[track_caller]
    pub fn observe(&self) {
        self.note(Location::caller());
    }

    /// Length of the file in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self.len.load(Relaxed) {
            UNDECIDED => self.decide_len(),
            len => len,
        }
    }

    /// Drains since the program started.
    pub(crate) fn drains(&self) -> u64 {
        self.state.lock().drains
    }

    pub(crate) fn set_hook(&self, hook: Option<Arc<dyn Hook>>) {
        *self.hook.lock() = hook;
    }

    // ---- the program's side of a crash ----

    /// Everything so far is persistent; from here on the device may play its faults.
    pub(crate) fn arm(&self) {
        let mut state = self.state.lock();
        self.compare(&mut state);
        state.pending.flush(0, usize::MAX, u64::MAX, self.model);
        self.resolve(&mut state, u64::MAX);
        state.armed = true;
    }
}

impl State {
    fn mark_touched(&mut self, block: usize) {
        if !self.is_touched[block] {
            self.is_touched[block] = true;
            self.touched.push(block as u32);
        }
    }

    fn forget_blocks(&mut self, granted: &[AtomicBool]) {
        for block in self.blocks.drain(..) {
            granted[block as usize].store(false, Relaxed);
        }
        self.pending.clear();
        self.interval = 0;
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("model", &self.model).field("len", &self.len).finish_non_exhaustive()
    }
}

fn word_at(offset: u64) -> usize {
    (offset / 8) as usize
}
