//! A replica's medium: a pool with a note of whose copy it is, the queue, and the heap's image.
//!
//! [`Medium::carry_out`] writes and flushes; [`Medium::barrier`] makes all of it persistent at once, whatever the number of records. One thread does both.
//!
//! Nothing is stored into the image that is not persistent in the queue, at the head too: a transaction's writes stay in DRAM until its record is. So there is nothing to undo, and
//! after a crash the queue over the image is all of recovery.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pmem::sync::Mutex;
use pmem::{Area, Options, Persist, Pool, Position, Ring, TwoSlot};

use crate::entries::{self, Told};
use crate::image::{CAPACITY_MIN, Image, check};
use crate::{Barrier, Command, Entry, Error, Event, Found, Object, Record, ReplicaId, Result};

const LAYOUT: &str = "cairn-chain";
const NOTE: &str = "chain-note";
const QUEUE: &str = "chain-queue";
const IMAGE: &str = "chain-image";
const STARTS: &str = "chain-starts";
const VERSION: u32 = 1;
/// Of the pool itself.
const OVERHEAD: u64 = 64 << 10;

/// Sizes of a new replica: all members of a chain have the same capacity.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the heap, its own tables included.
    pub capacity: u64,
    /// Bytes of the queue: a transaction writes an eighth of them at most.
    pub queue: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { capacity: 64 << 20, queue: 16 << 20 }
    }
}

/// Whose copy it is, and what counts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(C)]
struct Note {
    version: u32,
    machine: u32,
    incarnation: u32,
    whole: u32,
    retired: u64,
}

/// How often a process has started on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(C)]
struct Starts {
    last: u64,
}

impl Note {
    fn id(&self) -> ReplicaId {
        ReplicaId { machine: self.machine, incarnation: self.incarnation }
    }
}

#[derive(Debug)]
struct Stored {
    record: Record,
    position: Position,
}

/// A step that is left out, for tests that must fail then.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// Space of records is free when the note that they count no more is persistent.
    FreeBehindNote,
    /// Entries of an earlier incarnation of the copy are nothing.
    Incarnation,
    /// What is in place is persistent in the queue before.
    ExecuteBehindBarrier,
    /// The note is written.
    Note,
}

/// A replica's medium, open.
#[derive(Debug)]
pub struct Medium {
    omission: Option<Omission>,
    pool: Pool,
    note: TwoSlot<Note>,
    /// As it is to be after the next barrier.
    noted: Note,
    starts: Option<TwoSlot<Starts>>,
    ring: Ring,
    /// Those that are not retired.
    records: BTreeMap<u64, Stored>,
    image: Arc<Mutex<Image>>,
    /// Records that stand in the ring behind no barrier, and those of them that the head commits.
    committing: Vec<u64>,
    barrier: Option<Barrier>,
}

impl Medium {
    /// A new replica's file. `whole`: a member of a chain that begins; another one gets its heap from the chain.
    ///
    /// # Errors
    /// Those of creating a pool.
    pub fn create(path: impl AsRef<Path>, id: ReplicaId, whole: bool, sizes: Sizes) -> Result<()> {
        let options = Options::new().size(Self::file_len(sizes)).layout(LAYOUT);
        options.create_with(path, |pool| {
            Self::format(pool, id, whole, sizes)?;
            TwoSlot::create(pool.add_region(STARTS, TwoSlot::<Starts>::SIZE)?.into_area()?, &Starts { last: 0 })
                .map(drop)
        })?;
        Ok(())
    }

    /// The number of the last start; none in a file of an earlier version.
    #[must_use]
    pub fn starts(&self) -> Option<u64> {
        self.starts.as_ref().map(|starts| starts.get().last)
    }

    /// Notes the number of a start, persistently.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn set_starts(&mut self, last: u64) -> Result<()> {
        if let Some(starts) = &mut self.starts {
            starts.update(&Starts { last })?;
        }
        Ok(())
    }

    /// The pool's own number: no other file has it, but a copy of this one.
    #[must_use]
    pub fn pool_id(&self) -> u64 {
        self.pool.id()
    }

    /// Those that it was made with, in whole units of the pool.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let regions = self.pool.info().regions;
        let len = |name: &str| regions.iter().filter(|region| region.name == name).map(|region| region.len).sum();
        Sizes { capacity: len(IMAGE), queue: len(QUEUE) }
    }

    /// Bytes of the file.
    #[must_use]
    pub fn file_len(sizes: Sizes) -> u64 {
        OVERHEAD + sizes.queue.next_multiple_of(4096) + sizes.capacity.next_multiple_of(4096)
    }

    /// Makes an empty replica of a new pool.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn format(pool: &Pool, id: ReplicaId, whole: bool, sizes: Sizes) -> pmem::Result<()> {
        let note = pool.add_region(NOTE, TwoSlot::<Note>::SIZE)?.into_area()?;
        Ring::create(pool.add_region(QUEUE, sizes.queue)?.into_area()?)?;
        pool.add_region(IMAGE, sizes.capacity.max(CAPACITY_MIN))?; // all zero
        let note_of = Note {
            version: VERSION,
            machine: id.machine,
            incarnation: id.incarnation,
            whole: u32::from(whole),
            retired: 0,
        };
        TwoSlot::create(note, &note_of)?;
        Ok(())
    }

    /// Opens a replica's file, and says what is there.
    ///
    /// # Errors
    /// Those of opening a pool; [`Error::File`].
    pub fn open(path: impl AsRef<Path>) -> Result<(Self, Found)> {
        Self::open_pool(Options::new().layout(LAYOUT).open(path)?)
    }

    /// Opens the replica in a pool, and says what is there.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_pool(pool: Pool) -> Result<(Self, Found)> {
        Self::open_without(pool, None)
    }

    /// The same, without a step.
    #[doc(hidden)]
    pub fn open_without(pool: Pool, omission: Option<Omission>) -> Result<(Self, Found)> {
        let area = |name: &str| -> pmem::Result<Area> { pool.region(name)?.into_area() };
        let (note, _) = TwoSlot::<Note>::open(area(NOTE)?)?;
        let noted = note.get();
        if noted.version != VERSION {
            let why = format!("a replica of format {}, and this program knows {VERSION}", noted.version);
            return Err(Error::File { path: pool.path().display().to_string(), why });
        }
        let (ring, recovered) = Ring::open(area(QUEUE)?)?;
        let mut records = BTreeMap::new();
        for found in &recovered.records {
            match entries::read(ring.payload(found)?) {
                Some((incarnation, told))
                    if incarnation == noted.incarnation || omission == Some(Omission::Incarnation) =>
                {
                    match told {
                        Told::Record(record) => {
                            records.insert(record.entry.number.n, Stored { record, position: found.position });
                        }
                        Told::Truncated(after) => drop(records.split_off(&(after + 1))),
                    }
                }
                Some(_) => {}
                None => return Err(Error::Record { why: "an entry of its queue says nothing" }),
            }
        }
        records.retain(|&n, _| n > noted.retired);
        let entries = records.values().map(|stored| stored.record.entry.clone()).collect();
        let found = Found { id: noted.id(), whole: noted.whole != 0, retired: noted.retired, entries };
        let image = Arc::new(Mutex::new(Image::open_unscanned(area(IMAGE)?)));
        let has_starts = pool.info().regions.iter().any(|region| region.name == STARTS);
        let starts = if has_starts { Some(TwoSlot::open(area(STARTS)?)?.0) } else { None };
        let medium =
            Self { omission, pool, note, noted, starts, ring, records, image, committing: Vec::new(), barrier: None };
        Ok((medium, found))
    }

    /// Whose copy it is.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.noted.id()
    }

    pub(crate) fn image(&self) -> &Arc<Mutex<Image>> {
        &self.image
    }

    /// What it has cost.
    #[must_use]
    pub fn stats(&self) -> pmem::Stats {
        self.pool.stats()
    }

    /// Bytes of the queue in use.
    pub(crate) fn queued(&self) -> u64 {
        self.ring.unretired()
    }

    /// Bytes that records take: the rest of the queue is for what ends them, and for the end of a lap that a record does not fit into.
    pub(crate) fn queue_max(&self) -> u64 {
        self.ring.capacity() / 2
    }

    /// The longest record.
    pub(crate) fn record_max(&self) -> u64 {
        (self.ring.capacity() / 8).min(pmem::PAYLOAD_MAX)
    }

    /// Carries out a command that is to the medium; what has happened, if it is known at once. Others are [`None`] and do nothing.
    ///
    /// # Errors
    /// Those of the pool: the medium is of no use any more.
    pub fn carry_out(&mut self, command: Command) -> Result<Option<Event>> {
        match command {
            Command::Append(record) => self.append(record)?,
            Command::Truncate(after) => self.truncate(after)?,
            Command::Persist(barrier) => self.barrier = Some(barrier),
            Command::Execute(n) => return self.execute(n).map(Some),
            Command::Retire(through) => {
                self.noted.retired = through;
                if self.omission == Some(Omission::FreeBehindNote) {
                    self.forget_retired();
                }
            }
            Command::Recover { first, last } => return self.recover(first, last).map(Some),
            Command::Void(id) => {
                let ReplicaId { machine, incarnation } = id;
                self.noted = Note { machine, incarnation, whole: 0, retired: 0, ..self.noted };
                self.records.clear();
                self.committing.clear();
            }
            Command::Erase => self.image.lock().erase()?,
            Command::Restore(copy) => self.image.lock().restore(&copy)?,
            Command::Whole(retired) => {
                self.image.lock().scan()?;
                (self.noted.whole, self.noted.retired) = (1, retired);
            }
            // The heap has no backup: what is in it is persistent with the barrier that is behind this.
            Command::Apply(_) => {}
            _ => {}
        }
        Ok(None)
    }

    /// Writes the record of a transaction of this head; it is committed by the next barrier.
    ///
    /// # Errors
    /// As [`carry_out`](Self::carry_out).
    pub fn commit(&mut self, entry: Entry, bytes: Vec<u8>) -> Result<()> {
        let n = entry.number.n;
        self.committing.push(n);
        self.append(Record { entry, bytes })?;
        if self.omission == Some(Omission::ExecuteBehindBarrier) {
            self.execute(n)?;
        }
        Ok(())
    }

    fn append(&mut self, record: Record) -> Result<()> {
        let header = entries::record_header(self.noted.incarnation, &record.entry);
        let position = self.ring.append(&[&header, &record.bytes])?.position;
        self.records.insert(record.entry.number.n, Stored { record, position });
        Ok(())
    }

    fn truncate(&mut self, after: u64) -> Result<()> {
        if !self.records.split_off(&(after + 1)).is_empty() {
            self.ring.append(&[&entries::truncation(self.noted.incarnation, after)])?;
        }
        Ok(())
    }

    fn execute(&mut self, n: u64) -> Result<Event> {
        let stored = self.records.get(&n).ok_or(Error::Record { why: "it is not in the queue" })?;
        self.image.lock().apply(n, &stored.record.bytes)?;
        Ok(Event::Executed(n))
    }

    fn recover(&mut self, first: u64, last: u64) -> Result<Event> {
        let mut image = self.image.lock();
        for n in first..=last {
            let stored = self.records.get(&n).ok_or(Error::Record { why: "it is not in the queue" })?;
            image.apply(n, &stored.record.bytes)?;
        }
        image.scan()?;
        Ok(Event::Recovered)
    }

    /// True if something waits for a barrier.
    #[must_use]
    pub fn wants_barrier(&self) -> bool {
        self.barrier.is_some() || !self.committing.is_empty()
    }

    /// True if a note waits for a barrier that was not asked for.
    pub(crate) fn has_note(&self) -> bool {
        self.noted != self.note.get()
    }

    /// All that was written is persistent: one barrier. What has happened by it.
    ///
    /// # Errors
    /// As [`carry_out`](Self::carry_out).
    pub fn barrier(&mut self) -> Result<Vec<Event>> {
        if self.has_note() && self.omission != Some(Omission::Note) {
            self.note.stage(&self.noted)?;
        }
        let persisted = self.pool.drain()?;
        self.ring.forced(&persisted);
        self.forget_retired();
        let mut events: Vec<Event> = self.barrier.take().map(Event::Persisted).into_iter().collect();
        for n in std::mem::take(&mut self.committing) {
            // In place only now, and before any reader may look: the head has it in flight.
            self.execute(n)?;
            events.push(Event::Committed(n));
        }
        Ok(events)
    }

    /// The note that they count no more is persistent: their space is free.
    fn forget_retired(&mut self) {
        let rest = self.records.split_off(&(self.noted.retired + 1));
        self.records = rest;
        // Records may stand in another order than their numbers'.
        let first = self.records.values().map(|stored| stored.position).min();
        self.ring.retire(first.unwrap_or(self.ring.head()));
        self.image.lock().blocks.release(self.noted.retired);
    }

    /// These records, to be sent.
    ///
    /// # Errors
    /// [`Error::Record`] if one is not there.
    pub fn records(&self, numbers: std::ops::RangeInclusive<u64>) -> Result<Vec<Record>> {
        let record = |n| self.records.get(&n).map(|stored| stored.record.clone());
        numbers.map(record).collect::<Option<_>>().ok_or(Error::Record { why: "it is not in the queue" })
    }

    /// A copy of a part of the heap as it is, 4 MiB at most, and whether it is the last one.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn part(&self, part: u32) -> Result<(Vec<u8>, bool)> {
        self.image.lock().copy(part)
    }

    /// The heap's bytes.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn heap(&self) -> Result<Vec<u8>> {
        let image = self.image.lock();
        Ok(image.bytes(0, image.capacity())?.to_vec())
    }

    /// Objects of the blocks that are live.
    #[must_use]
    pub fn blocks(&self) -> Vec<(Object, u64)> {
        self.image.lock().blocks.live().map(|(start, len)| (Object(start), len)).collect()
    }

    /// A record that came from another machine can be carried out here.
    ///
    /// # Errors
    /// [`Error::Record`].
    pub fn check(&self, record: &Record) -> Result<()> {
        check(&record.bytes, self.image.lock().capacity())
    }

    /// Closes the file.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn close(self) -> Result<()> {
        // All that has a region of the pool.
        let Self { pool, note, starts, ring, image, omission: _, noted: _, records: _, committing: _, barrier: _ } =
            self;
        drop((note, starts, ring, image));
        Ok(pool.close()?)
    }
}
