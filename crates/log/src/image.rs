//! A log on this machine: its segments, the records on their way into them, and how far all is durable. A leader has its own here, beside the replicas.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

use pmem::sync::{CachePadded, OwnMutex, switch_point};
use pmem::{ChecksumKey, Domain, Pool};

use crate::error::Result;
use crate::failpoints::{Failpoints, Step};
use crate::front::Watermark;
use crate::raw::{self, Claim};
use crate::record::{Header, Kind, RECORD_HEADER};
use crate::space::{Reserved, Space};
use crate::wait::Waiting;
use crate::window::{Claimed, State, Window};

/// Cells for what threads know to be durable; more threads share them.
const CELLS: usize = 64;

pub(crate) struct Image {
    pub(crate) pool: Pool,
    pub(crate) key: ChecksumKey,
    pub(crate) epoch: u32,
    pub(crate) window: Window,
    space: CachePadded<OwnMutex<Space>>,
    /// Through which record each thread knows all to be durable. It says so under the lock when it reserves next: on a line that it has to fetch anyway. Threads that share
    /// a cell tell less of each other, and never too much.
    known: Box<[CachePadded<AtomicU64>]>,
    pub(crate) waiting: Waiting,
    /// Threads may wait until there is room.
    waits_for_room: bool,
    /// None without one: a log in format 1, or with other replicas.
    watermark: Option<Watermark>,
    pub(crate) failpoints: Failpoints,
}

impl Image {
    pub(crate) fn new(
        pool: &Pool,
        key: ChecksumKey,
        watermark: Option<Watermark>,
        space: Space,
        waits_for_room: bool,
    ) -> Self {
        let forced = space.next_lsn - 1;
        Self {
            watermark,
            known: (0..CELLS).map(|_| CachePadded(AtomicU64::new(forced))).collect(),
            key,
            epoch: space.superline.epoch,
            window: Window::new(forced),
            waiting: Waiting::new(pool.domain() == Domain::File),
            waits_for_room,
            failpoints: space.failpoints,
            pool: pool.clone(),
            space: CachePadded(OwnMutex::new(space)),
        }
    }

    // ---- space ------------------------------------------------------------------------------------------------

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

    /// There may be room now where there was none. The space was locked for that, and is not any more: a thread that sleeps over it was seen, or sees the
    /// change.
    pub(crate) fn made_room(&self) {
        if self.waits_for_room {
            self.waiting.wake();
        }
    }

    // ---- complete ---------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn header(&self, reserved: &Reserved, kind: Kind, len: u64, to_line: bool) -> Header {
        let (lsn, faulty) = (reserved.lsn, self.failpoints.skips(Step::HonestWatermark));
        let forced = if faulty { lsn - 1 } else { reserved.forced };
        // A record is reserved when all but the last of a window's size are known to be durable, so the distance is less than that.
        let forced_back = (lsn - 1 - forced) as u16;
        Header { lsn, forced_back, epoch: self.epoch, kind, len: len as u32, to_line }
    }

    /// Puts the header before a payload that stands there, or is not used.
    pub(crate) fn complete(&self, reserved: Reserved, kind: Kind, payload: &[u8], len: u64) -> Result<Header> {
        let sum = self.key.sum(if kind == Kind::Data { payload } else { &[] });
        let header = self.header(&reserved, kind, len, false);
        raw::bytes_mut(Claim::Reserved, self, &self.pool, reserved.offset, RECORD_HEADER)?
            .copy_from_slice(&header.encode(&self.key, sum));
        self.window.set(reserved.lsn, State::Complete);
        self.completed(reserved.lsn);
        Ok(header)
    }

    /// A thread that waits for this record, the first that is not durable, can flush it.
    #[inline]
    pub(crate) fn completed(&self, lsn: u64) {
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
    pub(crate) fn known(&self) -> &AtomicU64 {
        &self.known[pmem::thread_number() % CELLS].0
    }

    // ---- persist ----------------------------------------------------------------------------------------------

    /// Makes these persistent, with one barrier.
    pub(crate) fn persist(&self, claimed: &Claimed) -> Result<()> {
        for (offset, len) in self.window.ranges(claimed) {
            self.pool.flush(offset, len)?;
        }
        if let Some(mark) = self.window.mark(claimed) {
            self.write_watermark(mark)?;
        }
        self.pool.drain()?;
        Ok(())
    }

    /// What the watermark says that is written for this record.
    pub(crate) fn watermark_of(&self, reserved: &Reserved) -> u64 {
        if self.failpoints.skips(Step::HonestMark) { reserved.lsn } else { reserved.forced }
    }

    /// Says on media that everything through `forced` is durable: in front of a barrier, which makes it persistent too, so that it is never waited for alone.
    #[cold]
    pub(crate) fn write_watermark(&self, forced: u64) -> Result<()> {
        switch_point();
        self.watermark.as_ref().map_or(Ok(()), |there| there.write(&self.pool, &self.key, forced))
    }
}
