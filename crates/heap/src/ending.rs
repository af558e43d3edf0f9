//! What the ends of transactions have in common, whatever the policy: the last record, and what is given up.

use std::sync::atomic::Ordering::Relaxed;

use pmem::{Block, Error as PoolError, Position, Result as PoolResult};
use tx::{Error, Result};

use crate::core::Core;
use crate::counted::behind;
use crate::failpoints::Step;
use crate::lock;
use crate::log::Log;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, SPILLED};
use crate::state::Set;

/// Payloads over a quarter of the ring are kept in a block of the heap.
const RING_SHARE: u64 = 4;

impl Core {
    // ---- the record -------------------------------------------------------------------------------------------------

    /// Appends a transaction's last record, with the checksum over what it vouches for elsewhere. Where the ring is full it makes room of earlier transactions' records; if the
    /// transaction's own are in the way, with what is skipped at the ring's end, the payload moves to a block, for whose name there is room (`undo::END_ROOM`). A block is given up
    /// if there is no record to name it.
    /// The result is one for registers: see `tx::engine::Attempt`.
    #[inline]
    pub(crate) fn append_last(
        &self,
        slot: usize,
        log: &mut Log,
        payload: &mut Vec<u8>,
        spill: &mut Option<Block>,
        outside: Option<u64>,
    ) -> Result<Position, Box<Error>> {
        match self.append(log, payload, outside) {
            Ok(end) => Ok(end),
            Err(error) => self.append_otherwise(slot, log, payload, spill, outside, error).map_err(Box::new),
        }
    }

    #[inline]
    fn append(&self, log: &mut Log, payload: &[u8], outside: Option<u64>) -> PoolResult<Position> {
        if self.failpoints.skips(Step::Appended) {
            let (unretired, capacity) = (log.ring.unretired(), log.ring.capacity());
            return Err(PoolError::RingFull { unretired, capacity, wanted: payload.len() as u64 });
        }
        Ok(log.ring.append_checksummed(&[payload], outside)?.end)
    }

    #[cold]
    fn append_otherwise(
        &self,
        slot: usize,
        log: &mut Log,
        payload: &mut Vec<u8>,
        spill: &mut Option<Block>,
        outside: Option<u64>,
        error: PoolError,
    ) -> Result<Position> {
        let appended = match error {
            PoolError::RingFull { .. } => self.append_with_room(slot, log, payload, spill, outside),
            other => Err(other.into()),
        };
        if appended.is_err()
            && let Some(block) = spill.take()
        {
            self.cancel_own(block)?;
        }
        appended
    }

    fn append_with_room(
        &self,
        slot: usize,
        log: &mut Log,
        payload: &mut Vec<u8>,
        spill: &mut Option<Block>,
        outside: Option<u64>,
    ) -> Result<Position> {
        log.apply(self)?;
        match self.append(log, payload, outside) {
            Err(PoolError::RingFull { .. }) if spill.is_none() => {}
            other => return Ok(other?),
        }
        *spill = Some(self.spill(slot, log, payload)?);
        Ok(self.append(log, payload, outside)?)
    }

    #[inline]
    pub(crate) fn spill_if_long(&self, slot: usize, log: &mut Log, payload: &mut Vec<u8>) -> Result<Option<Block>> {
        if payload.len() as u64 <= log.ring.capacity() / RING_SHARE {
            return Ok(None);
        }
        self.spill(slot, log, payload).map(Some)
    }

    /// Moves a payload to a block of its own, persistently, and replaces it by its place and checksum. One barrier.
    #[cold]
    fn spill(&self, slot: usize, log: &mut Log, payload: &mut Vec<u8>) -> Result<Block> {
        let len = payload.len() as u64;
        let block = self.reserve_own(slot, len)?;
        // reserved just now, locked, and named nowhere.
        raw::bytes_mut(Claim::Reserved, self, &self.pool, block.offset(), len)?.copy_from_slice(payload);
        self.pool.flush(block.offset(), len)?;
        log.drain(self)?;
        let checksum = self.pool.checksum_key(block.offset()).checksum(payload);
        record::begin(payload, SPILLED, &[(block.offset(), len)]);
        payload.extend_from_slice(&checksum.to_le_bytes());
        Ok(block)
    }

    // ---- around it --------------------------------------------------------------------------------------------------

    /// Gives up what was only read. The last lock is taken, and nothing that is read now can make another one wait for what is committed here: strict is what is
    /// written, which stays locked to the barrier. Before the first flush: an atomic operation behind it would wait for it, as the drain does.
    #[inline]
    pub(crate) fn end_reads(&self, set: &mut Set) {
        set.held.iter().filter(|held| !held.write).for_each(|held| lock::end_read(held.word.get()));
        set.reads_over = true;
    }

    #[track_caller]
    pub(crate) fn flush_writes(&self, writes: &[Bytes]) -> Result<()> {
        for &(offset, len) in writes {
            self.pool.flush(offset, len)?;
        }
        Ok(())
    }

    /// For the coordinator.
    #[inline]
    pub(crate) fn tell_pending(&self, slot: usize, log: &Log) {
        self.counters[slot].pending.store(log.pending() as u64, Relaxed);
    }

    /// None of these resolves from now on; no transaction gets them before the record that tells of it is gone.
    #[inline]
    pub(crate) fn out_of_use(&self, freed: &mut Vec<Block>, own: Option<Block>) {
        for block in &*freed {
            behind::modifies();
            self.after_durable(self.alloc.begin_free(block).map_err(Error::from));
        }
        if let Some(block) = own {
            behind::modifies();
            self.after_durable(self.retire_own(&block));
            freed.push(block);
        }
    }
}
