//! What the parts of a store share.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmem::sync::{Mutex, OwnMutex};
use pmem::{Allocator, Door, Found, Pool};
use tx::{Error, Result};

use crate::failpoints::{Failpoints, Step};
use crate::header::{Header, Headers, Owner};
use crate::inbox::Inbox;
use crate::log::Log;
use crate::pass::Upkeep;
use crate::procedures::Known;
use crate::raw::{PerSlot, Word};
use crate::set::TxState;
use crate::tx_slot::{TxSlot, TxSlots};

pub(crate) struct Core {
    pub(crate) pool: Pool,
    pub(crate) alloc: Allocator,
    pub(crate) headers: Headers,
    pub(crate) tx_slots: TxSlots,
    /// One of each slot, and behind them that of the upkeep's copies.
    pub(crate) logs: Box<[OwnMutex<Log>]>,
    pub(crate) procedures: Vec<Known>,
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
    /// Blocks that are free for transactions that begin now, and not handed out yet.
    pub(crate) freed: AtomicU64,
    pub(crate) bytes_max: u64,
    pub(crate) log_bytes: u64,
    pub(crate) root: u64,
    /// The first error behind a durable commit.
    pub(crate) trouble: Mutex<Option<Error>>,
    pub(crate) failpoints: Failpoints,
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
        // Behind the chain: a thread that takes a version out has said before that the master is it.
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

    /// Remembers what went wrong behind a durable commit.
    pub(crate) fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            tracing::warn!(%error, "objects could not be written back");
            self.trouble.lock().get_or_insert(error);
        }
    }

    /// What is closed last, everything else being dropped.
    pub(crate) fn into_last(self) -> (Pool, Allocator) {
        (self.pool, self.alloc)
    }
}
