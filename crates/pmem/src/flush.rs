//! From store to media: what waits to be flushed, flush and drain as the domain asks, and the proof that a drain took place.

use std::io;
use std::sync::atomic::Ordering::Acquire;
use std::time::Instant;

use rustix::fs::fdatasync;

use crate::checksum::{ChecksumKey, Sum};
use crate::cpu;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::mapping::{Backing, Mapping};
use crate::sim::Site;
use crate::stats::{THREADS, is_played_apart};
use crate::threads::thread_id;
use crate::whole::Whole;

/// Proof that a drain took place on this thread.
///
/// Made by nothing but a drain; what needs one (the [`Ring`](crate::Ring), an engine's commit) takes it by reference and checks
/// that the drain came after the flush it stands for.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut area = pool.add_region("r", 4096)?.into_area()?;
/// area.put(0, &1u64)?;
/// let flushed = area.flush(0, 8)?;
/// let persisted = pool.drain()?;
/// assert!(flushed.is_covered_by(&persisted));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Persisted {
    /// Address of the mapping: what another pool drained proves nothing here.
    pool: usize,
    thread: usize,
    number: u64,
}

/// A moment of one thread between its drains: what it flushed up to here is persistent after its next one.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let area = pool.add_region("r", 4096)?.into_area()?;
/// let before = area.flush(0, 64)?;
/// let persisted = pool.drain()?;
/// let after = area.flush(64, 64)?;
/// assert!(before.is_covered_by(&persisted) && !after.is_covered_by(&persisted));
/// assert!(after.is_after(before));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pool: usize,
    thread: usize,
    drains: u64,
}

impl Moment {
    /// What another process or thread flushed, or did not: covered by no drain of ours.
    pub(crate) const FOREIGN: Self = Self { pool: 0, thread: usize::MAX, drains: 0 };

    /// True if the drain behind `persisted` covers what was flushed at this moment.
    #[inline]
    pub fn is_covered_by(&self, persisted: &Persisted) -> bool {
        (self.pool, self.thread) == (persisted.pool, persisted.thread) && persisted.number > self.drains
    }

    /// True if this moment is of the same thread as `earlier`, with a drain in between.
    #[inline]
    pub fn is_after(&self, earlier: Moment) -> bool {
        // Threads past the last row share a count, which others raise: then nothing is known.
        self.thread < THREADS - 1 && self.is_later_on_its_thread(earlier)
    }

    /// The same if the thread's count is its own.
    #[inline]
    fn is_later_on_its_thread(&self, earlier: Moment) -> bool {
        (self.pool, self.thread) == (earlier.pool, earlier.thread) && self.drains > earlier.drains
    }
}

/// Lines that were stored to and are still to be flushed.
///
/// Lines are collected and flushed together, right before the drain that needs them: an atomic read-modify-write behind a flush waits for
/// it as a barrier does, and a line stored to twice is written back once.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
/// use pmem::{FlushSet, Intent};
/// let mut lines = FlushSet::default();
/// for _ in 0..8 {
///     heap.apply(&Intent::alloc(&heap.reserve(64, 8)?), &mut lines)?;
/// }
/// let before = pool.stats();
/// pool.flush_set(&mut lines)?;
/// assert_eq!((pool.stats() - before).flushed_lines, 21); // the table, twice, the new chunk's bitmap, and what proves it
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct FlushSet {
    /// Address of the mapping the lines are of, once there are any.
    pool: usize,
    lines: Vec<u64>,
    /// Where in `lines` a line may stand, by its low bits: a guess that is checked.
    slots: [u16; SLOTS],
}

const SLOTS: usize = 32;

impl FlushSet {
    /// Adds the lines of a range of the pool.
    ///
    /// # Panics
    /// If the set holds lines of another pool: a mistake of the engine that would leave them unflushed.
    #[inline]
    pub(crate) fn add(&mut self, mapping: &Mapping, offset: u64, len: u64) {
        let pool = mapping.id();
        assert!(self.lines.is_empty() || self.pool == pool, "a FlushSet holds lines of one pool");
        self.pool = pool;
        let mut line = offset / cpu::LINE;
        while line * cpu::LINE < offset.saturating_add(len) {
            let slot = &mut self.slots[line as usize % SLOTS];
            if self.lines.get(usize::from(*slot)) != Some(&line) {
                *slot = self.lines.len() as u16;
                self.lines.push(line);
            }
            line += 1;
        }
    }

    /// True if nothing waits to be flushed.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl Mapping {
    /// What tells this mapping from others in the process: its address.
    #[inline]
    fn id(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Where this thread stands between its drains.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        Moment { pool: self.id(), thread: thread_id(), drains: self.counters.drains_here() }
    }

    /// Whether this thread has drained since a moment of its own. In simulated memory a played thread is alone in playing its number; elsewhere it is unknown.
    #[inline]
    pub(crate) fn is_drained_since(&self, earlier: Moment) -> bool {
        let now = self.moment();
        let is_alone = self.domain() == Domain::Simulated && is_played_apart(now.thread);
        now.is_after(earlier) || is_alone && now.is_later_on_its_thread(earlier)
    }

    /// Starts the write-back of the lines of a range that was accessed before.
    #[inline]
    pub(crate) fn flush(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.fork.check()?;
        let limit = self.len.load(Acquire);
        if offset > limit || len > limit - offset {
            return Err(Error::OutOfBounds { at: offset, end: offset.saturating_add(len), len: limit });
        }
        let lines = cpu::lines(offset, len);
        self.counters.flushed(lines);
        self.written.note(offset, len); // first: behind a flush an atomic read-modify-write waits for it
        match &self.backing {
            Backing::Flushed(with) => {
                // SAFETY: the range is mapped, as just checked.
                unsafe { cpu::flush(*with, self.base.as_ptr().add(offset as usize), len) };
                self.imitate_lines(lines);
            }
            Backing::Fenced | Backing::Synced => {} // the fence or the sync covers every store before it
            Backing::Simulated(medium) => medium.flush(offset, len, site),
        }
        Ok(())
    }

    /// Flushes and empties the set.
    #[inline]
    pub(crate) fn flush_set(&self, set: &mut FlushSet, site: Site) -> Result<()> {
        assert!(set.is_empty() || set.pool == self.id(), "a FlushSet holds lines of one pool");
        for line in set.lines.drain(..) {
            self.flush(line * cpu::LINE, cpu::LINE, site)?;
        }
        Ok(())
    }

    /// Waits until what this thread flushed is persistent.
    #[inline]
    pub(crate) fn drain(&self, site: Site) -> Result<Persisted> {
        self.fork.check()?;
        match &self.backing {
            Backing::Flushed(_) | Backing::Fenced => {
                cpu::drain();
                if let Some(latency) = &self.latency {
                    spin(latency.drain_ns);
                }
            }
            Backing::Synced => self.sync()?,
            Backing::Simulated(medium) => {
                self.group.check()?;
                if let Err(source) = medium.drain(site) {
                    self.group.poison();
                    return Err(Error::Sync { source });
                }
                // One that failed meanwhile may have given up what this one was to write; with real files, syncs follow one another.
                self.group.check()?;
            }
        }
        Ok(Persisted { pool: self.id(), thread: thread_id(), number: self.counters.drained() })
    }

    /// See [`Area::write_whole`](crate::Area::write_whole).
    pub(crate) fn write_whole(&self, offset: u64, data: &[u8], site: Site) -> Result<bool> {
        let len = data.len() as u64;
        self.access(offset, len, true)?;
        let written = match (&self.backing, &self.file) {
            (Backing::Simulated(medium), _) => {
                self.group.check()?;
                medium.write_whole(offset, data, site)
            }
            (Backing::Synced, Some(file)) => {
                self.group.check()?;
                let Some(whole) = self.whole.get_or_init(|| Whole::of(file)) else { return Ok(false) };
                if !whole.takes(offset, len) {
                    return Ok(false);
                }
                whole.write(offset, data).map_err(io::Error::from)
            }
            _ => return Ok(false),
        };
        let written = written.map_err(|source| {
            self.group.poison(); // what is there is unknown
            Error::Sync { source }
        })?;
        if written {
            self.written.note(offset, len);
            self.counters.synced();
            self.counters.drained();
        }
        Ok(written)
    }

    /// Stores `data` at `offset` past the cache where that helps, and flushes the rest.
    #[inline]
    pub(crate) fn copy_nt(&self, offset: u64, data: &[u8], site: Site) -> Result<()> {
        let len = data.len() as u64;
        let to = self.access(offset, len, true)?.as_ptr();
        match &self.backing {
            Backing::Flushed(with) => {
                // SAFETY: `access` checked the range; that nothing else uses it is the promise of our callers, which hold it
                // exclusively (`Area`) or say so in an unsafe block of their own; `data` is no part of it for the same reason.
                let streamed = unsafe { cpu::copy_nt(*with, to, data.as_ptr(), data.len()) } as u64;
                self.written.note(offset, len);
                let lines = cpu::lines(offset, len);
                self.counters.streamed(streamed);
                self.counters.flushed(lines - streamed / cpu::LINE);
                self.imitate_lines(lines);
                Ok(())
            }
            _ => {
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
                self.flush(offset, len, site)
            }
        }
    }

    /// Stores `head` and `body`, one behind the other, and zeros up to the end of the last line, past the cache where that helps, and flushes
    /// the rest.
    #[inline]
    pub(crate) fn join_nt(&self, offset: u64, head: &[u8], body: &[u8], site: Site) -> Result<()> {
        let len = (head.len() + body.len()) as u64;
        let end = (offset + len).next_multiple_of(cpu::LINE);
        let to = self.access(offset, end - offset, true)?.as_ptr();
        match &self.backing {
            Backing::Flushed(with) => {
                // SAFETY: as in `copy_nt`.
                let streamed = unsafe { cpu::join_nt(*with, to, head, body) } as u64;
                self.written.note(offset, end - offset);
                let lines = cpu::lines(offset, end - offset);
                self.counters.streamed(streamed);
                self.counters.flushed(lines - streamed / cpu::LINE);
                self.imitate_lines(lines);
                Ok(())
            }
            _ => {
                // SAFETY: in bounds; as in `copy_nt`.
                let to = unsafe { std::slice::from_raw_parts_mut(to, (end - offset) as usize) };
                to[..head.len()].copy_from_slice(head);
                to[head.len()..len as usize].copy_from_slice(body);
                to[len as usize..].fill(0);
                self.flush(offset, end - offset, site)
            }
        }
    }

    /// As [`join_nt`](Self::join_nt), of a head that is made of the body's sum, which is taken while the body leaves; the head's line leaves last.
    #[inline]
    pub(crate) fn checksum_nt<const HEAD: usize>(
        &self,
        offset: u64,
        key: &ChecksumKey,
        body: &[u8],
        head: impl FnOnce(Sum) -> [u8; HEAD],
        site: Site,
    ) -> Result<()> {
        const LINE_BYTES: usize = cpu::LINE as usize;
        const { assert!(HEAD <= LINE_BYTES, "the head is in the first line") };
        if let Backing::Flushed(with) = &self.backing
            && offset.is_multiple_of(cpu::LINE)
        {
            let in_first = LINE_BYTES - HEAD;
            let len = (HEAD + body.len()).next_multiple_of(LINE_BYTES).max(LINE_BYTES);
            let to = self.access(offset, len as u64, true)?.as_ptr();
            // SAFETY: a line and the whole lines behind it are less than `len`, which `access` checked; as in `copy_nt`.
            if let Some((sum, stored)) = unsafe { key.sum_storing(body, to.wrapping_add(LINE_BYTES), in_first) } {
                let (body, behind) = body.split_at(in_first.min(body.len()));
                let rest = &behind[stored..];
                let mut line = [0; LINE_BYTES];
                if !rest.is_empty() {
                    line[..rest.len()].copy_from_slice(rest);
                    // SAFETY: the last line of `len`.
                    unsafe { cpu::stream_lines(*with, to.add(len - LINE_BYTES), line.as_ptr(), LINE_BYTES) };
                    line.fill(0);
                }
                line[..HEAD].copy_from_slice(&head(sum));
                line[HEAD..HEAD + body.len()].copy_from_slice(body);
                // SAFETY: the first line.
                unsafe { cpu::stream_lines(*with, to, line.as_ptr(), LINE_BYTES) };
                self.written.note(offset, len as u64);
                self.counters.streamed(len as u64);
                self.imitate_lines(len as u64 / cpu::LINE);
                return Ok(());
            }
        }
        self.join_nt(offset, &head(key.sum(body)), body, site)
    }

    /// Stores `body` at `offset`, which starts a line, and zeros up to the end of its last one, as [`join_nt`](Self::join_nt); returns the checksum of `before` and `body`, which is
    /// taken while the body leaves.
    pub(crate) fn store_checksumming(
        &self,
        offset: u64,
        key: &ChecksumKey,
        before: &[u8],
        body: &[u8],
        site: Site,
    ) -> Result<u64> {
        const LINE_BYTES: usize = cpu::LINE as usize;
        if let Backing::Flushed(with) = &self.backing
            && offset.is_multiple_of(cpu::LINE)
        {
            let len = body.len().next_multiple_of(LINE_BYTES);
            let to = self.access(offset, len as u64, true)?.as_ptr();
            // SAFETY: the whole lines of the body are among `len` bytes, which `access` checked; as in `copy_nt`.
            if let Some((checksum, stored)) = unsafe { key.checksum_storing(before, body, to) } {
                let rest = &body[stored..];
                if !rest.is_empty() {
                    let mut line = [0; LINE_BYTES];
                    line[..rest.len()].copy_from_slice(rest);
                    // SAFETY: the last line of `len`.
                    unsafe { cpu::stream_lines(*with, to.add(stored), line.as_ptr(), LINE_BYTES) };
                }
                self.written.note(offset, len as u64);
                self.counters.streamed(len as u64);
                self.imitate_lines(len as u64 / cpu::LINE);
                return Ok(checksum);
            }
        }
        let checksum = key.checksum_parts([before, body].into_iter());
        self.join_nt(offset, &[], body, site)?;
        Ok(checksum)
    }

    #[inline]
    fn imitate_lines(&self, lines: u64) {
        if let Some(latency) = &self.latency {
            spin(latency.lines_ns(lines));
        }
    }

    fn sync(&self) -> Result<()> {
        self.group.check()?;
        let Some(file) = &self.file else { return Ok(()) };
        if crate::failpoints::drains_ignored() {
            return Ok(());
        }
        self.group.wait(|| {
            self.counters.synced();
            fdatasync(file).map_err(io::Error::from)
        })
    }

    pub(crate) fn observe(&self, offset: u64, len: u64, site: Site) {
        if let Backing::Simulated(medium) = &self.backing {
            medium.observe(offset, len, site);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "imitates a slower medium in real time")]
fn spin(ns: u64) {
    if ns > 0 {
        let start = Instant::now();
        while (start.elapsed().as_nanos() as u64) < ns {
            std::hint::spin_loop();
        }
    }
}
