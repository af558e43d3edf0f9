//! A record store by editable atomic writes (MARS, SOSP 2013, section 3.4 and table 3).
//!
//! A transaction writes records where they belong, and the [array](crate::array) sees to it that all of it happens or nothing: there are no pages, no sequence numbers of a log, no undo, and what
//! is not committed is on no medium, in a log of its own, or in slots that are free. A commit forces what it wrote, behind one barrier. Restart is the array's; then all blocks are
//! read once.
//!
//! | ARIES has | here |
//! |---|---|
//! | steal: pages of what is not committed go to the medium | what is not committed is in memory, beyond [`draft_max`](crate::array::Options::draft_max) in the array's log; large records in free slots |
//! | no force: a commit writes the log only | a commit writes the array's log; the array copies it |
//! | undo and its compensation records | a log that is dropped |
//! | page sequence numbers, a dirty page table, checkpoints of both | the array's mark; [`checkpoint`](Records::checkpoint) moves it |
//! | savepoints, nested top actions, record locks | the same |
//! | logging of operations | none: a record's new bytes are logged |
//!
//! Each record is in a slot of its own, behind a header that says what it is; the slots of a block are of one size. Where a record is, and which slots are free, is in memory: 24 bytes
//! for each record. A record that outgrows its slot moves.
//!
//! # Invariants
//!
//! 1. A slot that a transaction left is given to others when that has committed; one that it took, when it has aborted.
//! 2. A block's size of slots changes while all of them are free, in one atomic write with the headers of the new ones; a new block's with the number of those that are used, so that
//!    nothing that is zero is taken for what was never used.
//! 3. What is placed past the log goes to a slot that holds no record, and to none of its lines that a log writes: the first one, with the header, is logged.
//! 4. A transaction that looks at a record's place has it locked.
//!
//! What costs: an update that fits its slot is one write of header and record, an insert too; a delete 32 bytes; a move both. One barrier for a commit, none for what only reads. In memory a large
//! record moves at its first update in a transaction, if a slot is free without more data files, and is [placed](Transaction::place) there: on media once, for a barrier more ([`Mars::place_min`]).
//!
//! ```
//! # fn main() -> eaw::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! use eaw::mars::{Mars, Options};
//! use eaw::records::{RecordTx, Records};
//!
//! let store = Options::new().create(eaw::array::Options::new().create(&[&path])?)?;
//! let accounts = store.create_table("accounts")?;
//! let mut tx = store.begin()?;
//! let anna = tx.insert(accounts, b"Anna: 10")?;
//! let bert = tx.insert(accounts, b"Bert: 0")?;
//! tx.commit()?;
//!
//! let mut tx = store.begin()?;
//! tx.update(accounts, anna, b"Anna: 7")?;
//! tx.update(accounts, bert, b"Bert: 3")?;
//! tx.commit()?; // both or none, behind one barrier
//! store.close()?;
//!
//! let store = Mars::open(eaw::array::Options::new().open(&[&path])?)?;
//! let (mut tx, mut record) = (store.begin()?, Vec::new());
//! tx.read(store.table("accounts")?, bert, &mut record)?;
//! assert_eq!(record, b"Bert: 3");
//! # Ok(()) }
//! ```

mod failpoints;
mod layout;
mod transaction;

use std::sync::OnceLock;

use pmem::sync::Mutex;

#[cfg(any(test, feature = "failpoints"))]
pub use failpoints::Step;
#[cfg(not(any(test, feature = "failpoints")))]
use failpoints::Step;
pub use transaction::MarsTx;

#[cfg(doc)]
use crate::array::Transaction;
use crate::array::{Array, File};
use crate::error::{Error, Result};
use crate::records::session::Shared;
use crate::records::space::{Claimed, Location, Space, slot_bytes};
use crate::records::{Records, Table};
use layout::{Broken, HEADER, Keys, LINE, NAME, RecordHeader, SEGMENTS_MAX, TABLE_NAME_MAX, TABLES_MAX, VERSION, word};

/// How a store is made.
#[derive(Clone, Debug)]
pub struct Options {
    block: u64,
    segment: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Blocks of 256 KiB; 16 MiB for data at first, and as much again each time that is full.
    pub fn new() -> Self {
        Self { block: 256 << 10, segment: 16 << 20 }
    }

    /// Bytes of a block, whose slots are of one size: a multiple of 64. A record takes at most 96 bytes less.
    #[must_use]
    pub fn block_bytes(self, bytes: u64) -> Self {
        Self { block: bytes, ..self }
    }

    /// Bytes for data when it is made, at least a block.
    #[must_use]
    pub fn segment_bytes(self, bytes: u64) -> Self {
        Self { segment: bytes, ..self }
    }

    /// Makes a store in an array, among other files. If that is cut short there is none, and it can be made again, of the same sizes.
    ///
    /// # Errors
    /// [`Error::StoreExists`]; [`Error::Limit`] for sizes; those of [`Array::create_file`].
    pub fn create(&self, array: Array) -> Result<Mars> {
        let limit = |what, found, min, max| Err(Error::Limit { what, found, min, max });
        if !(256..=1 << 30).contains(&self.block) || !self.block.is_multiple_of(LINE) {
            return limit("bytes of a block, a multiple of 64", self.block, 256, 1 << 30);
        }
        if !(self.block..=1 << 40).contains(&self.segment) {
            return limit("bytes for data", self.segment, self.block, 1 << 40);
        }
        let blocks = self.segment / self.block;
        let keys = Keys::new(&array.key(KEY));
        if let Ok(catalog) = array.file(NAME)
            && Header::read(&array, &catalog, &keys)?.is_some()
        {
            return Err(Error::StoreExists);
        }
        let catalog = array.file_or_create(NAME, catalog_bytes())?;
        array.file_or_create(&segment_name(0), blocks * self.block)?;
        let header = Header { version: VERSION, tables: 0, block: self.block, blocks, used: 0 };
        array.atomic_write(&catalog, 0, &keys.line(0, &header.bytes()))?;
        Mars::open(array)
    }
}

/// A barrier more, and the headers of two slots instead of one, cost less than a second copy of so many bytes.
const PLACE_MIN: usize = 16 << 10;

const KEY: u64 = 0x4d41_5253; // MARS

fn catalog_bytes() -> u64 {
    (1 + TABLES_MAX as u64) * LINE
}

fn segment_name(number: u32) -> String {
    format!("{NAME}.{number}")
}

/// What there is, on the medium.
#[derive(Clone, Copy)]
struct Header {
    version: u32,
    tables: u32,
    block: u64,
    /// Of the first data file.
    blocks: u64,
    /// Blocks that have slots: those before all others.
    used: u64,
}

impl Header {
    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [u64::from(self.version) | u64::from(self.tables) << 32, self.block, self.blocks, self.used];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// None if there is no store, and never was.
    fn read(array: &Array, catalog: &File, keys: &Keys) -> Result<Option<Self>> {
        let damaged = || array.damaged("header of a store of records");
        if catalog.len() != catalog_bytes() {
            return Err(damaged());
        }
        let mut line = [0; LINE as usize];
        array.read(catalog, 0, &mut line)?;
        let Some(said) = keys.open_line(0, &line).map_err(|Broken| damaged())? else {
            // It is written before anything else.
            let mut lines = vec![0; catalog_bytes() as usize];
            array.read(catalog, 0, &mut lines)?;
            if let Ok(data) = array.file(&segment_name(0)) {
                array.read(&data, 0, &mut line[..data.len().min(LINE) as usize])?;
            }
            let is_zero = lines.iter().chain(&line).all(|byte| *byte == 0);
            return if is_zero { Ok(None) } else { Err(damaged()) };
        };
        let [first, block, blocks, used] = [0, 8, 16, 24].map(|at| word(&said, at));
        let header = Self { version: first as u32, tables: (first >> 32) as u32, block, blocks, used };
        if header.version > VERSION {
            let (path, found) = (array.path(), header.version);
            return Err(Error::NewerVersion { path, found, known: VERSION });
        }
        let is_sound = (256..=1 << 30).contains(&block)
            && block.is_multiple_of(LINE)
            && blocks > 0
            && blocks.checked_mul(block).is_some_and(|bytes| bytes <= 1 << 40)
            && header.tables as usize <= TABLES_MAX;
        if is_sound { Ok(Some(header)) } else { Err(damaged()) }
    }
}

/// The data files: each has twice as many blocks as the one before. A look-up of one writes to nothing that others read.
#[derive(Default)]
struct Segments([OnceLock<File>; SEGMENTS_MAX as usize]);

impl Segments {
    fn get(&self, number: u32) -> Option<&File> {
        self.0.get(number as usize)?.get()
    }

    fn iter(&self) -> impl Iterator<Item = &File> {
        self.0.iter().map_while(OnceLock::get)
    }

    fn len(&self) -> u32 {
        self.iter().count() as u32
    }

    /// One thread at a time.
    fn push(&self, file: File) {
        let free = self.0.iter().find(|segment| segment.get().is_none());
        free.into_iter().for_each(|segment| _ = segment.set(file.clone()));
    }
}

/// A store of records in an array: see the [module](self). Shared by reference between threads.
pub struct Mars {
    array: Array,
    keys: Keys,
    catalog: File,
    segments: Segments,
    /// Of the first one.
    blocks: u64,
    block: u64,
    /// As it is on the medium. A thread that changes it, or makes slots, has it: before the lock of the space.
    head: Mutex<Header>,
    shared: Shared,
    /// Records of so many bytes are placed past the log.
    place_min: usize,
    /// Headers that are damaged.
    damaged: Vec<Damage>,
    #[cfg(any(test, feature = "failpoints"))]
    without: Option<Step>,
}

/// A slot or a block whose header is not what was stored: what records were there is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file of the array.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What there is no header of.
    pub what: &'static str,
}

impl Mars {
    /// Opens the store that is in an array. Reads all blocks that are used.
    ///
    /// # Errors
    /// [`Error::NoStore`]; [`Error::NewerVersion`], [`Error::Damaged`].
    pub fn open(array: Array) -> Result<Self> {
        let missing = |error| if matches!(error, Error::NoFile { .. }) { Error::NoStore } else { error };
        let catalog = array.file(NAME).map_err(missing)?;
        let keys = Keys::new(&array.key(KEY));
        let header = Header::read(&array, &catalog, &keys)?.ok_or(Error::NoStore)?;
        let mut store = Self {
            keys,
            segments: Segments::default(),
            blocks: header.blocks,
            block: header.block,
            head: Mutex::new(header),
            shared: Shared::new(Space::new(header.block), (header.block - LINE) as usize - HEADER),
            place_min: PLACE_MIN,
            damaged: Vec::new(),
            #[cfg(any(test, feature = "failpoints"))]
            without: None,
            catalog,
            array,
        };
        store.read_catalog()?;
        store.read_blocks()?;
        Ok(store)
    }

    /// Records of so many bytes and more go at once to a slot that is free, past the array's log, which gets their first line: they are on media once, for a barrier more in the
    /// commit. In memory only; 16 KiB unless told otherwise.
    #[must_use]
    pub fn place_min(self, bytes: usize) -> Self {
        Self { place_min: bytes, ..self }
    }

    fn places(&self, len: usize) -> bool {
        len >= self.place_min && len + HEADER > LINE as usize && self.array.is_memory()
    }

    fn read_catalog(&self) -> Result<()> {
        let count = self.head.lock().tables as usize;
        let mut lines = vec![0; count * LINE as usize];
        self.array.read(&self.catalog, LINE, &mut lines)?;
        let mut tables = self.shared.tables.lock();
        for (line, at) in lines.chunks_exact(LINE as usize).zip((LINE..).step_by(LINE as usize)) {
            let damaged = || self.array.damaged("catalog of a store of records");
            let said = self.keys.open_line(at, line).ok().flatten().ok_or_else(damaged)?;
            let name = said[..TABLE_NAME_MAX].split(|byte| *byte == 0).next().unwrap_or_default();
            tables.push(String::from_utf8(name.to_vec()).map_err(|_| damaged())?);
        }
        Ok(())
    }

    fn read_blocks(&mut self) -> Result<()> {
        let Header { tables, used, .. } = *self.head.get_mut();
        let space = self.shared.space.get_mut();
        for number in 0..SEGMENTS_MAX {
            let file = match self.array.file(&segment_name(number)) {
                Ok(file) => file,
                Err(Error::NoFile { .. }) => break,
                Err(error) => return Err(error),
            };
            if file.len() != (self.blocks << number) * self.block {
                return Err(self.array.damaged("length of a data file of a store of records"));
            }
            space.grow(self.blocks << number);
            self.segments.push(file);
        }
        if self.segments.len() == 0 || space.blocks() < used {
            return Err(self.array.damaged("list of data files of a store of records"));
        }
        let (mut bytes, mut damaged) = (vec![0; self.block as usize], Vec::new());
        let mut block = 0;
        for (file, count) in self.segments.iter().zip((0..).map(|number| self.blocks << number)) {
            let first = block;
            while block < (first + count).min(used) {
                let start = block * self.block;
                let broken =
                    |at: u64, what| Damage { file: file.name().to_owned(), offset: at - first * self.block, what };
                self.array.read(file, start - first * self.block, &mut bytes)?;
                let said = self.keys.open_line(start, &bytes[..LINE as usize]).ok().flatten();
                match said.map(|said| word(&said, 0)).filter(|slot| is_slot(*slot, self.block)) {
                    Some(slot) => {
                        space.has_slots(block, slot as u32);
                        for at in space.slots(block, slot as u32) {
                            let header = &bytes[(at - start) as usize..][..HEADER];
                            let is_record = |said: &RecordHeader| {
                                u64::from(said.len) + HEADER as u64 <= slot && said.table < tables && said.id > 0
                            };
                            match self.keys.open_header(at, header) {
                                Ok(None) => space.give_slot(at),
                                Ok(Some(said)) if is_record(&said) => {
                                    let location = Location { at, table: said.table, len: said.len };
                                    if !space.found(said.id, location) {
                                        damaged.push(broken(at, "a record that is there twice"));
                                    }
                                }
                                _ => damaged.push(broken(at, "a record")),
                            }
                        }
                    }
                    None => {
                        damaged.push(broken(start, "a block"));
                        // Nothing is put there: the block counts as one slot that is never free.
                        space.has_slots(block, (self.block - LINE) as u32);
                    }
                }
                block += 1;
            }
            block = first + count;
        }
        space.collect_ids();
        self.shared.damaged = damaged.len();
        self.damaged = damaged;
        Ok(())
    }

    /// The array below.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Records, of all tables, those that are not committed yet included; 0 in the child of a fork.
    pub fn len(&self) -> u64 {
        if self.array.check_process().is_err() {
            return 0;
        }
        self.shared.space.lock().count()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Headers that were found to be damaged when it was opened. All other records are there.
    pub fn damaged(&self) -> &[Damage] {
        &self.damaged
    }

    /// Its tables, in the order in which they were made; none in the child of a fork.
    pub fn tables(&self) -> Vec<String> {
        if self.array.check_process().is_err() {
            return Vec::new();
        }
        self.shared.tables.lock().clone()
    }

    /// For tests: drops it and leaves the files as a crash would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.array.abandon();
    }

    /// Leaves a step of the protocol out.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn without(self, step: Step) -> Self {
        Self { without: Some(step), ..self }
    }

    #[cfg(any(test, feature = "failpoints"))]
    fn has(&self, step: Step) -> bool {
        self.without != Some(step)
    }

    #[cfg(not(any(test, feature = "failpoints")))]
    #[inline(always)]
    fn has(&self, _: Step) -> bool {
        true
    }

    /// The data file that has this byte of all of them, and where in it.
    fn locate(&self, at: u64) -> Result<(&File, u64)> {
        let first = self.blocks * self.block;
        let number = (at / first + 1).ilog2();
        let file =
            self.segments.get(number).ok_or_else(|| self.array.damaged("list of data files of a store of records"))?;
        Ok((file, at - first * ((1 << number) - 1)))
    }

    /// A free slot for a record of so many bytes; unless it `grows`, in the data files that there are.
    fn take_slot(&self, len: usize, grows: bool) -> Result<u64> {
        let slot = slot_bytes(len + HEADER, self.block);
        let format = |head: &mut Header, claimed: Claimed| self.format(head, claimed, slot);
        let grow = || if grows { self.grow() } else { Err(no_more_files(self.segments.len().into())) };
        self.shared.take_slot(&self.head, slot, format, grow)
    }

    /// On the medium the block has free slots of this size, and is one of those that are used.
    fn format(&self, head: &mut Header, Claimed { block, before }: Claimed, slot: u32) -> Result<()> {
        let (start, is_new) = (block * self.block, before == 0);
        let (file, within) = self.locate(start)?;
        let mut tx = self.array.begin()?;
        let header = self.keys.line(start, &u64::from(slot).to_le_bytes());
        let slots = start + LINE..start + self.block;
        let slots: Vec<u64> =
            slots.step_by(slot as usize).filter(|at| at + u64::from(slot) <= start + self.block).collect();
        let mut next = *head;
        if is_new {
            next.used = block + 1;
            tx.log_write(&self.catalog, 0, &self.keys.line(0, &next.bytes()))?;
        }
        if slots.len() > APART_MAX {
            // In one piece: where each of many headers goes would take as much.
            let mut image = vec![0; self.block as usize];
            image[..LINE as usize].copy_from_slice(&header);
            for at in slots {
                image[(at - start) as usize..][..HEADER].copy_from_slice(&self.keys.empty(at));
            }
            tx.log_write(file, within, &image)?;
        } else {
            if self.has(Step::BlockFirst) {
                tx.log_write(file, within, &header)?;
            }
            for at in slots.into_iter().filter(|_| is_new || self.has(Step::ClearSlots)) {
                tx.log_write(file, within + (at - start), &self.keys.empty(at))?;
            }
        }
        tx.commit()?;
        *head = next;
        Ok(())
    }

    /// As many blocks again as there are, and one time more. A thread that makes slots waits, and no other.
    fn grow(&self) -> Result<u64> {
        let number = self.segments.len();
        if number == SEGMENTS_MAX {
            return Err(no_more_files(SEGMENTS_MAX.into()));
        }
        let count = self.blocks << number;
        let file = self.array.file_or_create(&segment_name(number), count * self.block)?;
        self.segments.push(file);
        Ok(count)
    }
}

/// There are to be `max` data files.
fn no_more_files(max: u64) -> Error {
    Error::Limit { what: "data files of a store of records", found: max + 1, min: 1, max }
}

/// Headers of a new block's slots that are written one by one at most.
const APART_MAX: usize = 256;

fn is_slot(bytes: u64, block: u64) -> bool {
    (LINE..=block - LINE).contains(&bytes) && bytes.is_multiple_of(LINE)
}

impl Records for Mars {
    type Tx<'a> = MarsTx<'a>;

    fn begin(&self) -> Result<MarsTx<'_>> {
        Ok(MarsTx::new(self, self.array.begin()?))
    }

    fn create_table(&self, name: &str) -> Result<Table> {
        if name.is_empty() || name.len() > TABLE_NAME_MAX || name.contains('\0') {
            return Err(Error::BadTableName { name: name.to_owned(), max: TABLE_NAME_MAX });
        }
        self.array.check_process()?;
        let mut head = self.head.lock();
        let mut tables = self.shared.tables.lock();
        if tables.iter().any(|other| other == name) {
            return Err(Error::TableExists { name: name.to_owned() });
        }
        let number = tables.len();
        if number == TABLES_MAX {
            let (found, max) = (number as u64 + 1, TABLES_MAX as u64);
            return Err(Error::Limit { what: "tables of a store", found, min: 0, max });
        }
        let at = (number as u64 + 1) * LINE;
        let next = Header { tables: number as u32 + 1, ..*head };
        let mut tx = self.array.begin()?;
        tx.log_write(&self.catalog, 0, &self.keys.line(0, &next.bytes()))?;
        tx.log_write(&self.catalog, at, &self.keys.line(at, name.as_bytes()))?;
        tx.commit()?;
        *head = next;
        tables.push(name.to_owned());
        Ok(Table(number as u32))
    }

    fn table(&self, name: &str) -> Result<Table> {
        self.array.check_process()?;
        self.shared.table(name)
    }

    fn record_max(&self) -> usize {
        self.shared.record_max()
    }

    fn checkpoint(&self) -> Result<()> {
        self.array.checkpoint()
    }

    fn close(self) -> Result<()> {
        self.array.close()
    }
}

impl std::fmt::Debug for Mars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mars").field("tables", &self.shared.tables.lock().len()).finish_non_exhaustive()
    }
}
