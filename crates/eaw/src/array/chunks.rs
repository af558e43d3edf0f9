//! Space for logs: equal pieces of regions, each with one owner.

use pmem::{Area, Domain, Pool};

use super::layout::REGION_KIND;
use crate::error::{Error, Result};

/// A piece of the log; whoever has it, has its bytes.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) number: u32,
    pub(crate) area: Area,
}

/// The chunks of one kind on one member.
pub(crate) struct Chunks {
    pool: Pool,
    prefix: String,
    size: u64,
    regions: u32,
    /// By number; those in use are with their owners.
    all: Vec<Option<Area>>,
    /// Those that are not in use; the last one given back is used first. On a file, the first one, so that those that are used together are next to each other: that is one write.
    free: Vec<u32>,
    is_sorted: bool,
    /// Most there may be.
    max: u32,
}

impl Chunks {
    /// Makes `count` of them, in a new region.
    pub(crate) fn create(pool: &Pool, prefix: String, size: u64, count: u32) -> Result<()> {
        let mut chunks = Self::new(pool, prefix, size, u32::MAX);
        chunks.add_region(u64::from(count))
    }

    fn new(pool: &Pool, prefix: String, size: u64, max: u32) -> Self {
        let is_sorted = pool.domain() == Domain::File;
        Self { pool: pool.clone(), prefix, size, regions: 0, all: Vec::new(), free: Vec::new(), is_sorted, max }
    }

    pub(crate) fn open(pool: &Pool, prefix: String, size: u64, max: u32) -> Result<Self> {
        let mut chunks = Self::new(pool, prefix, size, max);
        loop {
            match pool.region(&chunks.name()) {
                Ok(region) => chunks.take_in(region)?,
                Err(pmem::Error::NoRegion { .. }) if chunks.regions > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        chunks.free.reverse();
        Ok(chunks)
    }

    fn name(&self) -> String {
        format!("{}.{}", self.prefix, self.regions)
    }

    fn add_region(&mut self, count: u64) -> Result<()> {
        let region = self.pool.add_region_as(&self.name(), count * self.size, REGION_KIND, 0)?;
        self.take_in(region)
    }

    fn take_in(&mut self, region: pmem::Region) -> Result<()> {
        let mut rest = region.into_area()?;
        while rest.len() >= self.size {
            let (area, behind) = rest.split_at(self.size)?;
            self.free.push(self.all.len() as u32);
            self.all.push(Some(area));
            rest = behind;
        }
        self.regions += 1;
        Ok(())
    }

    /// A chunk that is not in use.
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        let number = self.free.pop()?;
        let area = self.all[number as usize].take()?;
        Some(Chunk { number, area })
    }

    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        let at = if self.is_sorted { self.free.partition_point(|free| *free > chunk.number) } else { self.free.len() };
        self.free.insert(at, chunk.number);
        self.all[chunk.number as usize] = Some(chunk.area);
    }

    /// As many more as there are.
    pub(crate) fn grow(&mut self) -> Result<()> {
        let more = (self.all.len() as u64).min(u64::from(self.max).saturating_sub(self.all.len() as u64));
        if more == 0 {
            let bytes = self.all.len() as u64 * self.size;
            return Err(Error::LogFull { bytes, max: u64::from(self.max) * self.size });
        }
        let before = self.all.len();
        self.add_region(more)?;
        if self.is_sorted {
            self.free.sort_unstable_by(|one, other| other.cmp(one));
        } else {
            self.free[..].rotate_right(self.all.len() - before); // the used ones first
        }
        Ok(())
    }

    /// The chunk of this number, while nobody has it: at open, nobody has any.
    pub(crate) fn get(&self, number: u64) -> Option<&Area> {
        self.all.get(usize::try_from(number).ok()?)?.as_ref()
    }

    pub(crate) fn len(&self) -> u64 {
        self.all.len() as u64
    }

    pub(crate) fn free(&self) -> u64 {
        self.free.len() as u64
    }
}
