//! What a log's handles share: reserve, complete, force.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use pmem::sync::{CachePadded, switch_point};
use pmem::{ChecksumKey, Domain, Pool};

use crate::Lsn;
use crate::at::At;
use crate::error::{Error, Result};
use crate::failpoints::Step;
use crate::front::{EVERY, Parts, REGION_KIND, Watermark};
use crate::image::Image;
use crate::options::{Options, WhenFull};
use crate::raw::{self, Claim};
use crate::record::Kind;
use crate::recovery::{Recovered, recover};
use crate::replicate::Leading;
use crate::space::{Geometry, NoRoom, Reserved, Space};
use crate::superline::{SEGMENT_MAX, Superline, front_of, is_unfinished, looks_unfinished};
use crate::wait::Wait;
use crate::window::{SLOTS, State};

#[cfg(feature = "replication")]
mod lead;

pub(crate) struct Core {
    pub(crate) image: Image,
    pub(crate) options: Options,
    /// Through which record forces by the policy have leaders.
    led: CachePadded<AtomicU64>,
    /// Records reserved and not durable, at most.
    pub(crate) bound: u64,
    /// An append of so many bytes or more goes past the cache, on lines of its own: a forced one; and a long one that no thread forces yet, since to fetch
    /// lines that are overwritten whole takes longer than to wait until they are out. In a file the sync takes all, and bytes count more than lines.
    streams_from: u64,
    read_only: bool,
    /// The log has other replicas, and this is their leader.
    pub(crate) leading: Option<Leading>,
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
        let failpoints = options.failpoints();
        let space = Space::new(pool, region, geometry, cell, head.lsn, head.position, [].into(), failpoints);
        Ok(Self::assemble(pool, offset, options, space))
    }

    pub(crate) fn open(pool: &Pool, name: &str, options: &Options) -> Result<(Self, Recovered)> {
        let region = pool.region(name)?;
        let (kind, first) = (region.kind(), region.areas().first().map_or(0, pmem::Area::offset));
        let front = front_of(&region);
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
        if superline.is_replica() {
            return Err(Error::IsReplica { region: name.to_owned() });
        }
        let geometry = Geometry::new(superline.segment_bytes, superline.circle(), &region);
        let failpoints = options.failpoints();
        let key = key(pool, first, &superline);
        let watermark = Watermark::new(front, first);
        let marked = watermark.map_or(Ok(0), |there| there.read(pool, &key, superline.head_lsn))?;
        let (space, recovered) = recover(pool, region, geometry, (cell, other_slot), key, marked, failpoints)?;
        Ok((Self::assemble(pool, first, options, space), recovered))
    }

    fn assemble(pool: &Pool, offset: u64, options: &Options, mut space: Space) -> Self {
        let watermark = Watermark::new(space.superline.front(), offset).filter(|_| !pool.is_read_only());
        if watermark.is_some() {
            // It may say less, so it is written with the first record.
            space.marker = space.next_lsn.saturating_sub(EVERY).max(1);
        }
        let key = key(pool, offset, &space.superline);
        Self::of(Image::new(pool, key, watermark, space, options.waits_for_room()), options)
    }

    fn of(image: Image, options: &Options) -> Self {
        let bound = if options.frequency == 1 { SLOTS } else { (options.frequency * options.threads).min(SLOTS) };
        Self {
            led: CachePadded(AtomicU64::new(image.window.forced())),
            bound,
            streams_from: match options.frequency {
                _ if image.pool.domain() == Domain::File => u64::MAX,
                1 => 0,
                _ => options.streams_from(),
            },
            read_only: image.pool.is_read_only(),
            leading: None,
            options: options.clone(),
            image,
        }
    }

    // ---- reserve ----------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn reserve(&self, len: u64, to_line: bool) -> Result<Reserved> {
        self.reserve_or(len, to_line, self.options.when_full, self.options.every())
    }

    #[inline]
    fn reserve_or(&self, len: u64, to_line: bool, when_full: WhenFull, every: u64) -> Result<Reserved> {
        if self.read_only {
            return Err(pmem::Error::ReadOnly.into());
        }
        if len > SEGMENT_MAX {
            // Where it would end need not be a number.
            return Err(Error::TooLong { len, max: self.image.space().geometry.payload_max() });
        }
        let mut wait = Wait::new(&self.image.waiting);
        loop {
            let mut known = self.image.known().load(Acquire);
            if self.streams_from > 0 {
                known = known.max(self.image.window.told()); // forces tell each time, also those that acknowledgements of replicas end
            }
            let mut space = self.image.space();
            let next = space.next_lsn;
            space.forced = space.forced.max(known);
            if next > space.forced + self.bound {
                space.forced = self.image.window.follow(space.forced);
            }
            if next > space.forced + self.bound {
                drop(space);
                // Earlier records first; how many, bounds what a crash can take.
                self.force_through(next - self.bound)?;
                continue;
            }
            match space.reserve(len, to_line, every) {
                Ok((reserved, needed)) => {
                    if !to_line {
                        let mark = if reserved.marks { self.image.watermark_of(&reserved) } else { 0 };
                        self.image.window.reserve(reserved.lsn, reserved.offset, needed, mark);
                    }
                    return Ok(reserved);
                }
                Err(NoRoom::Failed(error)) => return Err(error),
                Err(NoRoom::Head(head)) => {
                    let full = space.full();
                    drop(space);
                    self.spread_head(head, full)?;
                }
                Err(NoRoom::Full(error)) => {
                    let room = space.room;
                    drop(space);
                    self.wait_for_room(&mut wait, when_full, room, error)?;
                }
            }
        }
    }

    /// Makes sure that every live replica knows where the log begins now.
    #[cold]
    fn spread_head(&self, head: At, full: Error) -> Result<()> {
        let Some(leading) = &self.leading else { return Err(full) };
        if !leading.all_know_head(head.position) {
            leading.post_head(head);
        }
        if self.image.pool.domain() != Domain::Simulated {
            leading.await_head(&self.image, head)?;
        } else if !leading.all_know_head(head.position) {
            return Err(full); // time does not pass here
        }
        let mut space = self.image.space();
        if head.position > space.superline.head_position && !self.image.failpoints.skips(Step::HeadFirst) {
            space.set_head((head.lsn, head.position, head.epoch))?;
        }
        space.known_head = space.known_head.max(Some(head.position));
        Ok(())
    }

    #[cold]
    fn wait_for_room(&self, wait: &mut Wait<'_>, when_full: WhenFull, room: u64, full: Error) -> Result<()> {
        let WhenFull::Wait(limit) = when_full else { return Err(full) };
        self.image.pool.check_usable()?;
        let is_there = || self.image.space().room != room;
        if !is_there() && wait.once(limit, is_there).is_err() {
            return Err(full);
        }
        Ok(())
    }

    // ---- append -----------------------------------------------------------------------------------------------

    /// Reserve, copy, complete and, by the policy, force.
    ///
    /// Past the cache, alone: one locked instruction, which takes the log's lock; none behind the drain. Written by every append, and by all threads: the lock's line and that of
    /// the record's mark. Once in 32 appends the line that tells what is durable; once in 16 the watermark, on media.
    #[inline]
    pub(crate) fn append(&self, payload: &[u8]) -> Result<u64> {
        let len = payload.len() as u64;
        if len >= self.streams_from {
            let reserved = self.reserve(len, true)?;
            self.image.window.prepare(reserved.lsn);
            let header = self.image.header(&reserved, Kind::Data, len, true);
            raw::store_checksummed(
                Claim::Reserved,
                &self.image.pool,
                reserved.offset,
                &self.image.key,
                payload,
                |sum| header.encode(&self.image.key, sum),
            )?;
            if reserved.marks {
                self.image.write_watermark(self.image.watermark_of(&reserved))?;
            }
            if self.image.failpoints.skips(Step::PersistentLate) {
                self.image.window.set(reserved.lsn, State::Persistent);
            }
            self.image.pool.drain()?;
            let forced = self.image.window.persist(reserved.lsn, reserved.forced);
            self.image
                .known()
                .store(if self.image.failpoints.skips(Step::HonestCell) { reserved.lsn } else { forced }, Release);
            self.image.waiting.wake();
            if forced < reserved.lsn {
                self.force(reserved.lsn)?;
            }
            return Ok(reserved.lsn);
        }
        let sum = self.image.key.sum(payload); // before the space is reserved: brings the payload into the cache, too
        let reserved = self.reserve(len, false)?;
        let header = self.image.header(&reserved, Kind::Data, len, false).encode(&self.image.key, sum);
        let bytes =
            raw::bytes_mut(Claim::Reserved, self, &self.image.pool, reserved.offset, header.len() as u64 + len)?;
        let (to_header, to_payload) = bytes.split_at_mut(header.len());
        to_header.copy_from_slice(&header);
        to_payload.copy_from_slice(payload);
        self.image.window.set(reserved.lsn, State::Complete);
        if self.options.frequency > 1 {
            self.image.completed(reserved.lsn); // a force may be for another to do
        }
        self.force(reserved.lsn)?;
        Ok(reserved.lsn)
    }

    // ---- force ------------------------------------------------------------------------------------------------

    /// By the policy: with a frequency of one, now; else a thread that completes a record a frequency's worth behind those that have a leader leads the next.
    #[inline]
    pub(crate) fn force(&self, lsn: u64) -> Result<()> {
        let every = self.options.frequency;
        if every == 1 {
            return self.force_through(lsn);
        }
        loop {
            let led = self.led.0.load(Acquire).max(self.image.window.forced());
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
        let gaps = self.image.failpoints.skips(Step::InOrder).then_some(lsn);
        if self.image.advance(gaps) >= lsn {
            return Ok(());
        }
        self.force_within(lsn, self.options.stall_timeout)
    }

    /// Everything through `lsn` is durable on this machine when this returns; false if its image is none of those that count.
    pub(crate) fn force_own(&self, lsn: u64) -> Result<bool> {
        match &self.leading {
            Some(leading) => leading.force_own(&self.image, lsn, self.options.stall_timeout),
            None => self.force_through(lsn).map(|()| true),
        }
    }

    /// Flushes what is complete up to `lsn` and beyond, and waits for what others reserved, or flush.
    #[inline(never)]
    pub(crate) fn force_within(&self, lsn: u64, timeout: Duration) -> Result<()> {
        if let Some(leading) = &self.leading {
            return leading.force(&self.image, lsn, timeout);
        }
        let mut wait = Wait::new(&self.image.waiting);
        loop {
            let forced = self.image.advance(None);
            if forced >= lsn {
                return Ok(());
            }
            // Only its holder can do anything about a reserved record, so nothing shared is touched while it is.
            let next = self.image.window.state(forced + 1);
            let claimed = if next == Some(State::Complete) { self.image.window.claim() } else { None };
            let Some(claimed) = claimed else {
                // Since the look at what is durable another thread may have gone on, with no thread left to wait for.
                let now = self.image.window.state(forced + 1);
                if self.image.window.forced() > forced || now == Some(State::Persistent) || now != next {
                    continue;
                }
                self.image.pool.check_usable()?; // or what is waited for may never come
                let is_there = || self.image.window.forced() > forced || self.image.window.state(forced + 1) != next;
                match wait.once(timeout, is_there) {
                    Ok(()) => {}
                    Err(waited) => {
                        if self.image.window.is_held(forced + 1) {
                            return Err(Error::Stalled { lsn: Lsn(forced + 1), waited });
                        }
                        wait = Wait::new(&self.image.waiting); // it goes on, if slowly: another thread's sync takes long
                    }
                }
                continue;
            };
            if self.image.failpoints.skips(Step::MarkLate) {
                self.image.window.persisted(&claimed);
            }
            // The threads that wait for these records learn at once of a failed one.
            self.image.persist(&claimed).inspect_err(|_| self.image.waiting.wake())?;
            self.image.persisted(&claimed);
            wait = Wait::new(&self.image.waiting);
        }
    }

    // ---- the end ----------------------------------------------------------------------------------------------

    /// Says on media that all is durable; returns the record that says so, if it does. A full log is not waited for.
    pub(crate) fn mark(&self, timeout: Duration) -> Result<Option<u64>> {
        let last = self.image.last();
        self.force_within(last, timeout)?;
        if last + 1 == self.image.space().superline.head_lsn {
            return Ok(None); // nothing there that could be in doubt
        }
        let (lsn, before) = self.put_watermark()?;
        self.force_within(lsn, timeout)?;
        // Another thread may have come in between.
        Ok((before + 1 == lsn).then_some(lsn))
    }

    /// A record that says through where all is durable, and the watermark with it, persistent with the same barrier. Its number, and what it says.
    fn put_watermark(&self) -> Result<(u64, u64)> {
        let reserved = self.reserve_or(0, false, WhenFull::Refuse, 1)?;
        let header = self.image.complete(reserved, Kind::Watermark, &[], 0)?;
        Ok((reserved.lsn, header.forced()))
    }

    pub(crate) fn close(self) -> Result<()> {
        if self.image.pool.is_read_only() {
            return Ok(());
        }
        if let Some(leading) = &self.leading {
            // Where it ends is for all its replicas to say, when another leader takes it over.
            leading.close();
            let Self { image, leading, .. } = self;
            drop(leading);
            let (pool, space) = image.into_space();
            drop(space);
            return match pool.close() {
                Ok(()) | Err(pmem::Error::InUse { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            };
        }
        let (last, key) = (self.image.last(), self.image.key.clone());
        match self.force_within(last, Duration::ZERO) {
            Err(Error::Stalled { lsn, .. }) => return Err(Error::Unfinished { lsn }),
            other => other?,
        }
        let (pool, mut space) = self.image.into_space();
        let (head_lsn, head_position, head_epoch) = space.head_exact(&key)?;
        let superline = Superline {
            head_lsn,
            head_position,
            head_epoch,
            closed: 1,
            tail_lsn: space.next_lsn,
            tail_position: space.position,
            ..space.superline
        };
        space.write(superline)?;
        drop(space);
        match pool.close() {
            Ok(()) | Err(pmem::Error::InUse { .. }) => Ok(()), // others have the pool
            Err(error) => Err(error.into()),
        }
    }
}

/// The log's own key: another log at the same offset, or a copy of a record elsewhere, has another.
pub(crate) fn key(pool: &Pool, offset: u64, superline: &Superline) -> ChecksumKey {
    pool.checksum_key(offset).derived(superline.id)
}
