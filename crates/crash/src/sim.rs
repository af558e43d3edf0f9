//! The simulated medium: working memory, what the media has of it, and the events between.
//!
//! A `Sim` is the memory of a *program* (everything that is stored is tracked) or, inside an exploration, of a
//! *recovery*: then it starts from an [`Image`], opens words when they are first read, and tracks the blocks that recovery may store to.
//! The second is a full model too, so that recovery can be crashed as well.

mod faults;
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

use crate::config::{Barrier, Config, Kind, Model};
use crate::decide::Decider;
use crate::image::{Image, mix};
use crate::pending::{LINE_WORDS, Pending};
use crate::raw::{BLOCK, BLOCK_WORDS, Memory, PAGE};

const UNDECIDED: u64 = u64::MAX;
const NO_LINE: u64 = u64::MAX;
/// Earlier contents of lines that are kept for faults.
const OLD_LINES_MAX: usize = 512;

/// Told of every event, before it takes effect.
pub(crate) trait Hook: Send + Sync {
    fn event(&self, sim: &Sim, kind: Kind, site: Site);
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

/// Runs `f` as this thread of a workload: flushes and drains count for it. For tests that play several threads on one.
pub fn as_thread<R>(thread: usize, f: impl FnOnce() -> R) -> R {
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            THREAD.set(self.0);
        }
    }
    let _back = Back(THREAD.replace(thread));
    f()
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
    old_lines: VecDeque<(u32, [u64; LINE_WORDS])>,
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

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    /// Drains since the program started.
    pub(crate) fn drains(&self) -> u64 {
        self.state.lock().drains
    }

    // ---- events ----

    #[inline]
    pub(crate) fn touch(&self, offset: u64, len: u64, write: bool) -> io::Result<()> {
        let end = offset.saturating_add(len);
        if end > self.length() {
            return Err(beyond(offset, len, self.length()));
        }
        if !self.recovering || len == 0 {
            return Ok(());
        }
        if self.watched.load(Relaxed) {
            self.watch(offset, end)?;
        }
        let (first, last) = (word_at(offset), word_at(end - 1));
        self.trace_range(first, last);
        if self.any_open.load(Relaxed) {
            self.decide_range(first, last);
        }
        if write {
            if self.any_given_up.load(Relaxed) {
                self.write_again(first, last);
            }
            for block in first / BLOCK_WORDS..=last / BLOCK_WORDS {
                if !self.granted[block].load(Relaxed) {
                    self.grant(&mut self.state.lock(), block);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn start_write_back(&self, offset: u64, len: u64, site: Site) {
        if len == 0 || self.is_muted(Kind::Flush, site) {
            return;
        }
        pmem::sync::switch_point();
        self.compare(&mut self.state.lock());
        self.crash_point(Kind::Flush, site);
        if !matches!(self.model, Model::File { .. }) {
            let last = word_at(offset.saturating_add(len - 1)) / LINE_WORDS;
            self.state.lock().pending.flush(word_at(offset) / LINE_WORDS, last, thread_mask(), self.model);
        }
    }

    pub(crate) fn finish_write_back(&self, site: Site) -> io::Result<()> {
        if self.is_muted(Kind::Drain, site) {
            return Ok(());
        }
        pmem::sync::switch_point();
        self.compare(&mut self.state.lock());
        self.crash_point(Kind::Drain, site);
        let mut state = self.state.lock();
        if state.armed {
            state.drains += 1;
            if self.plays.fail_drain == Some(state.drains) {
                state.pending.fail(thread_mask(), self.model);
                state.lens.clear();
                self.any_given_up.store(state.pending.any_lost(), Relaxed);
                return Err(io::Error::other("input/output error (EIO) played by the explorer: the sync failed"));
            }
        }
        self.settle(&mut state, thread_mask());
        Ok(())
    }

    pub(crate) fn resize(&self, len: u64, site: Site) -> io::Result<()> {
        let len = len.next_multiple_of(8);
        pmem::sync::switch_point();
        self.compare(&mut self.state.lock());
        self.crash_point(Kind::SetLen, site);
        let old = self.length();
        let armed = self.state.lock().armed;
        let limit = self.plays.disk_full.filter(|_| armed).unwrap_or(self.capacity).min(self.capacity);
        if len > limit && len > old {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the simulated disk holds {limit} bytes, {len} were asked for"),
            ));
        }
        if len < old && self.recovering {
            self.trace_range(word_at(len), word_at(old - 1));
            self.decide_range(word_at(len), word_at(old - 1));
        }
        let mut state = self.state.lock();
        if len < old {
            self.cut(&mut state, word_at(len), word_at(old));
        } else if !self.recovering {
            (old as usize / BLOCK..(len as usize).div_ceil(BLOCK)).for_each(|block| self.grant(&mut state, block));
        }
        self.len.store(len, Relaxed);
        if matches!(self.model, Model::File { .. }) {
            self.compare(&mut state);
            state.lens.push(len);
        } else {
            state.media_len = len;
        }
        Ok(())
    }

    pub(crate) fn note(&self, _site: Site) {
        self.compare(&mut self.state.lock());
    }

    /// Takes up what was stored since the last event.
    pub(crate) fn compare_now(&self) {
        self.compare(&mut self.state.lock());
    }

    fn compare(&self, state: &mut State) {
        let State { interval, shadow, blocks, pending, .. } = state;
        *interval += 1;
        let mut now = [0u64; BLOCK_WORDS];
        for &block in blocks.iter() {
            let first = block as usize * BLOCK_WORDS;
            let seen = &mut shadow[first..first + BLOCK_WORDS];
            if !self.memory.differs(block as usize, seen) {
                continue;
            }
            self.memory.read_block(block as usize, &mut now);
            for (at, (seen, &value)) in seen.iter_mut().zip(&now).enumerate().filter(|(_, (s, n))| *s != *n) {
                pending.push(first + at, value, *interval);
                *seen = value;
            }
        }
    }

    fn settle(&self, state: &mut State, mask: u64) {
        let State { media, media_hash, pending, old_lines, .. } = state;
        pending.drain(mask, self.model, |word, value| {
            if self.plays.keep_old_lines {
                remember(old_lines, media, word);
            }
            *media_hash ^= mix(word, media[word]) ^ mix(word, value);
            media[word] = value;
        });
        if let Some(len) = state.lens.pop() {
            state.media_len = len;
            state.lens.clear();
        }
    }

    /// Zeroes the words of a tail that is cut off. Mapped memory changes at once; a file only with its next sync.
    fn cut(&self, state: &mut State, from: usize, to: usize) {
        for block in from / BLOCK_WORDS..to.div_ceil(BLOCK_WORDS) {
            self.grant(state, block);
        }
        let at_once = !matches!(self.model, Model::File { .. });
        for word in from..to {
            self.memory.store(word, 0);
            if at_once {
                state.shadow[word] = 0;
                state.media_hash ^= mix(word, state.media[word]);
                state.media[word] = 0;
            }
        }
        if at_once {
            state.pending.truncate(from);
        }
    }

    /// From here on stores to this block are tracked.
    fn grant(&self, state: &mut State, block: usize) {
        if self.granted[block].swap(true, Relaxed) {
            return;
        }
        let mut now = [0u64; BLOCK_WORDS];
        self.memory.read_block(block, &mut now);
        let range = block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS;
        state.shadow[range.clone()].copy_from_slice(&now);
        state.media[range].copy_from_slice(&now);
        state.blocks.push(block as u32);
        state.mark_touched(block);
    }

    fn is_muted(&self, kind: Kind, site: Site) -> bool {
        !self.muted.is_empty() && self.muted.iter().any(|m| m.is(kind, site))
    }

    fn crash_point(&self, kind: Kind, site: Site) {
        // The hook runs without any lock of this model: it reads the model and runs recoveries.
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook.event(self, kind, site);
        }
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
        self.settle(&mut state, u64::MAX);
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

fn remember(old_lines: &mut VecDeque<(u32, [u64; LINE_WORDS])>, media: &[u64], word: usize) {
    let line = word / LINE_WORDS;
    let mut content = [0; LINE_WORDS];
    content.copy_from_slice(&media[line * LINE_WORDS..(line + 1) * LINE_WORDS]);
    if old_lines.len() == OLD_LINES_MAX {
        old_lines.pop_front();
    }
    old_lines.push_back((line as u32, content));
}

fn word_at(offset: u64) -> usize {
    (offset / 8) as usize
}

#[cold]
fn beyond(offset: u64, len: u64, file: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{len} bytes at offset {offset} are not inside the file of {file} bytes"),
    )
}
