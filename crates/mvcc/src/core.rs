//! What the parts of a store share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmem::sync::{Mutex, OwnMutex};
use pmem::{Allocator, Block, Door, Error as PoolError, Found, Intent, Persist, Pool, Position, Ring};
use tx::{Error, Result};

use crate::calls::Registered;
use crate::failpoints::{Failpoints, Step};
use crate::header::{Header, Headers, Owner};
use crate::options::{are_log_bytes, are_slots};
use crate::raw::{PerSlot, Word};
use crate::transaction::TxState;
use crate::tx_slot::{TxSlot, TxSlots};
use crate::upkeep::{GivenUp, Progress, Upkeep};

/// Names of the regions.
pub(crate) const MAIN: &str = "mvcc";
pub(crate) const LOGS: &str = "mvcc.logs";
pub(crate) const STATE: &str = "mvcc.state";
pub(crate) const NAMES: &str = "mvcc.procedures";
pub(crate) const COPIES: &str = "mvcc.copies";

/// What the store says about itself, in a cell of the pool. Written last when a store is made: without it there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Persist)]
pub(crate) struct State {
    pub(crate) slots: u64,
    pub(crate) log_bytes: u64,
    /// Offset of the block that holds the root pointer.
    pub(crate) root: u64,
    /// K: every commit at or below it is known to be durable. No master holds anything newer.
    pub(crate) durable: u64,
    /// W: masters and bitmaps are exact through it. W <= K.
    pub(crate) written: u64,
    /// Records above W, at or below K: as many have to be there.
    pub(crate) between: u64,
    /// Bytes of the log of copies.
    pub(crate) copy_bytes: u64,
    /// The timestamp of the copies that stand for the calls at or below K, if it is above W.
    pub(crate) copied: u64,
}

impl State {
    /// Whether a store can be so.
    pub(crate) fn is_sound(&self) -> bool {
        let are_bytes = are_log_bytes(self.log_bytes) && are_log_bytes(self.copy_bytes);
        are_slots(self.slots) && are_bytes && self.written <= self.durable && self.copied <= self.durable
    }
}

pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) alloc: Allocator,
    pub(crate) headers: Headers,
    pub(crate) tx_slots: TxSlots,
    /// One of each slot, and behind them that of the upkeep's copies.
    pub(crate) logs: Box<[OwnMutex<Log>]>,
    pub(crate) procedures: Vec<Registered>,
    /// Those that the pool names.
    pub(crate) named: Vec<(String, u32)>,
    /// Bytes of objects that calls have changed, and of which there is no copy yet; each as often as it was.
    pub(crate) called: AtomicU64,
    /// Most of those.
    pub(crate) called_max: u64,
    pub(crate) states: PerSlot<TxState>,
    pub(crate) counters: Box<[Counters]>,
    pub(crate) upkeep: Mutex<Upkeep>,
    pub(crate) inbox: Mutex<Inbox>,
    /// Timestamps of the snapshots that are held, each as often as it is.
    pub(crate) held: Mutex<Vec<u64>>,
    pub(crate) growing: Mutex<()>,
    /// Closed while a backup makes its cut.
    pub(crate) door: Door,
    /// Blocks that are free for who begins now, and not handed out yet.
    pub(crate) freed: AtomicU64,
    pub(crate) bytes_max: u64,
    pub(crate) log_bytes: u64,
    pub(crate) root: u64,
    /// The first error behind a durable commit.
    pub(crate) trouble: Mutex<Option<Error>>,
    pub(crate) failpoints: Failpoints,
}

/// What a slot has committed and the upkeep has not seen to. Held by the slot's transaction while it commits.
pub(crate) struct Log {
    pub(crate) ring: Ring,
    /// Where each record ends, and its timestamp; bytes of objects that it changes and does not hold.
    pub(crate) records: VecDeque<(Position, u64, u64)>,
    /// New objects that calls have filled, and when.
    pub(crate) filled: Vec<(u64, Block)>,
    /// Blocks with records, and their timestamps.
    pub(crate) spills: VecDeque<(Block, u64)>,
    pub(crate) intents: Vec<(u64, Intent)>,
    /// Objects that have changed, each once (`Header::is_listed`).
    pub(crate) changed: Vec<Changed>,
    /// Bytes of versions published since the last pass was through.
    pub(crate) version_bytes: u64,
    /// Versions that were published, since the store was opened.
    pub(crate) published: u64,
    /// Where the ring ended then.
    pub(crate) begun: Position,
}

/// What transactions leave to the upkeep. Held for a moment: who has its own log locked may take it, and the upkeep takes logs.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) given_up: Vec<(u64, GivenUp)>,
    /// Objects whose header may be of no use.
    pub(crate) listed: Vec<Changed>,
}

/// An object with a header.
#[derive(Clone, Copy)]
pub(crate) struct Changed {
    pub(crate) header: u32,
    pub(crate) word: Word,
    pub(crate) block: Block,
}

/// Counted per slot by its holder.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) read_only: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) calls: AtomicU64,
    /// The upkeep is to come by when the transaction is over.
    pub(crate) is_due: AtomicU64,
    /// A `Room`.
    room: AtomicU64,
    /// ... and it was run again for a block.
    pub(crate) was_short: AtomicU64,
}

/// Whether the slot's log, and the store, had room for its last transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Room {
    There,
    /// Not for a record, or a block: to be seen to before the next transaction begins.
    Wanted,
    /// That was in vain: an older transaction of the same thread runs.
    KeptByOwn,
}

impl Counters {
    #[inline]
    pub(crate) fn room(&self) -> Room {
        match self.room.load(Relaxed) {
            0 => Room::There,
            1 => Room::Wanted,
            _ => Room::KeptByOwn,
        }
    }

    pub(crate) fn set_room(&self, room: Room) {
        self.room.store(room as u64, Relaxed);
    }

    /// More of it; only the slot's holder counts.
    #[inline]
    pub(crate) fn add(cell: &AtomicU64, more: u64) {
        cell.store(cell.load(Relaxed) + more, Relaxed);
    }
}

/// What a transaction slot sees of an object.
pub(crate) enum View<'s> {
    /// The transaction in its own slot has the lock.
    Own(u32),
    /// A version.
    Bytes(&'s [u8]),
    /// The master.
    Master,
    /// It was freed.
    Gone,
    /// It was made later.
    Later,
}

/// Growths by which a store becomes as large as it may, at most.
const GROWTHS_MAX: u64 = 16;

impl Core {
    /// What the transaction slot's snapshot sees. Stores nothing that others read.
    #[inline]
    pub(crate) fn look<'s>(&self, tx_slot: &'s TxSlot<'_>, found: &Found<'_>) -> Result<View<'s>> {
        match found.word().load(std::sync::atomic::Ordering::Acquire) {
            // A freed object's header goes behind the object.
            0 if found.is_current() => Ok(View::Master),
            0 => Ok(View::Gone),
            number => self.look_up(tx_slot, number),
        }
    }

    fn look_up<'s>(&self, tx_slot: &'s TxSlot<'_>, number: u32) -> Result<View<'s>> {
        let header = self.headers.get(number);
        pmem::sync::switch_point();
        // The lock first: once its holder's commit is decided, the chain tells of it.
        if let Owner::Slot(owner) = header.owner() {
            if owner == tx_slot.slot() {
                return Ok(View::Own(number));
            }
            self.tx_slots.wait_for(owner, tx_slot.snapshot())?;
        }
        pmem::sync::switch_point();
        let version = header.chain.at(tx_slot, tx_slot.snapshot());
        // Behind the chain: who takes a version out has said before that the master is it.
        let base = header.base();
        let is_there = base <= tx_slot.snapshot() || self.failpoints.skips(Step::BornLater);
        Ok(match version {
            Some(version) if !is_there || version.stamp >= base => match version.gone {
                true => View::Gone,
                false => View::Bytes(version.bytes),
            },
            _ if is_there => View::Master,
            _ => View::Later,
        })
    }

    /// The header of a block, if it has one.
    #[inline]
    pub(crate) fn header(&self, word: Word) -> Option<&Header> {
        match word.get().load(std::sync::atomic::Ordering::Acquire) {
            0 => None,
            number => Some(self.headers.get(number)),
        }
    }

    // ---- space ------------------------------------------------------------------------------------------------------

    /// A block that does not resolve yet, out of a larger store if it must. For the transaction in the slot; no log is locked.
    pub(crate) fn reserve(&self, slot: usize, len: u64, align: u64) -> Result<Block> {
        match self.alloc.reserve_hidden(len, align) {
            Err(PoolError::HeapFull { .. }) => self.reserve_cold(slot, len, align),
            other => Ok(other?),
        }
    }

    #[cold]
    fn reserve_cold(&self, slot: usize, len: u64, align: u64) -> Result<Block> {
        if len > pmem::OFFSET_MAX / 4 {
            return Err(PoolError::HeapFull { bytes: len }.into()); // larger than any pool
        }
        // What was freed may be handed out then; but not what was freed since this transaction began. For that it is run again, once.
        let progress = self.upkeep()?;
        let counters = &self.counters[slot];
        let is_freed = self.freed.load(Relaxed) > 0;
        if progress == Progress::Blocked && is_freed && counters.was_short.load(Relaxed) == 0 {
            return match self.alloc.reserve_hidden(len, align) {
                Err(PoolError::HeapFull { .. }) => {
                    counters.was_short.store(1, Relaxed);
                    counters.set_room(Room::Wanted);
                    Err(Error::Conflict { offset: 0 })
                }
                other => Ok(other?),
            };
        }
        for _ in 0..GROWTHS_MAX {
            match self.alloc.reserve_hidden(len, align) {
                Err(PoolError::HeapFull { .. }) => self.grow_for(len)?,
                other => return Ok(other?),
            }
        }
        Ok(self.alloc.reserve_hidden(len, align)?)
    }

    fn bytes(&self) -> u64 {
        self.alloc.spaces().iter().map(|space| space.end - space.start).sum()
    }

    /// Twice as large, less where that is more than it may become or the disk has no room, and by as much as the block needs. Never by much less than an eighth: a pool can grow so often only,
    /// and a disk that is full for a while is not to use that up.
    fn grow_for(&self, len: u64) -> Result<()> {
        let _growing = self.growing.lock();
        let bytes = self.bytes();
        let room = self.bytes_max.saturating_sub(bytes);
        let least = (len + len / 8).next_multiple_of(self.alloc.chunk_size()) + self.alloc.chunk_size();
        let mut more = bytes.max(least).min(room);
        if more < len {
            return Err(PoolError::HeapFull { bytes: len }.into());
        }
        let least = least.max(bytes / 8);
        loop {
            match self.alloc.grow(more) {
                Err(PoolError::NoSpace { .. } | PoolError::Reserve { .. }) if more > least => {
                    more = (more / 2).next_multiple_of(self.alloc.chunk_size()).max(least);
                }
                other => return Ok(other?),
            }
        }
    }

    /// Remembers what went wrong behind a durable commit.
    pub(crate) fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            tracing::warn!(%error, "objects could not be written back");
            self.trouble.lock().get_or_insert(error);
        }
    }
}

/// What a store is put together from.
pub(crate) struct Parts {
    pub(crate) pool: Pool,
    pub(crate) alloc: Allocator,
    pub(crate) rings: Vec<Ring>,
    pub(crate) upkeep: Upkeep,
}

/// Of the log of copies: for its mark, and what a record has besides.
const COPY_SPARE: u64 = 256;

/// Bytes to which a store grows by itself unless told otherwise.
const BYTES_MAX: u64 = 1 << 30;
const TIMES: u64 = 16;

impl Core {
    pub(crate) fn new(parts: Parts, state: &State, options: &crate::Options) -> Self {
        let Parts { pool, alloc, rings, upkeep } = parts;
        let bytes: u64 = alloc.spaces().iter().map(|space| space.end - space.start).sum();
        let log = |ring: Ring| Log {
            begun: ring.head(),
            published: 0,
            ring,
            records: VecDeque::new(),
            spills: VecDeque::new(),
            filled: Vec::new(),
            intents: Vec::new(),
            changed: Vec::new(),
            version_bytes: 0,
        };
        let slots = state.slots as usize;
        Self {
            headers: Headers::default(),
            tx_slots: TxSlots::new(slots, options.failpoints),
            logs: rings.into_iter().map(|ring| OwnMutex::new(log(ring))).collect(),
            states: PerSlot::new(slots, TxState::default),
            counters: (0..slots).map(|_| Counters::default()).collect(),
            upkeep: Mutex::new(upkeep),
            inbox: Mutex::default(),
            held: Mutex::default(),
            procedures: options.procedures.clone(),
            named: options.procedures.iter().map(|known| (known.name.to_owned(), known.version)).collect(),
            called: AtomicU64::new(0),
            called_max: (state.copy_bytes / 2).min(pmem::PAYLOAD_MAX) - COPY_SPARE,
            growing: Mutex::default(),
            door: Door::default(),
            freed: AtomicU64::new(0),
            bytes_max: options.max_bytes.unwrap_or(BYTES_MAX.max(TIMES * bytes)),
            log_bytes: state.log_bytes,
            root: state.root,
            trouble: Mutex::default(),
            failpoints: options.failpoints,
            pool,
            alloc,
        }
    }

    /// What is closed last, everything else being dropped.
    pub(crate) fn into_last(self) -> (Pool, Allocator) {
        (self.pool, self.alloc)
    }
}
