//! Intents of objects: what a transaction is about to change stands in its slot's ring, behind a barrier, before it does (Kamino-Tx §3).
//!
//! Recovery makes the zones of these ranges of main what the backup is, unless a COMMIT behind them counts. It may do so with ranges of a transaction that has ended, too:
//! the backup holds what is committed, of whatever slot, once all records have gone forward. So no intent needs to be taken back.

use pmem::Error as PoolError;
use tx::Result;

use crate::core::Core;
use crate::failpoints::Step;
use crate::log::Log;
use crate::record::{self, Bytes, INTENT};

impl Core {
    /// Says that the slot's transaction is about to change these ranges. One barrier.
    #[track_caller]
    pub(crate) fn declare(&self, slot: usize, ranges: &[Bytes]) -> Result<()> {
        let needed = 8 + 16 * ranges.len() as u64;
        let mut log = self.open_log(slot);
        let fits = |log: &Log| log.ring.unretired() + log.ring.takes(needed) <= log.ring.capacity() / 2;
        if !fits(&log) {
            log.apply(self)?; // earlier transactions' records make room
        }
        let appended = fits(&log) && {
            let mut payload = std::mem::take(&mut log.scratch);
            record::begin(&mut payload, INTENT, ranges);
            log.before_append();
            let appended = log.ring.append(&[&payload]);
            log.scratch = payload;
            match appended {
                Err(PoolError::RingFull { .. }) => false,
                other => other.map(|_| true)?,
            }
        };
        if !appended {
            drop(log); // a thread that cleans zones has their lock, and waits for ours
            for &(offset, len) in ranges {
                self.zones.mark_anyway(self.linear(offset)?, len)?;
            }
            log = self.logs[slot].lock();
        }
        if !self.failpoints.skips(Step::IntentBarrier) {
            log.drain(self)?; // the intents, before anything of what they tell of can reach the media
            log.after_append(self);
        }
        Ok(())
    }

    /// Behind an abort nothing in the ring is needed, if everything before is applied: it makes room for others' intents.
    pub(crate) fn intents_are_void(&self, slot: usize) {
        let mut log = self.logs[slot].lock();
        if log.pending() == 0 {
            let durable = log.ring.durable(); // all, if no drain has failed
            log.ring.retire(durable);
        }
    }
}
