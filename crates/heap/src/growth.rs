//! How main grows, and what follows it.

use pmem::{Error as PoolError, Pool, Region};
use tx::{Error, Result};

use crate::follower::{CopiesState, Follower};
use crate::ground::Ground;
use crate::regions::{PAGE, areas};
use crate::zones::Zones;

/// The heap grows by this part of it at least.
const LEAST_STEP: u64 = 16;
/// Growths for which this many entries of the directory are enough: of main, of the backup and of the zones each, and of the second marks once.
const GROWTHS_OF: (usize, usize) = (3, 10);

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

impl Ground {
    // ---- main -------------------------------------------------------------------------------------------------------

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

    // ---- what follows it --------------------------------------------------------------------------------------------

    /// Makes the backup as large as main, if main grew under another policy.
    pub(crate) fn grow_backup(&self) -> Result<()> {
        let mut growing = self.growing.lock();
        if let Follower::Backup(backup, zones, marks) = &mut *growing {
            self.follow(backup, zones, marks.as_mut(), self.main.len())?;
        }
        Ok(())
    }

    /// Makes backup, zone table and second marks large enough for `bytes` bytes of main.
    fn follow(&self, backup: &mut Region, zones: &mut Region, marks: Option<&mut Region>, bytes: u64) -> Result<()> {
        if bytes > backup.len() {
            self.pool.grow_region(backup, bytes - backup.len())?;
            self.backup.update(areas(backup));
        }
        let (old, wanted) = (self.zones.capacity(), self.backup.len().div_ceil(self.zones.bytes()));
        if wanted > old {
            let more = Zones::table_bytes(self.zones.bytes(), (wanted - old) * self.zones.bytes());
            self.pool.grow_region(zones, more)?;
            // First the second marks: a thread that sees the zones finds them.
            if let Some(marks) = marks {
                let entries = self.zones.seconds.entries(8);
                let capacity: u64 =
                    areas(zones).map(|area| (area.end - area.start) / Zones::stride(self.zones.bytes())).sum();
                if capacity > entries {
                    self.pool.grow_region(marks, 8 * (AHEAD * capacity - entries))?;
                    self.zones.seconds.update(areas(marks));
                }
            }
            self.zones.table.update(areas(zones));
            self.zones.clean_new(old)?;
        }
        Ok(())
    }

    /// The copies are as large a share of main as before it grew.
    fn follow_by_share(&self, region: &mut Region, state: &CopiesState) -> Result<()> {
        let Some(copies) = &self.copies else { return Ok(()) };
        let wanted = state.bytes(self.main.len());
        grow_to(&self.pool, region, wanted)?;
        copies.catalog.line.update(areas(region));
        copies.extend(wanted)
    }
}

/// The region of second marks has room for a heap so many times as large: it takes an entry of the directory seldom.
pub(crate) const AHEAD: u64 = 16;

/// Makes a region at least so large; if there is no space for that, the copies are fewer.
pub(crate) fn grow_to(pool: &Pool, region: &mut Region, bytes: u64) -> Result<()> {
    let more = bytes.next_multiple_of(PAGE).saturating_sub(region.len());
    match if more > 0 { pool.grow_region(region, more) } else { Ok(()) } {
        Ok(()) | Err(PoolError::NoSpace { .. } | PoolError::Reserve { .. } | PoolError::DirectoryFull { .. }) => Ok(()),
        Err(e) => Err(e.into()),
    }
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
