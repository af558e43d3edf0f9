//! How a log is made and opened.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::front::{EVERY, Front};
use crate::superline::{SEGMENT_MAX, SEGMENT_MIN, SEGMENTS_MAX};

/// With a frequency, records of so many bytes or more go past the cache.
const STREAM_FROM: u64 = 1500;

/// What happens to a reservation when the log is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// [`Error::Full`], at once.
    Refuse,
    /// It waits this long until records are discarded, then [`Error::Full`].
    Wait(Duration),
}

/// How to make or open a log. What is not about its size can be different at every open.
///
/// ```
/// # fn main() -> cairn_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use std::time::Duration;
/// let options = cairn_log::Options::new()
///     .bytes(16 << 20)
///     .frequency(8)                         // a barrier for eight records ...
///     .within(Duration::from_millis(1));    // ... or after a millisecond
/// let log = options.create(dir.path().join("orders"))?;
/// log.append(b"one")?;
/// log.close()?;
/// let (log, found) = options.open(dir.path().join("orders"))?;
/// assert_eq!((found.records, log.forced().get()), (1, 1));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) bytes: u64,
    pub(crate) segment: Option<u64>,
    pub(crate) frequency: u64,
    pub(crate) threads: u64,
    pub(crate) within: Option<Duration>,
    pub(crate) idle: Option<Duration>,
    pub(crate) when_full: WhenFull,
    pub(crate) stall_timeout: Duration,
    pub(crate) pool: pmem::Options,
    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) without: Option<crate::Step>,
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    pub(crate) every: u64,
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    pub(crate) stream_from: u64,
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    pub(crate) front: Front,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 64 MiB in segments of 1 MiB; every force is a barrier; a full log refuses.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: 64 << 20,
            segment: None,
            frequency: 1,
            threads: 16,
            within: None,
            idle: Some(Duration::from_millis(100)),
            when_full: WhenFull::Refuse,
            stall_timeout: Duration::from_secs(10),
            pool: pmem::Options::new(),
            #[cfg(any(test, feature = "failpoints"))]
            without: None,
            #[cfg(any(test, feature = "failpoints", feature = "testing"))]
            every: EVERY,
            #[cfg(any(test, feature = "failpoints", feature = "testing"))]
            stream_from: STREAM_FROM,
            #[cfg(any(test, feature = "failpoints", feature = "testing"))]
            front: Front::Two,
        }
    }

    /// Bytes for records in a new log, headers included; rounded up to whole segments.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Bytes of a segment in a new log: no record is longer, and space is reclaimed by segments. A multiple of 64, 256 B to 256 MiB; by default an eighth of the log,
    /// from 4 KiB to 1 MiB.
    #[must_use]
    pub fn segment_bytes(self, bytes: u64) -> Self {
        Self { segment: Some(bytes), ..self }
    }

    /// The force policy (Arcadia §4.4): records become durable `every` at a time. With 1, the default, each force is durable when it returns. Else
    /// [`Log::force`](crate::Log::force) returns at once unless `every` records have gathered, and up to `every` × [`threads`](Self::threads) of the last records may be lost by a crash.
    /// On memory an appended record of 1500 bytes or more goes past the cache, with a barrier of its own, since that is faster; it is durable with those before it.
    #[must_use]
    pub fn frequency(self, every: u32) -> Self {
        Self { frequency: u64::from(every), ..self }
    }

    /// How many threads append, for the bound of the [force policy](Self::frequency); 16 by default. More may: they wait rather than exceed it. A thread that
    /// holds several reservations at once counts as several.
    #[must_use]
    pub fn threads(self, threads: u32) -> Self {
        Self { threads: u64::from(threads), ..self }
    }

    /// No complete record waits longer than about this for its force, whatever the frequency. Starts a thread.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { within: Some(limit), ..self }
    }

    /// After how long without an append a watermark record says on media that all before it is durable; 100 ms by default. Starts a thread, unless `None`. Until
    /// then a crash leaves in doubt whether a last record that is not whole had been forced.
    #[must_use]
    pub fn idle(self, after: Option<Duration>) -> Self {
        Self { idle: after, ..self }
    }

    /// What a full log does.
    #[must_use]
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { when_full, ..self }
    }

    /// How long a force waits for an earlier record that is not complete before it says [`Error::Stalled`]; 10 s by default.
    #[must_use]
    pub fn stall_timeout(self, stall_timeout: Duration) -> Self {
        Self { stall_timeout, ..self }
    }

    /// How the pool is made and opened: domain, latency, address space.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool, ..self }
    }

    /// Leaves a step of the protocol out.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn without(self, step: crate::Step) -> Self {
        Self { without: Some(step), ..self }
    }

    /// The watermark is written after so many records.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn watermark_every(self, every: u64) -> Self {
        Self { every, ..self }
    }

    /// On memory, records of so many bytes or more go past the cache whatever the frequency.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn stream_from(self, bytes: u64) -> Self {
        Self { stream_from: bytes, ..self }
    }

    /// A new log is made in format 1.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn format_1(self) -> Self {
        Self { front: Front::One, ..self }
    }

    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    pub(crate) fn every(&self) -> u64 {
        self.every
    }

    #[cfg(not(any(test, feature = "failpoints", feature = "testing")))]
    #[inline(always)]
    pub(crate) fn every(&self) -> u64 {
        EVERY
    }

    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    pub(crate) fn streams_from(&self) -> u64 {
        self.stream_from
    }

    #[cfg(not(any(test, feature = "failpoints", feature = "testing")))]
    pub(crate) fn streams_from(&self) -> u64 {
        STREAM_FROM
    }

    pub(crate) fn waits_for_room(&self) -> bool {
        matches!(self.when_full, WhenFull::Wait(_))
    }

    /// The step that is left out.
    pub(crate) fn failpoints(&self) -> Failpoints {
        #[cfg(any(test, feature = "failpoints"))]
        return Failpoints(self.without);
        #[cfg(not(any(test, feature = "failpoints")))]
        Failpoints()
    }

    /// The form of a new log.
    pub(crate) fn front(&self) -> Front {
        #[cfg(any(test, feature = "failpoints", feature = "testing"))]
        return self.front;
        #[cfg(not(any(test, feature = "failpoints", feature = "testing")))]
        Front::Two
    }

    /// Bytes of a segment, and how many there are.
    pub(crate) fn geometry(&self) -> Result<(u64, u64)> {
        let limit = |what, found, min, max| {
            if (min..=max).contains(&found) { Ok(()) } else { Err(Error::Limit { what, found, min, max }) }
        };
        let segment = self.segment.unwrap_or((self.bytes / 8).clamp(4096, 1 << 20) / 4096 * 4096);
        limit("bytes of a segment", segment, SEGMENT_MIN, SEGMENT_MAX)?;
        if !segment.is_multiple_of(pmem::LINE) {
            let (min, max) = (segment / pmem::LINE * pmem::LINE, segment.next_multiple_of(pmem::LINE));
            return Err(Error::Limit { what: "bytes of a segment (a multiple of 64)", found: segment, min, max });
        }
        limit("bytes of the log", self.bytes, 2 * segment, 1 << 46)?;
        limit("segments of the log", self.bytes.div_ceil(segment), 2, SEGMENTS_MAX)?;
        Ok((segment, self.bytes.div_ceil(segment)))
    }

    pub(crate) fn check(&self) -> Result<()> {
        for (what, found) in [("records to a force", self.frequency), ("threads", self.threads)] {
            if !(1..=crate::window::SLOTS).contains(&found) {
                return Err(Error::Limit { what, found, min: 1, max: crate::window::SLOTS });
            }
        }
        Ok(())
    }
}
