//! A log as FLEX keeps one, on our pools (Xu et al., ASPLOS 2019, by the account of Arcadia §5.2): one lock; the header is written and made
//! durable, then the payload, then the tail. Three barriers for a record.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pmem::{Area, LINE, Pool, Stats};

use super::{HEADER, LogSide, Writer, full, header};
use crate::clock::Stopwatch;
use crate::{Error, Result};

/// Where the tail is kept: a line of its own.
const TAIL: u64 = 0;
/// Where records begin.
const START: u64 = LINE;
const REGION: &str = "flex";

/// The log.
pub struct Flex {
    pool: Pool,
    inner: Mutex<Inner>,
}

struct Inner {
    area: Area,
    /// As it is on media.
    tail: u64,
    number: u64,
}

/// How long each part of an append took.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlexParts {
    /// Getting the lock.
    pub lock: Duration,
    /// Header, checksum and all, and its barrier.
    pub header: Duration,
    /// Payload, and its barrier.
    pub payload: Duration,
    /// Tail, and its barrier.
    pub tail: Duration,
}

impl Flex {
    /// A new log.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn create(path: &Path, bytes: u64) -> Result<Self> {
        let pool = pmem::Options::new().size(1 << 20).create(path)?;
        let mut area = pool.add_region(REGION, START + bytes)?.into_area()?;
        let _ = area.clear()?;
        let _ = area.drain()?;
        let log = Self { pool, inner: Mutex::new(Inner { area, tail: START, number: 0 }) };
        log.clean()?;
        Ok(log)
    }

    /// Opens a log and verifies what is in it: header after header up to the tail. Calls `each` with every payload.
    ///
    /// # Errors
    /// Those of the pool; a record that does not verify.
    pub fn recover(path: &Path, mut each: impl FnMut(&[u8])) -> Result<Self> {
        let pool = pmem::Options::new().open(path)?;
        let area = pool.region(REGION)?.into_area()?;
        let (tail, mut at, mut number) = (*area.get::<u64>(TAIL)?, START, 0);
        let wrong = |at| Error::Wrong { who: "flex".into(), what: format!("the record at {at} does not verify") };
        while at < tail {
            let found = area.bytes(at, HEADER)?;
            let len = u32::from_le_bytes([found[0], found[1], found[2], found[3]]);
            let payload = area.bytes(at + HEADER as u64, len as usize)?;
            if *found != header(number, payload) {
                return Err(wrong(at));
            }
            each(payload);
            (at, number) = (after(at, payload.len()), number + 1);
        }
        Ok(Self { pool, inner: Mutex::new(Inner { area, tail: at, number }) })
    }

    /// Appends a record, and tells what took how long.
    ///
    /// # Errors
    /// The log is full; those of the pool.
    pub fn append_in_parts(&self, record: &[u8]) -> Result<FlexParts> {
        let mut watch = Stopwatch::start();
        let mut inner = self.lock();
        let lock = watch.lap();
        let next = inner.write_header(record)?;
        let header = watch.lap();
        inner.write_payload(record)?;
        let payload = watch.lap();
        inner.write_tail(next)?;
        Ok(FlexParts { lock, header, payload, tail: watch.lap() })
    }

    fn append(&self, record: &[u8]) -> Result<()> {
        let mut inner = self.lock();
        let next = inner.write_header(record)?;
        inner.write_payload(record)?;
        inner.write_tail(next)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the next record begins.
fn after(at: u64, payload: usize) -> u64 {
    (at + (HEADER + payload) as u64).next_multiple_of(8)
}

impl Inner {
    #[inline]
    fn write_header(&mut self, record: &[u8]) -> Result<u64> {
        let next = after(self.tail, record.len());
        if next > self.area.len() {
            return Err(full("flex"));
        }
        self.area.bytes_mut(self.tail, HEADER)?.copy_from_slice(&header(self.number, record));
        let _ = self.area.persist(self.tail, HEADER as u64)?;
        Ok(next)
    }

    #[inline]
    fn write_payload(&mut self, record: &[u8]) -> Result<()> {
        let _ = self.area.copy_nt(self.tail + HEADER as u64, record)?;
        let _ = self.area.drain()?;
        Ok(())
    }

    #[inline]
    fn write_tail(&mut self, next: u64) -> Result<()> {
        let _ = self.area.publish(TAIL, next)?;
        (self.tail, self.number) = (next, self.number + 1);
        Ok(())
    }
}

impl LogSide for Flex {
    fn writer(&self, _: usize) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(FlexWriter(self)))
    }

    fn clean(&self) -> Result<()> {
        let mut inner = self.lock();
        inner.write_tail(START)?;
        inner.number = 0;
        Ok(())
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.pool.stats())
    }

    fn domain(&self) -> String {
        self.pool.domain().to_string()
    }
}

struct FlexWriter<'e>(&'e Flex);

impl Writer for FlexWriter<'_> {
    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.0.append(record)
    }
}
