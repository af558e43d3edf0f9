//! Space for logs: equal pieces of regions, each with one owner.

use std::collections::BTreeSet;
use std::ops::Range;

use pmem::{Area, Domain, Pool};

use super::layout::REGION_KIND;
use crate::error::{Error, Result};

/// A piece of the log; its owner has its bytes.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) number: u32,
    pub(super) area: Area,
}

/// The chunks of one kind on one member.
pub(super) struct Chunks {
    pool: Pool,
    prefix: String,
    size: u64,
    regions: u32,
    /// By number; those in use are with their owners.
    all: Vec<Option<Area>>,
    /// Those that are not in use.
    free: Free,
    /// Most there may be.
    max: u32,
}

/// Which is used first.
enum Free {
    /// The one that was given back last: it is in a cache.
    Last(Vec<u32>),
    /// The first one, on a file: those that are used together are next to each other, and that is one write.
    First(BTreeSet<u32>),
}

impl Free {
    fn take(&mut self) -> Option<u32> {
        match self {
            Self::Last(free) => free.pop(),
            Self::First(free) => free.pop_first(),
        }
    }

    fn give_back(&mut self, number: u32) {
        match self {
            Self::Last(free) => free.push(number),
            Self::First(free) => _ = free.insert(number),
        }
    }

    /// New ones, behind those that were used.
    fn add(&mut self, numbers: Range<u32>) {
        match self {
            Self::Last(free) => drop(free.splice(..0, numbers.rev())),
            Self::First(free) => free.extend(numbers),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Last(free) => free.len(),
            Self::First(free) => free.len(),
        }
    }
}

impl Chunks {
    /// Makes `count` of them, in a new region.
    pub(super) fn create(pool: &Pool, prefix: String, size: u64, count: u32) -> Result<()> {
        let mut chunks = Self::new(pool, prefix, size, u32::MAX);
        chunks.add_region(u64::from(count))
    }

    fn new(pool: &Pool, prefix: String, size: u64, max: u32) -> Self {
        let free = match pool.domain() {
            Domain::File => Free::First(BTreeSet::new()),
            _ => Free::Last(Vec::new()),
        };
        Self { pool: pool.clone(), prefix, size, regions: 0, all: Vec::new(), free, max }
    }

    pub(super) fn open(pool: &Pool, prefix: String, size: u64, max: u32) -> Result<Self> {
        let mut chunks = Self::new(pool, prefix, size, max);
        loop {
            match pool.region(&chunks.name()) {
                Ok(region) => chunks.take_in(region)?,
                Err(pmem::Error::NoRegion { .. }) if chunks.regions > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
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
        let before = self.all.len() as u32;
        while rest.len() >= self.size {
            let (area, behind) = rest.split_at(self.size)?;
            self.all.push(Some(area));
            rest = behind;
        }
        self.free.add(before..self.all.len() as u32);
        self.regions += 1;
        Ok(())
    }

    /// A chunk that is not in use.
    pub(super) fn take(&mut self) -> Option<Chunk> {
        let number = self.free.take()?;
        let area = self.all[number as usize].take()?;
        Some(Chunk { number, area })
    }

    pub(super) fn give_back(&mut self, chunk: Chunk) {
        self.free.give_back(chunk.number);
        self.all[chunk.number as usize] = Some(chunk.area);
    }

    /// As many more as there are.
    pub(super) fn grow(&mut self) -> Result<()> {
        let more = (self.all.len() as u64).min(u64::from(self.max).saturating_sub(self.all.len() as u64));
        if more == 0 {
            let bytes = self.all.len() as u64 * self.size;
            return Err(Error::LogFull { bytes, max: u64::from(self.max) * self.size });
        }
        self.add_region(more)
    }

    /// The chunk of this number, while no transaction has it: at open, none has any.
    pub(super) fn get(&self, number: u64) -> Option<&Area> {
        self.all.get(usize::try_from(number).ok()?)?.as_ref()
    }

    pub(super) fn len(&self) -> u64 {
        self.all.len() as u64
    }

    pub(super) fn free(&self) -> u64 {
        self.free.len() as u64
    }
}
