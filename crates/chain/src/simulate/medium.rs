//! A replica's medium: what is written is in a cache; a barrier makes it durable; a power cut leaves any part of the rest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use crash::Rng;

use crate::{Entry, Found, Object, Record, ReplicaId};

/// Words of an object.
pub(super) const WORDS: usize = 64;
pub(super) type Cell = [u64; WORDS];
/// The word that says where the block of an object is; lists do not get that long.
pub(super) const BLOCK: usize = WORDS - 1;

/// First byte and length of a block, as a word; 0 is none.
pub(super) fn word((start, len): (u64, u64)) -> u64 {
    start << 32 | len
}

pub(super) fn extent(word: u64) -> Option<(u64, u64)> {
    (word != 0).then_some((word >> 32, word & u64::from(u32::MAX)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: ReplicaId,
    pub(super) whole: bool,
    pub(super) retired: u64,
}

/// A record, or at the head one whose bytes are those in the heap, under a checksum.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) record: Record,
    pub(super) digest: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) header: Header,
    pub(super) queue: BTreeMap<u64, Stored>,
    pub(super) cells: Vec<Cell>,
    /// Of the head: what objects were when their last transaction was applied, made before the first write.
    pub(super) copies: BTreeMap<u64, Cell>,
}

#[derive(Clone, Debug)]
pub(super) enum Write {
    Header(Header),
    Entry(u64, Option<Stored>),
    Word { cell: u64, word: usize, value: u64 },
    Copy(u64, Option<Box<Cell>>),
}

/// What a write is to.
type Target = (u8, u64, usize);

impl Write {
    fn target(&self) -> Target {
        match self {
            Self::Header(_) => (0, 0, 0),
            Self::Entry(n, _) => (1, *n, 0),
            Self::Word { cell, word, .. } => (2, *cell, *word),
            Self::Copy(cell, _) => (3, *cell, 0),
        }
    }
}

impl Image {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Header(header) => {
                self.header = *header;
                self.queue.retain(|&n, _| n > header.retired);
            }
            Write::Entry(n, Some(stored)) => drop(self.queue.insert(*n, stored.clone())),
            Write::Entry(n, None) => drop(self.queue.remove(n)),
            Write::Word { cell, word, value } => self.cells[*cell as usize][*word] = *value,
            Write::Copy(cell, Some(copy)) => drop(self.copies.insert(*cell, **copy)),
            Write::Copy(cell, None) => drop(self.copies.remove(cell)),
        }
    }

    pub(super) fn encode(&self, objects: &[Object]) -> Vec<u8> {
        let cells = objects.iter().map(|object| (object.0, &self.cells[object.0 as usize]));
        cells
            .flat_map(|(object, cell)| std::iter::once(object).chain(cell.iter().copied()))
            .flat_map(u64::to_le_bytes)
            .collect()
    }
}

/// Objects and what is to be in them.
pub(super) fn decode(bytes: &[u8]) -> Vec<(u64, Cell)> {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| word.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))).collect();
    let cell = |words: &[u64]| {
        let mut cell = [0; WORDS];
        cell.copy_from_slice(&words[1..]);
        (words[0], cell)
    };
    words.chunks_exact(WORDS + 1).map(cell).collect()
}

pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

pub(super) struct Medium {
    durable: Image,
    pub(super) cached: Image,
    /// In order, with the transaction that wrote it, 0 for the replica.
    pending: VecDeque<(u64, u64, Write)>,
    next: u64,
}

impl Medium {
    pub(super) fn new(id: ReplicaId, whole: bool, objects: usize) -> Self {
        let header = Header { id, whole, retired: 0 };
        let image = Image { header, queue: BTreeMap::new(), cells: vec![[0; WORDS]; objects], copies: BTreeMap::new() };
        Self { durable: image.clone(), cached: image, pending: VecDeque::new(), next: 0 }
    }

    pub(super) fn write(&mut self, owner: u64, write: Write) {
        // Records go from the cache when the note that they count no more is durable.
        match &write {
            Write::Header(header) => self.cached.header = *header,
            write => self.cached.apply(write),
        }
        self.pending.push_back((self.next, owner, write));
        self.next += 1;
    }

    pub(super) fn write_cell(&mut self, owner: u64, cell: u64, value: &Cell) {
        for (word, &value) in value.iter().enumerate() {
            if self.cached.cells[cell as usize][word] != value {
                self.write(owner, Write::Word { cell, word, value });
            }
        }
    }

    /// With a barrier of its own.
    pub(super) fn write_through(&mut self, write: &Write) {
        self.cached.apply(write);
        self.durable.apply(write);
        let target = write.target();
        self.pending.retain(|(_, _, earlier)| earlier.target() != target);
    }

    /// Through here records are retired, and it is durable.
    pub(super) fn retired(&self) -> u64 {
        self.durable.header.retired
    }

    /// True if a note waits for a barrier.
    pub(super) fn has_note(&self) -> bool {
        self.cached.header != self.durable.header
    }

    /// What a barrier that is asked for now covers.
    pub(super) fn mark(&self) -> u64 {
        self.next
    }

    pub(super) fn drain(&mut self, mark: u64) {
        while let Some((_, _, write)) = self.pending.pop_front_if(|(at, ..)| *at < mark) {
            self.make_durable(&write);
        }
    }

    fn make_durable(&mut self, write: &Write) {
        self.durable.apply(write);
        if let Write::Header(header) = write {
            self.cached.queue.retain(|&n, _| n > header.retired);
        }
    }

    /// The barrier of one transaction.
    pub(super) fn drain_of(&mut self, owner: u64) {
        let mut targets = BTreeSet::new();
        let mut rest = VecDeque::new();
        for (at, of, write) in std::mem::take(&mut self.pending) {
            if of == owner {
                targets.insert(write.target());
                self.make_durable(&write);
            } else {
                rest.push_back((at, of, write));
            }
        }
        // What stood in the same lines before has been written back with them.
        rest.retain(|(_, _, write)| !targets.contains(&write.target()));
        self.pending = rest;
    }

    /// Any part of what no barrier covers is durable: words, entries, headers.
    pub(super) fn power_cut(&mut self, rng: &mut Rng) {
        let keep = [0, 1, 4, 4, 7, 8][rng.index(6)];
        for (_, _, write) in std::mem::take(&mut self.pending) {
            if rng.chance(keep, 8) {
                self.durable.apply(&write);
            } else if let Write::Entry(n, Some(_)) = &write {
                // Torn over what was there.
                if rng.chance(1, 2) {
                    self.durable.queue.remove(n);
                }
            }
        }
        self.cached = self.durable.clone();
    }

    /// A record whose checksum is right.
    pub(super) fn load(&self, n: u64) -> Option<Record> {
        let Stored { record, digest: sum } = self.cached.queue.get(&n)?;
        let Some(sum) = sum else { return Some(record.clone()) };
        let bytes = self.cached.encode(&record.entry.objects);
        (digest(&bytes) == *sum).then(|| Record { entry: record.entry.clone(), bytes })
    }

    pub(super) fn found(&self) -> Found {
        let Header { id, whole, retired } = self.cached.header;
        let entries: Vec<Entry> = (self.cached.queue.range(retired + 1..))
            .filter_map(|(&n, _)| self.load(n))
            .map(|record| record.entry)
            .collect();
        Found { id, whole, retired, entries }
    }

    pub(super) fn erase(&mut self) {
        let entries: Vec<u64> = self.cached.queue.keys().copied().collect();
        entries.into_iter().for_each(|n| self.write(0, Write::Entry(n, None)));
        let copies: Vec<u64> = self.cached.copies.keys().copied().collect();
        copies.into_iter().for_each(|cell| self.write(0, Write::Copy(cell, None)));
        (0..self.cached.cells.len() as u64).for_each(|cell| self.write_cell(0, cell, &[0; WORDS]));
    }

    /// What no record is of goes back to its copy, then the records are carried out. The backup stays: it may not have what could still be lost. False: a record is not there.
    pub(super) fn recover(&mut self, first: u64, last: u64) -> bool {
        let records: Vec<Option<Record>> = (first..=last).map(|n| self.load(n)).collect();
        let all = records.iter().all(Option::is_some);
        let covered: BTreeSet<u64> =
            records.iter().flatten().flat_map(|record| record.entry.objects.iter().map(|o| o.0)).collect();
        let copies: Vec<(u64, Cell)> = self.cached.copies.iter().map(|(&cell, &copy)| (cell, copy)).collect();
        for (cell, copy) in copies.iter().filter(|(cell, _)| !covered.contains(cell)) {
            self.write_cell(0, *cell, copy);
        }
        for record in records.iter().flatten() {
            decode(&record.bytes).iter().for_each(|(cell, value)| self.write_cell(0, *cell, value));
        }
        all
    }

    /// The backup of what records through there have written is what they have left.
    pub(super) fn apply(&mut self, through: u64) {
        let written: BTreeSet<u64> =
            (self.cached.queue.range(self.cached.header.retired + 1..=through.max(self.cached.header.retired + 1)))
                .flat_map(|(_, stored)| stored.record.entry.objects.iter().map(|o| o.0))
                .collect();
        for cell in written.into_iter().filter(|cell| self.cached.copies.contains_key(cell)).collect::<Vec<_>>() {
            let value = self.cached.cells[cell as usize];
            self.write(0, Write::Copy(cell, Some(Box::new(value))));
        }
    }
}
