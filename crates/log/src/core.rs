//! What a log's handles share: reserve, complete, force.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use pmem::sync::{CachePadded, OwnMutex, switch_point};
use pmem::{ChecksumKey, Domain, LINE, Pool, Region};

use crate::Lsn;
use crate::at::At;
use crate::error::{Error, Result};
use crate::failpoints::{Failpoints, Step};
use crate::front::{EVERY, Front, Parts, Watermark};
use crate::options::{Options, REGION_KIND, WhenFull};
use crate::raw::{self, Claim};
use crate::record::{Header, Kind, RECORD_HEADER};
use crate::recovery::{Recovered, recover};
use crate::replicate::Leading;
use crate::space::{Geometry, NoPlace, Place, Space};
use crate::superline::{SEGMENT_MAX, Superline};
use crate::wait::{Wait, Waiting};
use crate::window::{Claimed, SLOTS, State, Window};

#[cfg(feature = "replication")]
mod lead;

/// Cells for what threads know to be durable; more threads share them.
const CELLS: usize = 64;

pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) key: ChecksumKey,
    pub(crate) epoch: u32,
    pub(crate) options: Options,
    pub(crate) window: Window,
    space: CachePadded<OwnMutex<Space>>,
    /// Through which record each thread knows all to be durable. It says so under the lock when it reserves next: on a line that it has to fetch anyway. Threads that share
    /// a cell tell less of each other, and never too much.
    known: Box<[CachePadded<AtomicU64>]>,
    /// Through which record forces by the policy have leaders.
    led: CachePadded<AtomicU64>,
    /// Records reserved and not durable, at most.
    pub(crate) bound: u64,
    /// An append of so many bytes or more goes past the cache, on lines of its own: a forced one; and a long one that nobody forces yet, since to fetch lines that are
    /// overwritten whole takes longer than to wait until they are out. In a file the sync takes all, and bytes count more than lines.
    streams_from: u64,
    read_only: bool,
    pub(crate) waiting: Waiting,
    /// None without one: a log in format 1, or with other copies.
    watermark: Option<Watermark>,
    /// The log has other copies, and this is their leader.
    pub(crate) leading: Option<Leading>,
    pub(crate) failpoints: Failpoints,
}

impl Core {
    // ---- made and opened --------------------------------------------------------------------------------------

    pub(crate) fn create(pool: &Pool, name: &str, options: &Options) -> Result<Self> {
        let head = At { lsn: 1, position: 0, epoch: 1 };
        Self::create_from(pool, name, options, head)
    }

    /// A new log whose first record has another number than 1.
    pub(crate) fn create_from(pool: &Pool, name: &str, options: &Options, head: At) -> Result<Self> {
        let (segment_bytes, segments) = options.geometry()?;
        let front = options.front();
        let len = front.bytes() + segment_bytes * segments;
        let region = match pool.add_region_as(name, len, REGION_KIND, 0) {
            Err(error @ pmem::Error::RegionExists { .. }) => {
                // A crash may have cut its making short.
                if !is_unfinished(pool, name, len)? {
                    return Err(error.into());
                }
                pool.region(name)?
            }
            other => other?,
        };
        let Parts { superline: area, region, .. } = front.split(region)?;
        let new = Superline::new(front, pool.generation(), segment_bytes, segments);
        let superline = Superline { epoch: head.epoch, head_epoch: head.epoch, head_lsn: head.lsn, closed: 0, ..new };
        let offset = area.offset();
        let cell = front.create(area, &superline)?;
        let geometry = Geometry::new(segment_bytes, superline.circle(), &region);
        let failpoints = failpoints(options);
        let space = Space::new(pool, region, geometry, cell, head.lsn, head.position, [].into(), failpoints);
        Ok(Self::assemble(pool, offset, options, space))
    }

    pub(crate) fn open(pool: &Pool, name: &str, options: &Options) -> Result<(Self, Recovered)> {
        let region = pool.region(name)?;
        let (kind, first) = (region.kind(), region.areas().first().map_or(0, pmem::Area::offset));
        let front = Front::of(&region);
        if kind != REGION_KIND.code() || region.areas()[0].len() <= front.bytes() {
            let why = "the directory says it is something else";
            return Err(Error::NotALog { region: name.to_owned(), offset: first, why });
        }
        if looks_unfinished(&region)? {
            let why = "it has neither a superline nor a record: making it was cut short, make it again";
            return Err(Error::NotALog { region: name.to_owned(), offset: first, why });
        }
        let Parts { superline: area, region, .. } = front.split(region)?;
        let (cell, other_slot) = front.open::<Superline>(area)?;
        let superline = cell.get();
        let room = region.areas().iter().map(|a| a.len() / superline.segment_bytes.max(1)).sum::<u64>();
        superline.validate(front, first, name, room.saturating_mul(superline.segment_bytes))?;
        if superline.is_copy() {
            return Err(Error::IsACopy { region: name.to_owned() });
        }
        let geometry = Geometry::new(superline.segment_bytes, superline.circle(), &region);
        let failpoints = failpoints(options);
        let key = key(pool, first, &superline);
        let watermark = Watermark::new(front, first);
        let marked = watermark.map_or(Ok(0), |there| there.read(pool, &key, superline.head_lsn))?;
        let (space, recovered) = recover(pool, region, geometry, (cell, other_slot), key, marked, failpoints)?;
        Ok((Self::assemble(pool, first, options, space), recovered))
    }

    fn assemble(pool: &Pool, offset: u64, options: &Options, mut space: Space) -> Self {
        let forced = space.next_lsn - 1;
        let file = pool.domain() == Domain::File;
        let bound = if options.frequency == 1 { SLOTS } else { (options.frequency * options.threads).min(SLOTS) };
        let watermark = Watermark::new(space.superline.front(), offset).filter(|_| !pool.is_read_only());
        if watermark.is_some() {
            // It may say less, so it is written with the first record.
            space.marker = (forced + 1).saturating_sub(EVERY).max(1);
        }
        Self {
            watermark,
            known: (0..CELLS).map(|_| CachePadded(AtomicU64::new(forced))).collect(),
            key: key(pool, offset, &space.superline),
            epoch: space.superline.epoch,
            window: Window::new(forced),
            led: CachePadded(AtomicU64::new(forced)),
            bound,
            streams_from: match options.frequency {
                _ if file => u64::MAX,
                1 => 0,
                _ => options.streams_from(),
            },
            read_only: pool.is_read_only(),
            waiting: Waiting::new(file),
            leading: None,
            failpoints: space.failpoints,
            options: options.clone(),
            pool: pool.clone(),
            space: CachePadded(OwnMutex::new(space)),
        }
    }

    // ---- reserve ----------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn reserve(&self, len: u64, to_line: bool) -> Result<Place> {
        self.reserve_or(len, to_line, self.options.when_full, self.options.every())
    }

    #[inline]
    pub(crate) fn reserve_or(&self, len: u64, to_line: bool, when_full: WhenFull, every: u64) -> Result<Place> {
        if self.read_only {
            return Err(pmem::Error::ReadOnly.into());
        }
        if len > SEGMENT_MAX {
            // Where it would end need not be a number.
            return Err(Error::TooLong { len, max: self.space().geometry.payload_max() });
        }
        let mut wait = Wait::new(&self.waiting);
        loop {
            let mut known = self.known().load(Acquire);
            if self.streams_from > 0 {
                known = known.max(self.window.told()); // forces tell each time, also those that acknowledgements of copies end
            }
            let mut space = self.space();
            let next = space.next_lsn;
            space.forced = space.forced.max(known);
            if next > space.forced + self.bound {
                space.forced = self.window.follow(space.forced);
            }
            if next > space.forced + self.bound {
                drop(space);
                // Earlier records first; how many, bounds what a crash can take.
                self.force_through(next - self.bound)?;
                continue;
            }
            match space.place(len, to_line, every) {
                Ok((place, needed)) => {
                    if !to_line {
                        let mark = if place.marks { self.watermark_of(&place) } else { 0 };
                        self.window.reserve(place.lsn, place.offset, needed, mark);
                    }
                    return Ok(place);
                }
                Err(NoPlace::Failed(error)) => return Err(error),
                Err(NoPlace::Head(head)) => {
                    let full = space.full();
                    drop(space);
                    self.spread_head(head, full)?;
                }
                Err(NoPlace::Full(error)) => {
                    let room = space.room;
                    drop(space);
                    self.wait_for_room(&mut wait, when_full, room, error)?;
                }
            }
        }
    }

    /// Makes sure that every live copy knows where the log begins now.
    #[cold]
    fn spread_head(&self, head: At, full: Error) -> Result<()> {
        let Some(leading) = &self.leading else { return Err(full) };
        if !leading.all_know_head(head.position) {
            leading.post_head(head);
        }
        if self.pool.domain() != Domain::Simulated {
            leading.await_head(self, head)?;
        } else if !leading.all_know_head(head.position) {
            return Err(full); // time does not pass here
        }
        let mut space = self.space();
        if head.position > space.superline.head_position && !self.failpoints.skips(Step::HeadFirst) {
            space.set_head((head.lsn, head.position, head.epoch))?;
        }
        space.known_head = space.known_head.max(Some(head.position));
        Ok(())
    }

    #[cold]
    fn wait_for_room(&self, wait: &mut Wait<'_>, when_full: WhenFull, room: u64, full: Error) -> Result<()> {
        let WhenFull::Wait(limit) = when_full else { return Err(full) };
        self.pool.check_usable()?;
        let is_there = || self.space().room != room;
        if !is_there() && wait.once(limit, is_there).is_err() {
            return Err(full);
        }
        Ok(())
    }

    /// There may be room now where there was none. The space was locked for that, and is not any more: who sleeps over it was seen, or sees.
    pub(crate) fn made_room(&self) {
        if matches!(self.options.when_full, WhenFull::Wait(_)) {
            self.waiting.wake();
        }
    }

    // ---- complete ---------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn header(&self, place: &Place, kind: Kind, len: u64, to_line: bool) -> Header {
        let (lsn, faulty) = (place.lsn, self.failpoints.skips(Step::HonestWatermark));
        let forced = if faulty { lsn - 1 } else { place.forced };
        // A record is reserved when all but the last of a window's size are known to be durable, so the distance is less than that.
        let forced_back = (lsn - 1 - forced) as u16;
        Header { lsn, forced_back, epoch: self.epoch, kind, len: len as u32, to_line }
    }

    /// Puts the header before a payload that stands there, or is nobody's.
    pub(crate) fn complete(&self, place: Place, kind: Kind, payload: &[u8], len: u64) -> Result<Header> {
        let sum = self.key.sum(if kind == Kind::Data { payload } else { &[] });
        let header = self.header(&place, kind, len, false);
        raw::bytes_mut(Claim::Reserved, self, &self.pool, place.offset, RECORD_HEADER)?
            .copy_from_slice(&header.encode(&self.key, sum));
        self.window.set(place.lsn, State::Complete);
        self.completed(place.lsn);
        Ok(header)
    }

    /// Whoever waits for this record, the first that is not durable, can flush it.
    #[inline]
    fn completed(&self, lsn: u64) {
        if self.waiting.any() && self.window.forced() + 1 == lsn {
            self.waiting.wake();
        }
    }

    /// Takes note of what has become persistent; returns through where everything is durable.
    #[inline]
    pub(crate) fn advance(&self, skip_gaps: Option<u64>) -> u64 {
        let forced = self.window.advance(skip_gaps);
        self.known().store(forced, Release);
        forced
    }

    /// These are persistent: wakes those who wait for that.
    pub(crate) fn persisted(&self, claimed: &Claimed) {
        self.window.persisted(claimed);
        self.waiting.wake();
    }

    /// Through which record this thread knows everything to be durable.
    #[inline]
    fn known(&self) -> &AtomicU64 {
        &self.known[pmem::thread_number() % CELLS].0
    }

    /// Reserve, copy, complete and, by the policy, force.
    ///
    /// Past the cache, alone: one locked instruction, which takes the log's lock; none behind the drain. Written by every append, and by all threads: the lock's line and that of
    /// the record's mark. Once in 32 appends the line that tells what is durable; once in 16 the watermark, on media.
    #[inline]
    pub(crate) fn append(&self, payload: &[u8]) -> Result<u64> {
        let len = payload.len() as u64;
        if len >= self.streams_from {
            let place = self.reserve(len, true)?;
            self.window.prepare(place.lsn);
            let header = self.header(&place, Kind::Data, len, true);
            raw::store_checksummed(Claim::Reserved, &self.pool, place.offset, &self.key, payload, |sum| {
                header.encode(&self.key, sum)
            })?;
            if place.marks {
                self.write_watermark(self.watermark_of(&place))?;
            }
            if self.failpoints.skips(Step::PersistentLate) {
                self.window.set(place.lsn, State::Persistent);
            }
            if !self.failpoints.skips(Step::ForceBarrier) {
                self.pool.drain()?;
            }
            let forced = self.window.persist(place.lsn, place.forced);
            self.known().store(if self.failpoints.skips(Step::HonestCell) { place.lsn } else { forced }, Release);
            self.waiting.wake();
            if forced < place.lsn {
                self.force(place.lsn)?;
            }
            return Ok(place.lsn);
        }
        let sum = self.key.sum(payload); // before the place is reserved: brings the payload into the cache, too
        let place = self.reserve(len, false)?;
        let header = self.header(&place, Kind::Data, len, false).encode(&self.key, sum);
        let bytes = raw::bytes_mut(Claim::Reserved, self, &self.pool, place.offset, header.len() as u64 + len)?;
        let (to_header, to_payload) = bytes.split_at_mut(header.len());
        to_header.copy_from_slice(&header);
        to_payload.copy_from_slice(payload);
        self.window.set(place.lsn, State::Complete);
        if self.options.frequency > 1 {
            self.completed(place.lsn); // a force may be for another to do
        }
        self.force(place.lsn)?;
        Ok(place.lsn)
    }

    // ---- force ------------------------------------------------------------------------------------------------

    /// By the policy: with a frequency of one, now; else whoever completes a record a frequency's worth behind those that have a leader leads the next.
    #[inline]
    pub(crate) fn force(&self, lsn: u64) -> Result<()> {
        let every = self.options.frequency;
        if every == 1 {
            return self.force_through(lsn);
        }
        loop {
            let led = self.led.0.load(Acquire).max(self.window.forced());
            if lsn < led + every {
                return Ok(());
            }
            switch_point();
            let before = self.led.0.load(Relaxed);
            if before <= led && self.led.0.compare_exchange(before, led + every, AcqRel, Relaxed).is_ok() {
                self.force_through(led + every)?;
            }
        }
    }

    /// Everything through `lsn` is durable when this returns.
    #[inline]
    pub(crate) fn force_through(&self, lsn: u64) -> Result<()> {
        let gaps = self.failpoints.skips(Step::InOrder).then_some(lsn);
        if self.advance(gaps) >= lsn {
            return Ok(());
        }
        self.force_within(lsn, self.options.stall_timeout)
    }

    /// Flushes what is complete up to `lsn` and beyond, and waits for what others reserved, or flush.
    #[inline(never)]
    pub(crate) fn force_within(&self, lsn: u64, timeout: Duration) -> Result<()> {
        if let Some(leading) = &self.leading {
            return leading.force(self, lsn, timeout);
        }
        let mut wait = Wait::new(&self.waiting);
        loop {
            let forced = self.advance(None);
            if forced >= lsn {
                return Ok(());
            }
            // Nobody but its holder can do anything about a reserved record, so nothing shared is touched while it is.
            let next = self.window.state(forced + 1);
            let claimed = if next == Some(State::Complete) { self.window.claim() } else { None };
            let Some(claimed) = claimed else {
                // Since the look at what is durable somebody may have gone on, with nobody left to wait for.
                let now = self.window.state(forced + 1);
                if self.window.forced() > forced || now == Some(State::Persistent) || now != next {
                    continue;
                }
                self.pool.check_usable()?; // or what is waited for may never come
                let is_there = || self.window.forced() > forced || self.window.state(forced + 1) != next;
                match wait.once(timeout, is_there) {
                    Ok(()) => {}
                    Err(waited) => {
                        if self.window.is_held(forced + 1) {
                            return Err(Error::Stalled { lsn: Lsn(forced + 1), waited });
                        }
                        wait = Wait::new(&self.waiting); // it goes on, if slowly: somebody's sync takes long
                    }
                }
                continue;
            };
            if self.failpoints.skips(Step::MarkLate) {
                self.window.persisted(&claimed);
            }
            // Of a failed one those learn at once who wait for these records.
            self.persist(&claimed).inspect_err(|_| self.waiting.wake())?;
            self.persisted(&claimed);
            wait = Wait::new(&self.waiting);
        }
    }

    fn persist(&self, claimed: &Claimed) -> Result<()> {
        for (offset, len) in self.window.ranges(claimed) {
            if !self.failpoints.skips(Step::FlushOthers) {
                self.pool.flush(offset, len)?;
            }
        }
        if let Some(mark) = self.window.mark(claimed) {
            self.write_watermark(mark)?;
        }
        if !self.failpoints.skips(Step::ForceBarrier) {
            self.pool.drain()?;
        }
        Ok(())
    }

    /// What the watermark says that is written for this record.
    fn watermark_of(&self, place: &Place) -> u64 {
        if self.failpoints.skips(Step::HonestMark) { place.lsn } else { place.forced }
    }

    /// Says on media that everything through `forced` is durable: in front of a barrier, which makes it persistent too, so that it is never waited for alone.
    #[cold]
    fn write_watermark(&self, forced: u64) -> Result<()> {
        switch_point();
        self.watermark.as_ref().map_or(Ok(()), |there| there.write(&self.pool, &self.key, forced))
    }

    /// The log's one lock that is not of a moment's step.
    #[inline]
    pub(crate) fn space(&self) -> impl std::ops::DerefMut<Target = Space> + '_ {
        self.space.0.lock()
    }

    pub(crate) fn into_space(self) -> (Pool, Space) {
        (self.pool, self.space.0.into_inner())
    }

    /// The last record that was reserved.
    pub(crate) fn last(&self) -> u64 {
        self.space().next_lsn - 1
    }
}

/// True if this is the region of a log that was never made to the end: no superline verifies, and there never was a first record.
pub(crate) fn is_unfinished(pool: &Pool, name: &str, len: u64) -> Result<bool> {
    let region = pool.region(name)?;
    Ok(region.kind() == REGION_KIND.code() && region.len() >= len && looks_unfinished(&region)?)
}

/// The superline's second slot is written when the first one is whole, and the first record when both are: so a page that is lost does not look like this.
fn looks_unfinished(region: &Region) -> Result<bool> {
    let (first, front) = (&region.areas()[0], Front::of(region));
    if first.len() < front.bytes() + LINE || front.look(first).is_ok() {
        return Ok(false);
    }
    let (second, slot) = front.second_slot();
    let record = front.bytes();
    for (at, len) in [(second, slot), (record, LINE)] {
        first.probe("front of a log", at, len)?;
        if first.bytes(at, len as usize)?.iter().any(|&b| b != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn failpoints(_options: &Options) -> Failpoints {
    #[cfg(any(test, feature = "failpoints"))]
    return Failpoints(_options.without);
    #[cfg(not(any(test, feature = "failpoints")))]
    Failpoints()
}

/// The log's own key: another log in its place, or a copy of a record elsewhere, has another.
pub(crate) fn key(pool: &Pool, offset: u64, superline: &Superline) -> ChecksumKey {
    pool.checksum_key(offset).derived(superline.id)
}
