//! Segments: what each is used for, and how much of each is live. Where more come from: see `growth`.

mod growth;
pub(crate) mod need;
pub(crate) mod reserve;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmem::{Area, Pool, Region, WORD};

use crate::error::{Error, Result};
use crate::media::node::NODE;
use crate::media::uses::Use;
use crate::media::word::Word;
use crate::options::Options;
use crate::rows::Rows;
use growth::Growth;
use need::Need;
use reserve::Reserve;

/// Extents of a region, at most.
const EXTENTS: usize = 48;

/// All segments of a store.
pub(crate) struct Space {
    pool: Pool,
    pub(crate) segment_bytes: u64,
    /// First byte, first segment, number of segments; set once each, but for the last number.
    extents: [OnceLock<Extent>; EXTENTS],
    table: Rows<Segment>,
    pub(crate) reserve: Reserve,
    /// A transaction was refused since the last look; and one that takes out more than it puts in.
    short: AtomicBool,
    urgent: AtomicBool,
    /// Bytes of versions that were superseded, and that may still be read, at the last checkpoint.
    held: AtomicU64,
    /// Segments that were never used: the first one in the upper half, how many in the lower.
    fresh: AtomicU64,
    /// Fewer are free than there should be ahead of those who will ask.
    scarce: AtomicBool,
    /// Held while the file gets longer or shorter, and by no thread that finds room. Before `state`.
    growth: pmem::sync::Mutex<Growth>,
    state: pmem::sync::Mutex<State>,
    #[cfg(test)]
    made: growth::Made,
}

struct Extent {
    offset: u64,
    first: u32,
    count: AtomicU64,
}

pub(crate) struct Segment {
    /// The table's word.
    used: AtomicU64,
    /// Bytes of versions that are still needed, rounded as words are.
    live: AtomicU64,
}

crate::raw::zeros_are!(Segment { used, live });

struct State {
    /// A word for each segment.
    table: Region,
    count: u32,
    free: BTreeSet<u32>,
    /// How often the file has grown.
    growths: u64,
    /// The disk said no; until something is freed.
    full: bool,
}

/// Where space stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) segments: u64,
    pub(crate) free: u64,
    pub(crate) nodes: u64,
    pub(crate) live: u64,
}

/// Segments in a row that were free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    pub(crate) first: u32,
    /// A need that could have had them, and leaves what it must: the one by which most may go on in them.
    pub(crate) level: Need,
}

impl Space {
    /// Takes the regions over.
    pub(crate) fn new(pool: &Pool, options: &Options, data: Region, table: Region) -> Result<Self> {
        let segment_bytes = options.segment;
        let state = State { table, count: 0, free: BTreeSet::new(), growths: 0, full: false };
        let space = Self {
            pool: pool.clone(),
            segment_bytes,
            extents: std::array::from_fn(|_| OnceLock::new()),
            table: Rows::new(),
            reserve: Reserve::of(options.durability),
            short: false.into(),
            urgent: false.into(),
            held: 0.into(),
            fresh: 0.into(),
            scarce: false.into(),
            growth: pmem::sync::Mutex::new(Growth::new(data)),
            state: pmem::sync::Mutex::new(state),
            #[cfg(test)]
            made: growth::Made::default(),
        };
        let growth = space.growth.lock();
        let mut state = space.state.lock();
        state.count = space.note_extents(&growth);
        for number in 0..state.count {
            let word = state.table_word(number)?;
            let Some(used) = Use::from_word(word) else {
                let why = format!("the table says {word:#x} about segment {number}");
                let (area, at) = state.table_place(number);
                let offset = state.table.areas().get(area).map_or(0, |area| area.offset() + at);
                return Err(Error::Damaged { what: "table of segments", offset, why });
            };
            space.segment(number).used.store(used.to_word(), Relaxed);
        }
        drop(state);
        drop(growth);
        Ok(space)
    }

    #[inline]
    fn segment(&self, number: u32) -> &Segment {
        self.table.get(number)
    }

    fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.extents.iter().map_while(OnceLock::get)
    }

    /// First byte of a segment.
    pub(crate) fn offset(&self, number: u32) -> u64 {
        let extent = self.extents().take_while(|e| e.first <= number).last();
        extent.map_or(0, |e| e.offset + u64::from(number - e.first) * self.segment_bytes)
    }

    /// The segment of a byte.
    #[inline]
    pub(crate) fn number(&self, offset: u64) -> Option<u32> {
        let extent = self
            .extents()
            .find(|e| offset >= e.offset && offset < e.offset + e.count.load(Acquire) * self.segment_bytes)?;
        Some(extent.first + ((offset - extent.offset) / self.segment_bytes) as u32)
    }

    pub(crate) fn used(&self, number: u32) -> Use {
        Use::from_word(self.segment(number).used.load(Acquire)).unwrap_or(Use::Free)
    }

    /// How many segments the one use takes that begins here.
    pub(crate) fn run(&self, first: u32) -> u64 {
        let base = self.offset(first);
        let goes_on = |n: &u32| {
            self.used(*n) == Use::More && self.offset(*n) == base + u64::from(*n - first) * self.segment_bytes
        };
        1 + (first + 1..self.count()).take_while(goes_on).count() as u64
    }

    pub(crate) fn count(&self) -> u32 {
        self.state.lock().count
    }

    /// A key may become the fence of a leaf, whose node must fit in a segment.
    #[inline]
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        let max = (self.segment_bytes - NODE) / NODE * NODE;
        if key.len() as u64 <= max {
            return Ok(());
        }
        Err(Error::Limit { what: "bytes of a key, in segments of this length", found: key.len() as u64, max })
    }

    // ---- live bytes -------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn add_live(&self, number: u32, bytes: u64) {
        self.segment(number).live.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn sub_live(&self, word: Word) {
        if let Some(number) = self.number(word.offset()) {
            let before = self.segment(number).live.fetch_sub(word.space(), Relaxed);
            debug_assert!(before >= word.space(), "segment {number}: {before} live, {} freed", word.space());
        }
    }

    pub(crate) fn live(&self, number: u32) -> u64 {
        self.segment(number).live.load(Relaxed)
    }

    /// Bytes of versions that were superseded, and that may still be read, as of the last checkpoint.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    pub(crate) fn set_held(&self, bytes: u64) {
        self.held.store(bytes, Relaxed);
    }

    /// Forgets what is live.
    pub(crate) fn clear_live(&self) {
        (0..self.count()).for_each(|number| self.segment(number).live.store(0, Relaxed));
    }

    pub(crate) fn usage(&self) -> Usage {
        let (count, free) = {
            let state = self.state.lock();
            (state.count, state.free.len() as u64)
        };
        let all = || 0..count;
        Usage {
            segments: u64::from(count),
            free,
            nodes: all().filter(|n| self.used(*n) == Use::Nodes).count() as u64,
            live: all().map(|n| self.live(n)).sum(),
        }
    }

    // ---- taken and given back ---------------------------------------------------------------------------------

    /// `count` segments in a row for `what`. What the table says of them is not flushed: see [`Self::flush_words`].
    pub(crate) fn take(&self, what: Use, count: u32, need: Need) -> Result<Segments> {
        let mut refused = None;
        let mut state = self.state.lock();
        loop {
            // Each leaves something to those behind it.
            let kept = self.reserve.kept(need, count, state.count, self.segment_bytes);
            let found = self.find(&state, count);
            match found.filter(|_| state.free.len() >= count as usize + kept) {
                Some(first) => {
                    let leaves = |n: &&Need| {
                        state.free.len()
                            >= count as usize + self.reserve.kept(**n, count, state.count, self.segment_bytes)
                    };
                    let level = [Need::Data, Need::Replace].iter().find(leaves).map_or(need, |level| need.max(*level));
                    self.give(&mut state, first, count, what)?;
                    self.note_scarce(&state);
                    return Ok(Segments { first, level });
                }
                None if refused.is_some() => break,
                None => {}
            }
            let there = if found.is_some() { state.free.len() } else { 0 };
            let least = (count as usize + kept).saturating_sub(there).max(1) as u32;
            let seen = state.growths;
            // Those who find room do not wait for it.
            drop(state);
            refused = self.grow(least, seen).err();
            state = self.state.lock();
        }
        self.short.store(true, Relaxed);
        if need.is_urgent() {
            self.urgent.store(true, Relaxed);
        }
        if let Some(error) = refused.filter(|error| !matches!(error, Error::Full { .. })) {
            return Err(error);
        }
        let has_log = |number| matches!(self.used(number), Use::Log { .. });
        debug_assert!(
            need != Need::Checkpoint || !(0..state.count).any(has_log),
            "a checkpoint has no nodes: see `reserve`; {:?}",
            self.reserve
        );
        Err(self.no_room(&state, u64::from(count), need))
    }

    /// Whether so much is free as this need leaves.
    pub(crate) fn is_whole(&self, need: Need) -> bool {
        self.is_missing(&self.state.lock(), need) == 0
    }

    /// Segments that are missing to that, if one more is filled.
    fn is_missing(&self, state: &State, need: Need) -> usize {
        self.reserve.kept(need, 1, state.count, self.segment_bytes).saturating_sub(state.free.len())
    }

    /// The same, if need be with a longer file.
    #[cold]
    pub(crate) fn make_whole(&self, need: Need) -> bool {
        loop {
            let (missing, seen) = {
                let state = self.state.lock();
                (self.is_missing(&state, need), state.growths)
            };
            if missing == 0 {
                return true;
            }
            if self.grow(missing as u32, seen).is_err() {
                return false;
            }
        }
    }

    fn give(&self, state: &mut State, first: u32, count: u32, what: Use) -> Result<()> {
        for number in first..first + count {
            state.free.remove(&number);
            self.name(state, number, if number == first { what } else { Use::More })?;
        }
        // What an earlier, longer use has left must not be taken for a part of this one after a restart: it would stay taken.
        let next = first + count;
        if state.free.contains(&next) && state.table_word(next)? == Use::More.to_word() {
            state.set_table_word(next, Use::Free.to_word())?;
        }
        Ok(())
    }

    /// The lowest `count` free ones in a row: low ones first, so that the end of the file becomes free.
    fn find(&self, state: &State, count: u32) -> Option<u32> {
        let mut start = *state.free.first()?;
        let mut last = None;
        for &number in &state.free {
            // No run goes from one extent to the next.
            if last.is_some_and(|last| number != last + 1) || self.extents().any(|extent| extent.first == number) {
                start = number;
            }
            if number + 1 - start == count {
                return Some(start);
            }
            last = Some(number);
        }
        None
    }

    /// Says in the table what a segment is used for.
    fn name(&self, state: &mut State, number: u32, what: Use) -> Result<()> {
        self.segment(number).used.store(what.to_word(), Release);
        state.set_table_word(number, what.to_word())
    }

    /// Whether a transaction was refused lately.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Relaxed)
    }

    /// Whether a transaction was refused since the last call.
    pub(crate) fn take_short(&self) -> bool {
        self.short.swap(false, Relaxed)
    }

    /// Whether a transaction was refused since the last call that takes out more than it puts in.
    pub(crate) fn take_urgent(&self) -> bool {
        self.urgent.swap(false, Relaxed)
    }

    /// Whether so many bytes of the need that takes most would find room if what is live were packed without a gap.
    pub(crate) fn could_hold(&self, bytes: u64) -> bool {
        let usage = self.usage();
        let kept = reserve::kept(Need::Urgent, usage.segments as u32);
        let taken = usage.live.div_ceil(self.segment_bytes) + usage.nodes + kept;
        bytes <= usage.segments.saturating_sub(taken) * self.segment_bytes
    }

    /// Where so many segments in a row would be taken.
    pub(crate) fn lowest(&self, count: u32) -> Option<u32> {
        self.find(&self.state.lock(), count)
    }

    /// Others may have freed space on the disk: the next thread that needs some asks again.
    pub(crate) fn ask_again(&self) {
        self.state.lock().full = false;
    }

    /// The caller proves that nothing needs what is in it: no reader, no checkpoint, no log.
    pub(crate) fn give_back(&self, number: u32) {
        let mut state = self.state.lock();
        // The table keeps the old word: it is before its log's mark, or no node of it is named.
        self.segment(number).used.store(Use::Free.to_word(), Release);
        self.segment(number).live.store(0, Relaxed);
        state.free.insert(number);
        state.full = false;
    }

    fn no_room(&self, state: &State, segments: u64, need: Need) -> Error {
        Error::Full {
            path: self.pool.path().to_owned(),
            wanted: segments * self.segment_bytes,
            free: state.free.len() as u64 * self.segment_bytes,
            size: self.pool.size(),
            deletes: need.is_urgent() || need == Need::Rescue,
            overwrites: need == Need::Replace,
            snapshot: None,
        }
    }

    /// The table says from now on that nothing is in the segment, once it is flushed.
    pub(crate) fn clear_word(&self, number: u32) -> Result<()> {
        self.state.lock().set_table_word(number, Use::Free.to_word())
    }

    /// Flushes what the table says of segments in a row. The thread that drains flushes, whichever took them.
    #[track_caller]
    pub(crate) fn flush_words(&self, first: u32, count: u32) -> Result<()> {
        let state = self.state.lock();
        for number in first..first + count {
            let (area, at) = state.table_place(number);
            if let Some(area) = state.table.areas().get(area) {
                area.flush(at, WORD)?;
            }
        }
        Ok(())
    }

    /// Flushes the table: what recovery read of it may have been in a cache alone.
    pub(crate) fn flush_table(&self) -> Result<()> {
        let state = self.state.lock();
        for area in state.table.areas() {
            area.flush(0, area.len())?;
        }
        Ok(())
    }

    /// Called once the uses are known: whatever is not used can be taken.
    pub(crate) fn set_free(&self, is_free: impl Fn(u32) -> bool) {
        let mut state = self.state.lock();
        for number in (0..state.count).filter(|number| is_free(*number)) {
            self.segment(number).used.store(Use::Free.to_word(), Relaxed);
            state.free.insert(number);
        }
    }
}

impl State {
    fn table_len(&self) -> u64 {
        self.table.areas().iter().map(Area::len).sum()
    }

    /// Extent of the table and place in it.
    fn table_place(&self, number: u32) -> (usize, u64) {
        let mut at = u64::from(number) * 8;
        for (index, area) in self.table.areas().iter().enumerate() {
            if at < area.len() {
                return (index, at);
            }
            at -= area.len();
        }
        (self.table.areas().len(), at)
    }

    fn table_word(&self, number: u32) -> Result<u64> {
        let (area, at) = self.table_place(number);
        match self.table.areas().get(area) {
            Some(area) => Ok(*area.get::<u64>(at)?),
            None => Ok(0), // the data grew first
        }
    }

    fn set_table_word(&mut self, number: u32, word: u64) -> Result<()> {
        let (area, at) = self.table_place(number);
        let Some(area) = self.table.areas_mut().get_mut(area) else {
            return Err(Error::Limit { what: "segments in the table", found: u64::from(number), max: at / 8 });
        };
        area.put(at, &word)?;
        Ok(())
    }
}
