//! In place with a partial backup: copies of the objects that were written lately (Kamino-Tx §4, "Dynamic").
//!
//! An object is written in place once it has a copy; a writer that finds none makes one first, behind a barrier. Applying keeps the copy as main is. So at
//! every moment each object that may differ from its last durable state has that state in a copy, and recovery puts copies back.
//! A new object needs none: until its transaction is durable it is not there, and behind that main is all there is of it. Objects longer
//! than [`WHOLE`] are copied in segments.
//!
//! ```text
//! copy:  | offset in main u64 | length u64 | proof u64 | tag u64 | bytes |      in units of 16 bytes, anywhere in region "heap.copies"
//!
//! tag    checksum of place, offset and length
//! proof  0            nothing: the copy was given up
//!        checksum, bytes  made: it counts if they are as they were when it was made
//!        sure, place  it counts, and its bytes follow main
//! ```
//!
//! All checksums are keyed by a number that no earlier opening of the pool had: with the next one everything in the region is void at once.
//!
//! # How a copy lives
//!
//! | step | by | why it is safe |
//! |---|---|---|
//! | made, checksummed; a barrier | the object's writer, before its first write | torn, it does not count, and nothing was written |
//! | sure | the same writer, with its transaction's next barrier | no thread applies the object before that |
//! | follows main | the thread that applies | recovery finds the transaction's record, and does it again |
//! | given up | the hand (`arena`), if the object is neither written nor pending; applying, if it was freed | main is durable, or free |
//! | its space used again | | behind a barrier for the proof's 0, so a stale copy is never put back |
//!
//! The map from object to copy is in DRAM, in shards; the region tells recovery the same. Lock order: gate, arena, then a shard. A transaction that looks for a
//! copy is the object's writer already, and the hand looks at the object's lock under the shard's: so one of them sees the other.

mod arena;
mod catalog;

use std::time::Duration;

use pmem::Pool;
use pmem::sync::{Mutex, is_scheduled, wait_point};
use tx::Result;

use crate::failpoints::Failpoints;
use crate::space::Space;

pub(crate) use arena::{Arena, Piece};
pub(crate) use catalog::{Catalog, Copied, Found, HEADER, UNIT, WHOLE, join, segments};

pub(crate) struct Copies {
    pub(crate) catalog: Catalog,
    pub(crate) arena: Mutex<Arena>,
    /// Shared by threads that make copies; held alone, it keeps all threads from it. Before every other lock.
    gate: parking_lot::RwLock<()>,
}

impl Copies {
    pub(crate) fn new(pool: &Pool, epoch: u64, line: Space, failpoints: Failpoints) -> Self {
        Self {
            catalog: Catalog::new(pool, epoch, line, failpoints),
            arena: Mutex::new(Arena::default()),
            gate: parking_lot::RwLock::new(()),
        }
    }

    /// From now on copies may be made, by others too.
    pub(crate) fn share_gate(&self) -> parking_lot::RwLockReadGuard<'_, ()> {
        loop {
            match self.gate.try_read() {
                Some(guard) => return guard,
                None if wait_point() => {}
                None => return self.gate.read(),
            }
        }
    }

    /// No thread makes copies while it is held; `None` if one goes on making some for this time.
    pub(crate) fn try_hold_gate(&self, timeout: Duration) -> Option<parking_lot::RwLockWriteGuard<'_, ()>> {
        if is_scheduled() { self.gate.try_write() } else { self.gate.try_write_for(timeout) }
    }

    /// Adds the region up to `limit`.
    pub(crate) fn extend(&self, limit: u64) -> Result<()> {
        self.arena.lock().extend(&self.catalog, limit)
    }

    /// What was given up is free: a barrier has made it so on media.
    pub(crate) fn publish(&self, pieces: &[Piece]) -> Result<()> {
        if pieces.is_empty() { Ok(()) } else { self.arena.lock().publish(&self.catalog, pieces) }
    }
}
