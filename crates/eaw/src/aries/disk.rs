//! Pages on the medium. A page that is written in place may be torn by a crash, so several together are written to a buffer first, with a barrier behind them, and then in place
//! with another one.
//!
//! ```text
//! page     checksum of the rest | its number | log sequence number of its last change | number of the batch it was written with | bytes of a slot, 4, padding | slots
//! slot     number of the record, 8, table, 4, length, 4 | its bytes
//! ```

use std::collections::BTreeSet;

use pmem::{ChecksumKey, LINE, Pool};

use super::failpoints::{Step, Steps};
use crate::error::{Error, Result};

/// Of a record in its slot.
pub(super) const HEADER: usize = 16;
/// Pages that are written together at most.
pub(super) const BATCH: usize = 16;
/// The first data region's size doubles with each further one.
pub(super) const SEGMENTS_MAX: u32 = 20;
pub(super) const REGION_KIND: pmem::RegionKind = pmem::RegionKind::Other(19);

const PAGES: &str = "aries.pages";
const DOUBLE: &str = "aries.double";

/// A page, in memory.
#[derive(Clone)]
pub(super) struct Page(pub(super) Box<[u8]>);

impl Page {
    pub(super) fn new(bytes: u64) -> Self {
        Self(vec![0; bytes as usize].into())
    }

    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(word)
    }

    fn set_word(&mut self, at: usize, word: u64) {
        self.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    pub(super) fn lsn(&self) -> u64 {
        self.word(16)
    }

    pub(super) fn set_lsn(&mut self, lsn: u64) {
        self.set_word(16, lsn);
    }

    /// Bytes of its slots; 0 if it was never used.
    pub(super) fn slot(&self) -> u32 {
        self.word(32) as u32
    }

    /// It is empty, and has slots of this size.
    pub(super) fn format(&mut self, slot: u32) {
        self.0[LINE as usize..].fill(0);
        self.set_word(32, slot.into());
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

pub(super) struct Disk {
    pool: Pool,
    key: ChecksumKey,
    page: u64,
    segments: Vec<pmem::Area>,
    double: pmem::Area,
    batch: u64,
    /// No page that was written before has a later change than the log had when it was opened.
    newest: u64,
    /// Of the newest batch then.
    before: u64,
    /// Pages that have.
    ahead: BTreeSet<u64>,
    steps: Steps,
}

impl Disk {
    pub(super) fn create(pool: &Pool, page: u64, pages: u64) -> Result<()> {
        pool.add_region_as(DOUBLE, page * BATCH as u64, REGION_KIND, 0)?;
        pool.add_region_as(&format!("{PAGES}.0"), page * pages, REGION_KIND, 0)?;
        Ok(())
    }

    /// Opens it, and puts back in place what was torn there.
    pub(super) fn open(pool: &Pool, page: u64, pages: u64, newest: u64, steps: Steps) -> Result<Self> {
        let double = pool.region(DOUBLE)?.into_area()?;
        let damaged =
            || Error::Damaged { path: pool.path().to_owned(), what: "size of a region of a store of records" };
        if double.len() < page * BATCH as u64 {
            return Err(damaged());
        }
        let mut disk = Self {
            key: pool.checksum_key(double.offset()).of_kind(5),
            pool: pool.clone(),
            page,
            segments: Vec::new(),
            double,
            batch: 0,
            newest,
            before: 0,
            ahead: BTreeSet::new(),
            steps,
        };
        let listed = pool.info();
        for number in 0..SEGMENTS_MAX {
            let name = format!("{PAGES}.{number}");
            if !listed.regions.iter().any(|region| region.name == name) {
                break;
            }
            let area = pool.region(&name)?.into_area()?;
            if area.len() < (pages << number) * page {
                return Err(damaged());
            }
            disk.segments.push(area);
        }
        if disk.segments.is_empty() {
            return Err(damaged());
        }
        disk.restore(pages)?;
        Ok(disk)
    }

    /// Of the last batch that is whole in the buffer, or of a part of one that never came to its places, as no page of that is torn there.
    fn restore(&mut self, pages: u64) -> Result<()> {
        let mut found = Vec::new();
        let mut page = Page::new(self.page);
        for slot in 0..BATCH as u64 {
            let Ok(bytes) = self.double.bytes(slot * self.page, self.page as usize) else { continue };
            page.0.copy_from_slice(bytes);
            if !page.is_zero() && page.word(0) == self.checksum(&page) {
                found.push(page.clone());
            }
        }
        self.before = found.iter().map(|page| page.word(24)).max().unwrap_or(0);
        self.batch = self.before;
        let newest = self.before;
        for saved in found.iter().filter(|page| page.word(24) == newest) {
            let number = saved.word(8);
            if number >= self.pages(pages) {
                continue;
            }
            // It was written once, so it is not as if it never was.
            let is_whole = self.read(number, pages, &mut page)? && !page.is_zero();
            let (segment, at) = self.locate(number, pages);
            if is_whole && !self.steps.has(Step::FlushBatch) {
                continue;
            }
            if is_whole {
                // It may be in a cache alone, of a process that died.
                self.segments[segment].flush(at, self.page)?;
            } else {
                self.segments[segment].copy_nt(at, &saved.0)?;
            }
        }
        self.pool.drain()?; // before the next batch takes the buffer
        Ok(())
    }

    /// How many pages there are, where the first region has so many.
    pub(super) fn pages(&self, first: u64) -> u64 {
        first * ((1 << self.segments.len()) - 1)
    }

    fn locate(&self, number: u64, first: u64) -> (usize, u64) {
        let segment = (number / first + 1).ilog2();
        (segment as usize, (number - first * ((1 << segment) - 1)) * self.page)
    }

    /// As many pages again, and one time more.
    pub(super) fn grow(&mut self, first: u64) -> Result<u64> {
        let number = self.segments.len() as u32;
        if number == SEGMENTS_MAX {
            let (found, max) = (u64::from(number) + 1, SEGMENTS_MAX.into());
            return Err(Error::Limit { what: "regions of pages of a store of records", found, min: 1, max });
        }
        let count = first << number;
        let name = format!("{PAGES}.{number}");
        self.segments.push(self.pool.add_region_as(&name, count * self.page, REGION_KIND, 0)?.into_area()?);
        Ok(count)
    }

    fn checksum(&self, page: &Page) -> u64 {
        self.key.checksum(&page.0[8..])
    }

    /// False if it is not what was written, or the log does not go so far: then a part of that is lost.
    pub(super) fn read(&mut self, number: u64, first: u64, into: &mut Page) -> Result<bool> {
        let (segment, at) = self.locate(number, first);
        into.0.copy_from_slice(self.segments[segment].bytes(at, self.page as usize)?);
        if into.is_zero() {
            return Ok(true);
        }
        let is_whole = into.word(0) == self.checksum(into) && into.word(8) == number;
        let is_ahead = is_whole && into.lsn() > self.newest && into.word(24) <= self.before;
        if is_ahead {
            self.ahead.insert(number);
        }
        Ok(is_whole && !is_ahead)
    }

    /// Pages that were found to have changes which the log has not.
    pub(super) fn ahead(&self) -> &BTreeSet<u64> {
        &self.ahead
    }

    /// Writes pages, each with its number, [`BATCH`] at most. Two barriers.
    pub(super) fn write(&mut self, first: u64, pages: &mut [(u64, Page)]) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        self.batch += 1;
        for (slot, (number, page)) in pages.iter_mut().enumerate() {
            page.set_word(8, *number);
            page.set_word(24, self.batch);
            let checksum = self.checksum(page);
            page.set_word(0, checksum);
            if self.steps.has(Step::Double) {
                self.double.copy_nt(slot as u64 * self.page, &page.0)?;
            }
        }
        self.pool.drain()?;
        for (number, page) in pages {
            let (segment, at) = self.locate(*number, first);
            self.segments[segment].copy_nt(at, &page.0)?;
        }
        self.pool.drain()?;
        Ok(())
    }
}
