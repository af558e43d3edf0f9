//! The pool that is damaged: every structure there is, in about 100 KiB.

use std::ops::Deref;
use std::sync::Arc;

use crash::{Error, Model, Rng, Sim};
use pmem::{Action, HeapOptions, Objects, ObjectsOptions, PPtr, Pool, RegionInfo, Ring, TwoSlot};

use super::checksums::{Checksum, Tables, ring_records};
use super::contents::{CAPACITY, CHECKSUMMED, Object, SLOTS, Table, Value, options};
use super::walk::{Found, walk};
use super::{Range, word};

const CHUNKS: u64 = 19;

/// How the pool was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Closed.
    Clean,
    /// Not closed; the last publications are in the log and carried out.
    Dirty,
    /// The power failed right behind the last publication's barrier: it is in the log alone.
    Crashed,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Clean, Self::Dirty, Self::Crashed];
}

/// A pool of known contents.
pub struct Reference {
    variant: Variant,
    bytes: Vec<u8>,
    checksums: Vec<Checksum>,
    hot: Vec<Range>,
    words: Vec<u64>,
    pub(crate) objects: Vec<Object>,
    pub(crate) found: Found,
    /// What the un-mirrored cell held before.
    pub(crate) older: Value,
    pub(crate) regions: Vec<RegionInfo>,
    /// The live blocks without the last publication.
    pub(crate) blocks_before: Vec<(u64, u64)>,
}

/// Loads `bytes` as the whole file and makes them persistent.
pub(crate) fn load(sim: &Sim, bytes: &[u8]) -> Result<(), Error> {
    sim.set_len(bytes.len().next_multiple_of(8) as u64)?;
    for at in (0..bytes.len()).step_by(8) {
        let value = match bytes.get(at..at + 8) {
            Some(_) => word(bytes, at),
            None => {
                let mut last = [0; 8];
                last[..bytes.len() - at].copy_from_slice(&bytes[at..]);
                u64::from_le_bytes(last)
            }
        };
        if sim.load(at as u64)? != value {
            sim.store(at as u64, value)?;
        }
    }
    sim.flush(0, bytes.len() as u64);
    Ok(sim.drain()?)
}

pub(crate) fn dump(sim: &Sim) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for at in (0..sim.length()).step_by(8) {
        bytes.extend(sim.load(at)?.to_le_bytes());
    }
    Ok(bytes)
}

fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number * 41 + i * 7 + i / 256) as u8 | 1).collect()
}

/// The open reference pool while it is built.
struct Build {
    objects: Objects,
    root: PPtr<Table>,
}

impl Build {
    fn create(pool: &Pool) -> Result<Self, Error> {
        let heap = HeapOptions::chunk_bytes(4096)?;
        let objects =
            Objects::create(pool, ObjectsOptions { heap_bytes: heap.region_bytes(CHUNKS), log_bytes: 2 << 10, heap })?;
        let table = objects.reserve_value(&Table { slots: [PPtr::NULL; SLOTS], lens: [0; SLOTS] })?;
        let root = table.ptr::<Table>();
        objects.lock().publish(&mut [Action::Alloc(table), Action::root(root)])?;
        Ok(Self { objects, root })
    }

    fn open(pool: &Pool) -> Result<Self, Error> {
        let objects = Objects::open(pool)?;
        let root = objects.lock().root::<Table>()?;
        Ok(Self { objects, root })
    }

    fn word(&self, index: usize) -> PPtr<u64> {
        PPtr::from_raw(self.root.raw() + index as u64 * 8)
    }

    /// Puts an object of `len` bytes into a slot, none for 0, and frees the one before.
    fn put(&self, slot: usize, len: usize) -> Result<(), Error> {
        let mut actions = Vec::new();
        let mut new = PPtr::<u8>::NULL;
        if len > 0 {
            let mut reserved = self.objects.reserve(len as u64, 8)?;
            reserved.bytes_mut()?.copy_from_slice(&pattern(slot, len));
            new = reserved.ptr();
            actions.push(Action::Alloc(reserved));
        }
        let mut session = self.objects.lock();
        let old = session.get(self.root)?.slots[slot];
        actions.push(Action::Set(self.word(slot), new.raw()));
        actions.push(Action::Set(self.word(SLOTS + slot), len as u64));
        if !old.is_null() {
            actions.push(Action::Free(old.cast()));
        }
        Ok(session.publish(&mut actions)?)
    }
}

fn value(n: u64) -> Value {
    std::array::from_fn(|i| n << 32 | i as u64)
}

/// A cell whose slots differ, and one whose slots are equal.
fn make_cells(pool: &Pool) -> Result<(), Error> {
    let (single, mirrored) = pool.add_region("cells", 4096)?.into_area()?.split_at(TwoSlot::<Value>::SIZE)?;
    let mut single = TwoSlot::create(single, &value(1))?;
    let mut mirrored = TwoSlot::create(mirrored, &value(11))?;
    for n in 2..5 {
        single.update(&value(n))?;
        mirrored.update_mirrored(&value(n + 10))?;
    }
    Ok(())
}

fn make_checksummed(pool: &Pool) -> Result<(), Error> {
    let mut area = pool.add_region("checksummed", 4096)?.into_area()?;
    for (at, kind, len) in CHECKSUMMED {
        area.write_checksummed(at, kind, 1, &pattern(kind as usize, len))?;
    }
    area.drain()?;
    Ok(())
}

/// Records `from..to`; those that do not fit push the oldest out. Two to a force.
fn append(ring: &mut Ring, from: usize, to: usize) -> Result<(), Error> {
    let mut ends = std::collections::VecDeque::new();
    for n in from..to {
        let bytes = pattern(n, [5, 100, 33, 250, 0, 400][n % 6]);
        ends.push_back(ring.append(&[&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]])?.end);
        if n % 2 == 1 {
            ring.force()?;
        }
        if n % 2 == 1 && ends.len() > 6 {
            ends.drain(..2).for_each(|end| ring.retire(end));
        }
    }
    Ok(ring.force()?)
}

impl Deref for Reference {
    type Target = Found;
    fn deref(&self) -> &Found {
        &self.found
    }
}

impl Reference {
    /// Builds the pool.
    ///
    /// # Errors
    /// Those of `pmem`: none for a `pmem` that works.
    pub fn new(variant: Variant) -> Result<Self, Error> {
        let sim = Sim::new(CAPACITY as u64, Model::Words);
        let pool = options().create_on(sim.clone())?;
        make_cells(&pool)?;
        make_checksummed(&pool)?;
        let mut ring = Ring::create(pool.add_region("ring", 4096)?.into_area()?)?;
        append(&mut ring, 0, 40)?;
        let mut grown = pool.add_region("grown", 4096)?;
        let build = Build::create(&pool)?;
        pool.grow_region(&mut grown, 4096)?;
        drop((grown, ring));
        for (slot, len) in [24, 24, 100, 500, 1500, 6000, 6100, 40, 20_000, 700, 24].into_iter().enumerate() {
            build.put(slot, len)?;
        }
        build.put(6, 0)?;
        build.objects.close()?;
        pool.close()?;
        // A second life, so that epochs differ along the rings.
        let pool = options().open_on(sim.clone())?;
        let (mut ring, found) = Ring::open(pool.region("ring")?.into_area()?)?;
        for record in &found.records {
            ring.retire(record.end);
        }
        append(&mut ring, 40, 50)?;
        drop(ring);
        let build = Build::open(&pool)?;
        build.put(1, 60)?;
        build.put(9, 0)?;
        let before = dump(&sim)?;
        let mut blocks_before = Vec::new();
        build.objects.heap().live_blocks(|offset, len| {
            blocks_before.push((offset, len));
            Ok(())
        })?;
        build.put(10, 300)?;
        let bytes = match variant {
            Variant::Clean => {
                build.objects.close()?;
                pool.close()?;
                dump(&sim)?
            }
            Variant::Dirty => dump(&sim)?,
            Variant::Crashed => {
                let mut bytes = before;
                let after = dump(&sim)?;
                let session = build.objects.lock();
                let table = session.get(build.root)?;
                let block = table.slots[10].offset() as usize;
                let log = pool.info().regions.iter().find(|r| r.name == "objects").map_or(0, |r| r.offset as usize);
                for range in [block..block + 300, log + 64..log + 4096] {
                    bytes[range.clone()].copy_from_slice(&after[range]);
                }
                bytes
            }
        };
        Self::with(variant, bytes, blocks_before)
    }

    /// Reads the pool, to know what others are compared with.
    fn with(variant: Variant, bytes: Vec<u8>, blocks_before: Vec<(u64, u64)>) -> Result<Self, Error> {
        let sim = Sim::new(CAPACITY as u64, Model::Words);
        load(&sim, &bytes)?;
        let pool = options().open_on(sim.clone())?;
        let regions = pool.info().regions;
        let build = Build::open(&pool)?;
        let session = build.objects.lock();
        let table = *session.get(build.root)?;
        let root = Object { ptr: build.root.cast(), len: size_of::<Table>() as u64, recent: false };
        let mut objects = vec![root];
        for (slot, (&ptr, &len)) in table.slots.iter().zip(&table.lens).enumerate().filter(|(_, (p, _))| !p.is_null()) {
            objects.push(Object { ptr, len, recent: slot == 10 });
        }
        drop(session);
        let mut reference = Self {
            variant,
            checksums: Checksum::header().into(),
            hot: Vec::new(),
            words: Vec::new(),
            found: Found::default(),
            older: value(3),
            regions,
            blocks_before,
            objects,
            bytes,
        };
        reference.find_checksums(&pool);
        reference.words = reference.interesting_words();
        drop((build, pool));
        load(&sim, &reference.bytes)?;
        reference.found = walk(&sim, &reference.objects);
        Ok(reference)
    }

    fn find_checksums(&mut self, pool: &Pool) {
        let cell = size_of::<Value>();
        let cells = self.region("cells").start;
        for at in [cells, cells + TwoSlot::<Value>::SIZE as usize] {
            self.checksums.extend(Checksum::cell(pool, at, cell));
        }
        let checksummed = self.region("checksummed");
        for (at, ..) in CHECKSUMMED {
            self.checksums.push(Checksum::Checksummed { at: checksummed.start + at as usize, end: checksummed.end });
        }
        let log = self.log();
        for recent in self.objects.iter().filter(|o| o.recent && self.variant != Variant::Clean) {
            // The newest record of the log is the one that makes it live.
            let newest = ring_records(&log).step_by(64).max_by_key(|&at| word(&self.bytes, at + 8));
            let block = recent.ptr.offset() as usize;
            let block = block..block + recent.len as usize;
            self.checksums.extend(newest.map(|at| Checksum::outside(pool, &log, at, vec![block.clone()])));
            self.hot.push(block);
        }
        for ring in [self.region("ring"), log] {
            self.checksums.extend(Checksum::ring(pool, ring, &self.bytes));
        }
        self.checksums.push(Checksum::root(pool, self.region("objects").start));
        self.checksums.extend(Checksum::heap(pool, self.region("objects.heap").start, CHUNKS as usize));
        // By structure, so that many small ones do not outweigh the others.
        let Tables { table, bits, codes, twin, .. } = self.tables();
        let single: Vec<Range> = self
            .checksums
            .iter()
            .filter(|s| !matches!(s, Checksum::Chunk { .. } | Checksum::Pair { .. }))
            .map(Checksum::covers)
            .collect();
        self.hot.extend(single);
        self.hot.extend([table.clone(), table, twin, bits.clone(), bits, codes]);
        for record in [self.region("ring"), self.log()] {
            self.hot.extend((0..4).map(|_| ring_records(&record)));
        }
    }

    /// The bytes of the first extent of a region.
    pub fn region(&self, name: &str) -> Range {
        let found = self.regions.iter().find(|r| r.name == name && r.part == 0);
        found.map_or(0..0, |r| r.offset as usize..(r.offset + r.len) as usize)
    }

    /// The ring of publications: behind the root line.
    pub fn log(&self) -> Range {
        let region = self.region("objects");
        region.start + 64..region.end
    }

    fn interesting_words(&self) -> Vec<u64> {
        let mut words = vec![0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, u64::from(u32::MAX)];
        words.extend([63, 64, 65, 128, 4095, 4096, 4097, CAPACITY as u64, self.bytes.len() as u64]);
        words.extend(self.regions.iter().flat_map(|r| [r.offset, r.len, r.offset + r.len]));
        words.extend(self.objects.iter().flat_map(|o| [o.ptr.raw(), o.ptr.offset(), o.len, o.ptr.offset() | 1 << 63]));
        words.extend([u64::MAX - 63, u64::MAX - 127, (1 << 48) - 1, (1 << 47) - 64]);
        words
    }

    /// A number that means something somewhere in the pool.
    pub(crate) fn interesting(&self, rng: &mut Rng) -> u64 {
        match rng.below(4) {
            0 => rng.bits(),
            1 => word(&self.bytes, self.hot_place(rng.bits() as usize >> 1) / 8 * 8),
            _ => self.words[rng.index(self.words.len())],
        }
    }

    /// A place that some checksum covers, for any number.
    pub(crate) fn hot_place(&self, n: usize) -> usize {
        let range = &self.hot[n % self.hot.len()];
        range.start + n / self.hot.len() % range.len()
    }

    /// How the pool was left.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes all checksums fit the bytes again, as they are now.
    pub fn rechecksum(&self, bytes: &mut [u8]) {
        self.checksums.iter().for_each(|checksum| checksum.apply(bytes));
    }

    /// Where the heap has what.
    fn tables(&self) -> Tables {
        Tables::new(self.region("objects.heap").start, CHUNKS as usize)
    }

    /// Where the heap's chunks begin.
    pub fn chunks(&self) -> usize {
        self.tables().chunks
    }

    /// Blocks in these ranges lost both of their chunk's table words and its whole bitmap with its codes, which is now that of a chunk never used.
    pub(crate) fn exempt_chunks(&self, bytes: &[u8]) -> Vec<std::ops::Range<u64>> {
        let Tables { table, bits, codes, twin, chunks } = self.tables();
        let chunks_at = chunks as u64;
        let zero = |at: usize| word(bytes, at) == 0;
        let words = |n: usize| {
            let maps = (0..4).flat_map(move |w| [bits.start, codes.start].map(|at| at + n * 32 + w * 8));
            maps.chain([table.start + n * 8, twin.start + n * 8])
        };
        let erased = (0..CHUNKS).filter(|&n| words(n as usize).all(zero));
        // A span's bitmap is its first chunk's; the longest has five.
        erased.map(|n| chunks_at + n * 4096..chunks_at + (n + 5) * 4096).collect()
    }
}

/// A fresh memory for judging.
pub(crate) fn memory() -> Arc<Sim> {
    Sim::new(CAPACITY as u64, Model::Words)
}
