//! What must be done at least: the record's bytes copied past the cache, and one barrier. No header, no order, nothing to find it by.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pmem::{Area, LINE, Pool, Stats};

use super::{LogSide, Writer, stranger};
use crate::Result;

/// Each thread's bytes are its own.
pub struct Bare {
    pool: Pool,
    /// Taken by a writer, and given back when it goes.
    areas: Vec<Mutex<Option<Area>>>,
}

impl Bare {
    /// All threads together have room for `bytes`.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn create(path: &Path, bytes: u64, threads: usize) -> Result<Self> {
        let pool = pmem::Options::new().size(1 << 20).create(path)?;
        let own = (bytes / threads as u64).next_multiple_of(LINE);
        let mut rest = pool.add_region("bare", own * threads as u64)?.into_area()?;
        let _ = rest.clear()?;
        let _ = rest.drain()?;
        let mut areas = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (area, behind) = rest.split_at(own)?;
            areas.push(Mutex::new(Some(area)));
            rest = behind;
        }
        Ok(Self { pool, areas })
    }
}

impl LogSide for Bare {
    fn writer(&self, thread: usize) -> Result<Box<dyn Writer + '_>> {
        let slot = self.areas.get(thread).ok_or_else(|| stranger(thread))?;
        let area = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let area = area.ok_or_else(|| stranger(thread))?;
        Ok(Box::new(BareWriter { slot, area: Some(area), at: 0 }))
    }

    /// Nothing: each goes round its area.
    fn clean(&self) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.pool.stats())
    }

    fn domain(&self) -> String {
        self.pool.domain().to_string()
    }
}

struct BareWriter<'e> {
    slot: &'e Mutex<Option<Area>>,
    area: Option<Area>,
    at: u64,
}

impl Writer for BareWriter<'_> {
    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let Some(area) = &mut self.area else { return Ok(()) };
        let len = record.len() as u64;
        if self.at + len > area.len() {
            self.at = 0;
        }
        let _ = area.copy_nt(self.at, record)?;
        let _ = area.drain()?;
        self.at += len;
        Ok(())
    }
}

impl Drop for BareWriter<'_> {
    fn drop(&mut self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = self.area.take();
    }
}
