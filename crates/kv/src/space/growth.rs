//! The file gets longer and shorter.
//!
//! New segments take the kernel time, about a millisecond for four megabytes in memory and much more on a disk. So the background thread makes them ahead of those who will ask, a few at
//! a time ([`Space::grow_ahead`]), and a thread that finds none makes no more than that either. Either holds `growth` meanwhile, and not the lock that every
//! thread takes that asks for a segment.

#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use pmem::Region;

use super::{Extent, Space, State};
use crate::error::{Error, Result};
use crate::media::word::REACH;
use crate::rows::Rows;
use crate::space::Segment;
use crate::space::need::Need;

/// Bytes that the file grows by in one go: a writer may wait for that.
const STEP: u64 = 4 << 20;
/// The same of a store with other regions behind it: each time takes one of the pool's few entries.
const STEP_BEHIND: u64 = 1 << 30;
/// Least number of segments.
const STEP_SEGMENTS: u64 = 4;
/// Bytes that are ready for those who will ask, at most: what is written while the background thread makes a checkpoint.
const AHEAD: u64 = 128 << 20;
/// Free segments that are not worth giving back.
const SLACK: u32 = 4;

/// The thread that has this changes the length of the file.
pub(super) struct Growth {
    data: Region,
}

/// Bytes that were made, for tests.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// By threads that asked for a segment: in all, and in one go.
    waited_for: AtomicU64,
    in_one_go: AtomicU64,
    /// While no thread could take a segment.
    locked: AtomicU64,
}

impl Growth {
    pub(super) fn new(data: Region) -> Self {
        Self { data }
    }
}

impl Space {
    /// Says where the segments are; returns how many.
    pub(super) fn note_extents(&self, growth: &Growth) -> u32 {
        let mut first = 0;
        for (area, extent) in growth.data.areas().iter().zip(&self.extents) {
            let count = area.len() / self.segment_bytes;
            let known = extent.get_or_init(|| Extent { offset: area.offset(), first, count: count.into() });
            known.count.store(count, Release);
            first += count as u32;
        }
        first
    }

    /// How many segments come in one go.
    fn step(&self, growth: &Growth, count: u32) -> u64 {
        let most = if self.pool.is_last(&growth.data) { STEP } else { STEP_BEHIND };
        (u64::from(count) / 4).max(STEP_SEGMENTS).min((most / self.segment_bytes).max(1))
    }

    /// More segments, at least `least`, unless some have come since the file had grown so often.
    #[cold]
    pub(super) fn grow(&self, least: u32, seen: u64) -> Result<()> {
        let mut growth = self.growth.lock();
        let count = {
            let state = self.state.lock();
            if state.growths != seen {
                return Ok(());
            }
            if state.full {
                return Err(self.no_room(&state, u64::from(least), Need::Data));
            }
            state.count
        };
        let wanted = self.step(&growth, count).max(least.into());
        let _made = self.grow_by_most(&mut growth, count, wanted, least.into())? * self.segment_bytes;
        #[cfg(test)]
        {
            self.made.waited_for.fetch_add(_made, Relaxed);
            self.made.in_one_go.fetch_max(_made, Relaxed);
        }
        Ok(())
    }

    /// Whether too few are free: a thread will have to make some before long.
    pub(super) fn note_scarce(&self, state: &State) {
        if !state.full && !self.is_enough(state) {
            self.scarce.store(true, Relaxed);
        }
    }

    fn is_enough(&self, state: &State) -> bool {
        let kept = self.reserve.kept(Need::Data, 1, state.count, self.segment_bytes) as u64;
        let ahead = (u64::from(state.count) / 8).min(AHEAD / self.segment_bytes).max(1);
        state.free.len() as u64 >= kept + ahead
    }

    /// Whether the background thread is wanted: for room ahead, or for memory where there is room.
    #[inline]
    pub(crate) fn wants_background(&self) -> bool {
        self.fresh.load(Relaxed) != 0 || self.scarce.load(Relaxed)
    }

    /// Makes segments before a thread has to wait for them. That the disk is full is no error: those who ask find out when there is no room.
    pub(crate) fn grow_ahead(&self, goes_on: impl Fn() -> bool) -> Result<()> {
        while self.scarce.load(Relaxed) && goes_on() {
            let mut growth = self.growth.lock();
            let count = {
                let state = self.state.lock();
                if state.full || self.is_enough(&state) {
                    // Under the lock: a thread that takes one now says so behind this.
                    self.scarce.store(false, Relaxed);
                    return Ok(());
                }
                state.count
            };
            let wanted = self.step(&growth, count);
            match self.grow_by_most(&mut growth, count, wanted, 1) {
                Ok(_) | Err(Error::Full { .. }) => {}
                Err(error) => {
                    // The next thread that asks has it tried again.
                    self.scarce.store(false, Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// So many segments, or as many as there is room for; returns how many.
    fn grow_by_most(&self, growth: &mut Growth, count: u32, mut wanted: u64, least: u64) -> Result<u64> {
        loop {
            match self.grow_by(growth, count, wanted) {
                Ok(()) => return Ok(wanted),
                Err(Error::Pool(pmem::Error::NoSpace { .. } | pmem::Error::Reserve { .. })) if wanted > least => {
                    wanted = (wanted / 2).max(least);
                }
                Err(Error::Pool(pmem::Error::NoSpace { .. } | pmem::Error::Reserve { .. })) => {
                    let mut state = self.state.lock();
                    state.full = true;
                    return Err(self.no_room(&state, least, Need::Data));
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn grow_by(&self, growth: &mut Growth, before: u32, segments: u64) -> Result<()> {
        let count = u64::from(before) + segments;
        let max = Rows::<Segment>::MOST as u64;
        if count > max {
            return Err(Error::Limit { what: "segments of the store", found: count, max });
        }
        self.grow_table(count)?;
        self.pool.grow_region(&mut growth.data, segments * self.segment_bytes)?;
        let mut state = self.state.lock();
        state.count = self.note_extents(growth);
        state.growths += 1;
        let end = self.offset(state.count - 1) + self.segment_bytes;
        if end > REACH {
            return Err(Error::Limit { what: "bytes of the pool", found: end, max: REACH });
        }
        for number in before..state.count {
            self.segment(number).used.store(0, Relaxed);
            state.free.insert(number);
        }
        drop(state);
        self.note_fresh(before, segments as u32);
        Ok(())
    }

    /// Room for the words of so many segments. With the lock of all who ask: it is a thousandth of the smallest segment's bytes, and seldom.
    fn grow_table(&self, count: u64) -> Result<()> {
        let mut state = self.state.lock();
        let room = state.table_len();
        if count * 8 > room {
            let more = (count * 8 - room).max(room);
            self.pool.grow_region(&mut state.table, more)?;
            #[cfg(test)]
            self.made.locked.fetch_add(more, Relaxed);
        }
        Ok(())
    }

    fn note_fresh(&self, first: u32, count: u32) {
        let with = |fresh: u64| {
            let (begin, len) = ((fresh >> 32) as u32, fresh as u32);
            let joined = if len > 0 && begin + len == first { (begin, len + count) } else { (first, count) };
            Some(u64::from(joined.0) << 32 | u64::from(joined.1))
        };
        let _ = self.fresh.fetch_update(Relaxed, Relaxed, with);
    }

    /// Has memory ready for segments that were never used, so that a thread that takes them need not wait for the kernel; the rest of them another time once
    /// there is something else to do.
    pub(crate) fn populate(&self, goes_on: impl Fn() -> bool) {
        let fresh = self.fresh.swap(0, Relaxed);
        let (mut number, mut left) = ((fresh >> 32) as u32, fresh as u32);
        while left > 0 && goes_on() {
            // Should it have been given back meanwhile, there is nothing to be had, and no harm.
            self.pool.populate(self.offset(number), self.segment_bytes);
            (number, left) = (number + 1, left - 1);
        }
        if left > 0 {
            // Unless there are newer ones.
            let _ = self.fresh.compare_exchange(0, u64::from(number) << 32 | u64::from(left), Relaxed, Relaxed);
        }
    }

    /// Gives free segments at the end back to the file system, if there are many: more than were used, and more than is kept ahead.
    pub(crate) fn shrink(&self) -> Result<()> {
        let mut growth = self.growth.lock();
        let mut state = self.state.lock();
        let count = state.count;
        let used = count - state.free.len() as u32;
        let last = growth.data.areas().last().map_or(0, |area| area.len() / self.segment_bytes) as u32;
        // One segment of the last extent stays: an extent that is gone could not be named again.
        let most = (0..last.saturating_sub(1)).take_while(|n| state.free.contains(&(count - 1 - n))).count() as u32;
        let keep = used + used / 4 + 4 * SLACK;
        let by = most.min(count.saturating_sub(keep));
        if by < (count / 4).max(4 * SLACK) {
            return Ok(());
        }
        // No thread gets these while the kernel takes them, and none finds a way there: no number of these leads anywhere before it is given out again.
        for number in count - by..count {
            state.free.remove(&number);
        }
        drop(state);
        let cut = self.pool.cut_region(&mut growth.data, u64::from(by) * self.segment_bytes);
        let mut state = self.state.lock();
        if !matches!(cut, Ok(true)) {
            state.free.extend(count - by..count);
        }
        state.count = self.note_extents(&growth);
        Ok(cut.map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::{Options, Store};

    const SEGMENT: u64 = 64 << 10;
    /// Few of these fill a segment.
    static VALUE: [u8; 32 << 10] = [7; 32 << 10];

    fn store(most: u64) -> (tempfile::TempDir, Store) {
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let options = Options::new().segment_bytes(SEGMENT).background(false).pool(pmem::Options::new().max_size(most));
        let store = options.create(dir.path().join("store")).unwrap();
        (dir, store)
    }

    fn fill(store: &Store, most: u32, mut then: impl FnMut()) -> u32 {
        for n in 0..most {
            match store.put(&n.to_be_bytes(), &VALUE) {
                Ok(_) => then(),
                Err(Error::Full { .. }) => return n,
                Err(error) => panic!("{error}"),
            }
        }
        most
    }

    #[test]
    fn nobody_makes_more_than_a_step_and_nobody_waits_behind_the_lock() {
        let (_dir, store) = store(1 << 30);
        fill(&store, 3000, || ());
        let (space, size) = (&store.core.versions.space, store.pool().size());
        assert!(size > 90 << 20, "{size}: a quarter of it is more than a step");
        assert!(space.made.waited_for.load(Relaxed) > 80 << 20, "{:?}", space.made);
        assert!(space.made.in_one_go.load(Relaxed) <= STEP, "{:?}", space.made);
        assert!(space.made.locked.load(Relaxed) <= size / 1000, "{:?}", space.made);
    }

    #[test]
    fn nobody_makes_anything_where_it_is_made_ahead() {
        let (_dir, store) = store(1 << 30);
        let space = &store.core.versions.space;
        fill(&store, 2000, || space.grow_ahead(|| true).unwrap());
        assert!(store.pool().size() > 60 << 20);
        assert_eq!(space.made.waited_for.load(Relaxed), 0, "{:?}", space.made);
        // Not without end: an eighth, and what is kept from data.
        let (usage, size) = (space.usage(), store.pool().size());
        assert!(usage.free <= usage.segments / 4 + 16, "{usage:?} of {size}");
    }

    #[test]
    fn who_finds_room_does_not_wait_for_the_file() {
        let (_dir, store) = store(1 << 30);
        let space = &store.core.versions.space;
        fill(&store, 200, || space.grow_ahead(|| true).unwrap());
        let before = space.usage().free;
        // As if the kernel took its time.
        let growing = space.growth.lock();
        let (done, is_done) = channel();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                (0..4_u32).for_each(|n| assert!(store.put(&n.to_be_bytes(), &VALUE).unwrap()));
                assert!(store.get(&1_u32.to_be_bytes()).unwrap().is_some());
                done.send(space.usage().free).unwrap();
            });
            let free = is_done.recv_timeout(Duration::from_secs(60));
            drop(growing);
            assert!(free.is_ok_and(|free| free < before), "waited for a file that grows, with {before} free");
        });
    }

    /// What is made ahead is not taken from anybody, and that there is no more to be had is no error before all is used.
    #[test]
    fn a_full_disk_ahead_refuses_nothing_that_fits() {
        let most = 12 << 20;
        let (_dir, plain) = store(most);
        let (_other, ahead) = store(most);
        let expected = fill(&plain, u32::MAX, || ());
        let space = &ahead.core.versions.space;
        let mut refused_at = None;
        let mut put = 0;
        let found = fill(&ahead, u32::MAX, || {
            put += 1;
            space.grow_ahead(|| true).unwrap();
            if refused_at.is_none() && space.state.lock().full {
                refused_at = Some(put);
            }
        });
        assert!(found >= expected && expected > 100, "{found} went in, and {expected} where nothing was made ahead");
        assert!(refused_at.is_some_and(|at| at + 8 < found), "full at {refused_at:?} of {found}");
    }
}
