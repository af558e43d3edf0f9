//! What the parts of a heap share.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmem::sync::{Mutex, OwnMutex};
use pmem::{Allocator, Block, Door, Error as PoolError, FlushSet, Pool, Region, TwoSlot};
use tx::{Error, Result, Slots};

use crate::copies::Copies;
use crate::failpoints::Failpoints;
use crate::log::Log;
use crate::options::{Intents, Policy};
use crate::partial::CopiesState;
use crate::queue::Queue;
use crate::raw::{self, Claim};
use crate::record::{Bytes, is_short};
use crate::space::Space;
use crate::state::TxState;
use crate::zones::{Active, Zones};

/// Names of the regions.
pub(crate) const MAIN: &str = "heap";
pub(crate) const BACKUP: &str = "heap.backup";
pub(crate) const ZONES: &str = "heap.zones";
pub(crate) const MARKS: &str = "heap.marks";
pub(crate) const LOGS: &str = "heap.logs";
pub(crate) const STATE: &str = "heap.state";
pub(crate) const COPIES: &str = "heap.copies";
pub(crate) const COPIES_STATE: &str = "heap.copies.state";

pub(crate) struct Core {
    pub(crate) policy: Policy,
    pub(crate) intents: Intents,
    pub(crate) pool: Pool,
    pub(crate) alloc: Allocator,
    /// The chunks of main, and their bytes on the backup.
    pub(crate) main: Space,
    pub(crate) backup: Space,
    pub(crate) zones: Zones,
    /// Of a partial backup.
    pub(crate) copies: Option<Copies>,
    pub(crate) slots: Slots,
    pub(crate) queue: Queue,
    pub(crate) logs: Box<[OwnMutex<Log>]>,
    pub(crate) active: Box<[Active]>,
    pub(crate) states: raw::PerSlot<TxState>,
    pub(crate) counters: Box<[Counters]>,
    /// Held while the heap grows: what grows with main.
    pub(crate) growing: Mutex<Follower>,
    /// Main does not grow beyond this by itself.
    pub(crate) bytes_max: u64,
    pub(crate) batch: usize,
    pub(crate) checksum_max: u64,
    pub(crate) root: u64,
    pub(crate) cleaned: AtomicU64,
    /// The first error behind a durable commit.
    pub(crate) trouble: Mutex<Option<Error>>,
    /// Numbers for undo extents, unique in the life of the pool together with its generation.
    pub(crate) extents: AtomicU64,
    pub(crate) failpoints: Failpoints,
    /// Closed while a backup takes what its cut needs.
    pub(crate) door: Door,
}

/// The regions that grow with main.
pub(crate) enum Follower {
    Nothing,
    /// Backup, zone table, and second marks.
    Backup(Region, Region, Option<Region>),
    /// Copies, and the cell that tells of them.
    Copies(Region, TwoSlot<CopiesState>),
}

/// Counted per slot by its holder.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) read_only: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    /// Times that copies had to be made.
    pub(crate) misses: AtomicU64,
    /// Entries in the log's queue, for the coordinator.
    pub(crate) pending: AtomicU64,
}

impl Counters {
    /// One more; only the slot's holder counts.
    #[inline]
    pub(crate) fn add(cell: &AtomicU64) {
        cell.store(cell.load(Relaxed) + 1, Relaxed);
    }
}

/// The heap grows by this part of it at least.
const LEAST_STEP: u64 = 16;
/// Growths for which this many entries of the directory are enough: of main, of the backup and of the zones each, and of the second marks once.
const GROWTHS_OF: (usize, usize) = (3, 10);
/// How often a block is looked for in a heap that others fill as it grows.
const GROWTHS: usize = 8;

/// Bytes by which a heap of `len` bytes grows that is asked for `bytes` more: as many, unless doubling with each of the other `growths` that the directory has room
/// for would not make it `max` bytes large. Then as many as bring it there by equal factors. So a heap reaches that size however little it is asked for at a time.
fn step(len: u64, max: u64, growths: usize, bytes: u64) -> u64 {
    let doubled = |growths: usize| u128::from(len + bytes) << growths.min(63);
    if growths == 0 || bytes >= max || len == 0 || doubled(growths - 1) >= u128::from(max) {
        return bytes;
    }
    let factor = (max as f64 / len as f64).powf(1.0 / growths as f64);
    bytes.max((len as f64 * (factor - 1.0)).ceil() as u64)
}

/// Growths that so many free entries of the directory are enough for.
fn growths(entries: usize) -> usize {
    let (some, of) = GROWTHS_OF;
    (entries * some / of).max(usize::from(entries >= some)) // the second marks have just grown, or this is the last one
}

impl Core {
    // ---- main and backup --------------------------------------------------------------------------------------------

    /// Where a byte of main is in the line of all its chunks.
    #[inline]
    pub(crate) fn linear(&self, offset: u64) -> Result<u64> {
        match self.main.linear(offset) {
            Some(at) => Ok(at),
            None => self.linear_after_growth(offset),
        }
    }

    /// Another thread has grown main, and not told yet.
    #[cold]
    fn linear_after_growth(&self, offset: u64) -> Result<u64> {
        let _growing = self.growing.lock();
        self.main.update(self.alloc.spaces().into_iter());
        self.main.linear(offset).ok_or(Error::Pool(PoolError::OutOfBounds {
            at: offset,
            end: offset,
            len: self.main.len(),
        }))
    }

    /// Calls `f` with (main, backup, length) for each piece of a range of main that is in one piece on the backup.
    #[inline]
    pub(crate) fn pieces(&self, offset: u64, len: u64, mut f: impl FnMut(u64, u64, u64) -> Result<()>) -> Result<()> {
        let (mut from, mut at, mut left) = (offset, self.linear(offset)?, len);
        while left > 0 {
            let (to, rest) = self.backup.place(at).ok_or_else(|| self.backup_too_short(from))?;
            let n = left.min(rest);
            f(from, to, n)?;
            (from, at, left) = (from + n, at + n, left - n);
        }
        Ok(())
    }

    #[cold]
    fn backup_too_short(&self, offset: u64) -> Error {
        let why = format!("it ends at {} of {} bytes", self.backup.len(), self.main.len());
        Error::Damaged { what: "backup", offset, why }
    }

    /// Makes the backup of a range as main is, persistent after the next drain. The range is locked: pending, or nobody else is there yet.
    #[inline]
    #[track_caller]
    pub(crate) fn copy_to_backup(&self, offset: u64, len: u64) -> Result<()> {
        self.pieces(offset, len, |main, backup, n| {
            // main and backup are different regions. Main does not change while it is pending; the backup of a range is
            // used by whoever settles it alone, under the slot's log lock, and no range is pending in two slots.
            raw::copy(Claim::Settling, &self.pool, main, backup, n)
        })
    }

    /// The same from an image of the range, past the cache.
    #[inline]
    #[track_caller]
    pub(crate) fn store_in_backup(&self, offset: u64, image: &[u8]) -> Result<()> {
        let mut rest = image;
        self.pieces(offset, image.len() as u64, |_, backup, n| {
            let (now, after) = rest.split_at(n as usize);
            rest = after;
            // as in `copy_to_backup`.
            raw::store(Claim::Settling, &self.pool, backup, now)
        })
    }

    /// Asks for the place of a range in the backup: its lines if they will be written in part, else what is needed to find it.
    #[inline]
    pub(crate) fn touch_backup(&self, (offset, len): Bytes) {
        if let Some((to, _)) = self.main.linear(offset).and_then(|at| self.backup.place(at)) {
            self.pool.prefetch(to, if is_short(&(offset, len)) { pmem::lines(to, len) } else { 1 });
        }
    }

    /// Puts what a range of main held into the backup, and adds its lines. As for [`copy_to_backup`](Self::copy_to_backup).
    pub(crate) fn put_in_backup(&self, offset: u64, image: &[u8], lines: &mut FlushSet) -> Result<()> {
        let mut rest = image;
        self.pieces(offset, image.len() as u64, |_, backup, n| {
            let (now, after) = rest.split_at(n as usize);
            // as in `copy_to_backup`.
            raw::bytes_mut(Claim::Settling, self, &self.pool, backup, n)?.copy_from_slice(now);
            self.pool.add_lines(lines, backup, n);
            rest = after;
            Ok(())
        })
    }

    /// Makes a range of main as the backup is. The caller is its writer.
    #[track_caller]
    pub(crate) fn copy_from_backup(&self, offset: u64, len: u64) -> Result<()> {
        self.pieces(offset, len, |main, backup, n| {
            // as in `copy_to_backup`; the caller is the only one to use this range of main.
            raw::copy(Claim::Writer, &self.pool, backup, main, n)
        })
    }

    // ---- space ------------------------------------------------------------------------------------------------------

    /// Takes a block, which does not resolve yet, out of a larger heap if it must.
    #[inline]
    pub(crate) fn reserve(&self, len: u64, align: u64) -> Result<Block> {
        match self.alloc.reserve_hidden(len, align) {
            Err(PoolError::HeapFull { .. }) => self.reserve_cold(len, align),
            other => Ok(other?),
        }
    }

    #[cold]
    fn reserve_cold(&self, len: u64, align: u64) -> Result<Block> {
        if len > pmem::OFFSET_MAX / 4 {
            return Err(PoolError::HeapFull { bytes: len }.into()); // larger than any pool
        }
        self.settle_all(&mut |_| {})?; // what was freed may be handed out then
        for _ in 0..GROWTHS {
            let before = self.main.len();
            match self.alloc.reserve_hidden(len, align) {
                Err(PoolError::HeapFull { .. }) => self.grow_for(len, before)?,
                other => return Ok(other?),
            }
        }
        Ok(self.alloc.reserve_hidden(len, align)?)
    }

    /// Makes room for a block: twice as much as there is, so that the directory's extents last; less if there is less, but no steps so small that
    /// they would use them up. Nothing if it has grown since it had `before` bytes.
    #[cold]
    pub(crate) fn grow_for(&self, len: u64, before: u64) -> Result<()> {
        let least = (2 * len).max(self.main.len() / LEAST_STEP);
        let room = self.bytes_max.saturating_sub(self.main.len());
        // Of the last room that is allowed, whatever is left.
        let least = if least <= room { least } else { len.next_multiple_of(self.alloc.chunk_size()) };
        if least > room {
            return Err(PoolError::HeapFull { bytes: len }.into());
        }
        let mut more = self.main.len().max(least).min(room);
        loop {
            match self.grow_from(more, Some(before)) {
                Err(Error::Pool(PoolError::NoSpace { .. } | PoolError::Reserve { .. })) if more > least => {
                    more = (more / 2).max(least);
                }
                other => return other,
            }
        }
    }

    /// Makes main, and before it the backup, at least `bytes` larger.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        if bytes > pmem::OFFSET_MAX {
            let (what, max) = ("bytes to grow by", pmem::OFFSET_MAX);
            return Err(PoolError::Limit { what, found: bytes, min: 0, max }.into());
        }
        let entries = pmem::REGIONS_MAX.saturating_sub(self.pool.info().regions.len());
        let mut more = step(self.main.len(), self.pool.max_size(), growths(entries), bytes);
        loop {
            match self.grow_from(more, None) {
                Err(Error::Pool(PoolError::NoSpace { .. } | PoolError::Reserve { .. })) if more > bytes => {
                    more = (more / 2).max(bytes);
                }
                other => return other,
            }
        }
    }

    fn grow_from(&self, bytes: u64, before: Option<u64>) -> Result<()> {
        let mut growing = self.growing.lock();
        if before.is_some_and(|before| before != self.main.len()) {
            return Ok(()); // another thread has met the same end
        }
        let unit = self.alloc.chunk_size().max(self.zones.bytes());
        let bytes = bytes.next_multiple_of(self.alloc.chunk_size());
        if let Follower::Backup(backup, zones, marks) = &mut *growing {
            // Main may become a few chunks larger than asked for: it is rounded to pages.
            self.follow(backup, zones, marks.as_mut(), self.main.len() + bytes + unit)?;
        }
        self.alloc.grow(bytes)?;
        self.main.update(self.alloc.spaces().into_iter());
        if let Follower::Copies(region, cell) = &mut *growing {
            self.follow_by_share(region, &cell.get())?;
        }
        Ok(())
    }

    // ---- settling ---------------------------------------------------------------------------------------------------

    /// Settles one slot, whoever has it.
    pub(crate) fn settle_slot(&self, slot: usize, seen: &mut dyn FnMut(&Active)) -> Result<()> {
        let mut log = self.logs[slot].lock();
        log.settle(self)?;
        self.counters[slot].pending.store(0, Relaxed);
        seen(&self.active[slot]);
        Ok(())
    }

    /// Settles all slots; shows what each is in while it cannot commit.
    pub(crate) fn settle_all(&self, seen: &mut dyn FnMut(&Active)) -> Result<()> {
        (0..self.slots.len()).try_for_each(|slot| self.settle_slot(slot, seen))
    }

    /// Cleans zones until recovery keeps its budget again. Called without locks.
    #[cold]
    pub(crate) fn clean_some(&self) -> Result<()> {
        // An eighth at a time: settling every slot is shared by that many.
        let most = (self.zones.dirty() / 8).max(1);
        let cleaned = self.zones.clean_idle(most, &self.active, |seen| self.settle_all(seen))?;
        self.cleaned.fetch_add(cleaned as u64, Relaxed);
        Ok(())
    }

    /// Settles everything, and cleans all zones, with their checksums.
    pub(crate) fn clean_all(&self) -> Result<()> {
        self.settle_all(&mut |_| {})?;
        if self.policy == Policy::InPlace {
            let sums = |zone| crate::scrub::sums(self, zone).map(Some);
            self.zones.clean(usize::MAX, |seen| self.settle_all(seen), sums)?;
        }
        Ok(())
    }

    /// What goes wrong behind the point where a transaction is durable must not undo it: it is kept, and told when the heap is closed or
    /// checked. What it left undone is tried again by whoever needs it.
    #[inline]
    pub(crate) fn after_durable(&self, outcome: Result<()>) {
        if let Err(e) = outcome {
            self.trouble.lock().get_or_insert(e);
        }
    }

    /// A copy of bytes of the backup's line. The zone is quiet.
    pub(crate) fn backup_bytes(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        read_line(&self.pool, &self.backup, at, len)
    }
}

/// A copy of bytes of a line that nobody changes.
pub(crate) fn read_line(pool: &Pool, line: &Space, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len as usize);
    let mut at = at;
    let end = at + len;
    while at < end {
        let Some((offset, rest)) = line.place(at) else { break };
        let n = rest.min(end - at);
        // the caller sees to it that nobody writes: the zone is quiet, or the heap is being opened.
        bytes.extend_from_slice(raw::bytes(Claim::Quiet, pool, pool, offset, n)?);
        at += n;
    }
    Ok(bytes)
}

/// The extents of a region.
pub(crate) fn areas(region: &Region) -> impl Iterator<Item = std::ops::Range<u64>> {
    region.areas().iter().map(|a| a.offset()..a.offset() + a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries last, whatever is asked for: least bytes each time, much at first, or at random.
    #[test]
    fn a_heap_reaches_the_size_of_its_pool_however_it_grows() {
        const LIMIT: u64 = 1 << 40;
        let mut word = 1u64;
        for round in 0..10_000 {
            let mut draw = |below: u32| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                1u64 << ((word >> 40) % u64::from(below))
            };
            let mut len = (64 << 10) * draw(20);
            // Those of the heap itself are taken.
            let (mut entries, mut marked) = (pmem::REGIONS_MAX - 6, 16 * len);
            while len < LIMIT {
                let bytes = if round % 2 == 0 { 1 } else { draw(30) };
                let more = step(len, LIMIT, growths(entries), bytes);
                assert!(more >= bytes);
                len += more.next_multiple_of(64 << 10);
                let mut taken = 3;
                if len > marked {
                    (taken, marked) = (4, 16 * len);
                }
                assert!(entries >= taken, "round {round}: no entry is left at {len} bytes");
                entries -= taken;
            }
        }
    }
}
