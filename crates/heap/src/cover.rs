//! In place with a partial backup: a transaction that is about to write an object sees to it that the object has a copy ([`copies`](crate::copies)).

use tx::{Error, Result};

use crate::copies::{Catalog, Copied, Copies, Found, HEADER, Piece, WHOLE, join, segments};
use crate::core::{Core, Counters};
use crate::failpoints::Step;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes};
use crate::state::Set;

/// Rounds of giving copies up before everything is applied, and before it is an error.
const ROUNDS: usize = 4;

/// Places taken for copies; and what was given up to have more, which is free behind the next drain.
#[derive(Default)]
struct Room {
    offsets: Vec<u64>,
    given_up: Vec<Piece>,
}

impl Core {
    /// Sees to it that ranges, each of a block of which the transaction in `slot` is the writer, have copies. One barrier if one has not; then
    /// another if nothing is free that is known to be so on media.
    #[inline]
    pub(crate) fn cover(&self, slot: usize, set: &mut Set, wanted: &[(usize, Bytes)]) -> Result<()> {
        let Some(copies) = &self.copies else { return Ok(()) };
        let catalog = &copies.catalog;
        let (mut missing, mut left) = (Vec::new(), Vec::new());
        for &(at, range) in wanted {
            let held = &mut set.held[at];
            if held.fresh || held.covered || range.1 == 0 {
                continue;
            }
            held.covered = held.block.len() <= WHOLE;
            for (offset, len) in segments(&held.block, range) {
                if set.copies.iter().rev().take(4).any(|c| c.offset == offset) {
                    continue;
                }
                match catalog.find(offset) {
                    Found::Missing => {
                        self.pool.prefetch(offset, pmem::lines(offset, len)); // all of it is checksummed, and copied
                        missing.push((offset, len));
                    }
                    Found::At(at) => {
                        set.copies.push(Copied { offset, len, at: catalog.offset(at)? + HEADER });
                    }
                    Found::Left(at) => {
                        set.copies.push(Copied { offset, len, at: catalog.offset(at)? + HEADER });
                        left.push(at);
                    }
                }
            }
        }
        match missing.is_empty() && left.is_empty() {
            true => Ok(()),
            false => {
                missing.sort_unstable();
                missing.dedup(); // of ranges in one long object
                self.make_copies(copies, slot, set, &missing, &left)
            }
        }
    }

    /// Makes the copies that are missing, and brings those back that were left.
    #[cold]
    #[inline(never)]
    fn make_copies(&self, copies: &Copies, slot: usize, set: &mut Set, missing: &[Bytes], left: &[u64]) -> Result<()> {
        if self.pool.is_read_only() {
            return Err(pmem::Error::ReadOnly.into());
        }
        let (_gate, catalog) = (copies.share_gate(), &copies.catalog);
        set.unsure = true; // until the next drain of this thread
        for &at in left {
            let proof = catalog.prove(at, catalog.sure(at))?; // it is as main is
            self.pool.flush(proof, 8)?;
        }
        // Should anything fail, what was brought back is sure with the barrier of the abort.
        let mut room = Room::default();
        let made = self.room_for(copies, slot, missing, &mut room).and_then(|()| {
            missing.iter().zip(&room.offsets).try_for_each(|(&range, &at)| {
                let (offset, len) = range;
                set.copies.push(Copied { offset, len, at: catalog.write(at, range)? });
                Ok(())
            })
        });
        if made.is_err() {
            // No transaction is to find copies that are not there; nor recovery those that were made, once their objects have others.
            for (m, &at) in missing.iter().zip(&room.offsets) {
                catalog.forget(m.0);
                let proof = catalog.prove(at, 0)?;
                self.pool.flush(proof, 8)?;
            }
        }
        if !self.failpoints.skips(Step::CopyBarrier) {
            self.pool.drain()?; // the copies, before their objects are written; what was given up, before its space is
        }
        copies.publish(&room.given_up)?;
        made?;
        for &at in &room.offsets {
            let proof = catalog.prove(at, catalog.sure(at))?;
            self.pool.flush(proof, 8)?; // with the transaction's next barrier
        }
        Counters::add(&self.counters[slot].misses);
        Ok(())
    }

    /// Takes places for copies, and notes them in the map.
    fn room_for(&self, copies: &Copies, slot: usize, missing: &[Bytes], room: &mut Room) -> Result<()> {
        let needed: u64 = missing.iter().map(|m| Catalog::space(m.1)).sum();
        let (catalog, mut in_use) = (&copies.catalog, false);
        for round in 0..=2 * ROUNDS {
            if round > 0 {
                if round == ROUNDS || room.given_up.is_empty() {
                    self.apply_all(&mut |_| {})?;
                }
                if room.given_up.iter().any(|piece| piece.of.is_some()) {
                    self.pool.drain()?;
                }
                copies.publish(&std::mem::take(&mut room.given_up))?;
            }
            let mut arena = copies.arena.lock();
            for &(offset, len) in &missing[room.offsets.len()..] {
                let Some(at) = arena.take(catalog, (offset, len))? else { break };
                catalog.enlist(offset, at);
                room.offsets.push(at);
            }
            // Where copies are of many lengths, so little may lie in pieces that are too short: then more.
            let wanted = if round < ROUNDS { needed << round } else { arena.limit().max(needed) };
            arena.advance(catalog, &self.alloc, slot, wanted, &mut room.given_up)?;
            in_use = arena.in_use(); // now: another one's look is next
            if room.offsets.len() == missing.len() {
                return Ok(());
            }
        }
        Err(match in_use {
            true => Error::Conflict { offset: 0 },
            false => Error::BackupFull { bytes: needed, room: copies.arena.lock().limit() },
        })
    }

    /// Makes ranges of main as their copies are, and flushes them. The caller is their writer.
    #[track_caller]
    pub(crate) fn copy_back(&self, set: &mut Set) -> Result<()> {
        record::coalesce(&mut set.writes);
        set.order_copies();
        let ranges = set.writes.iter().map(|&range| (range, ()));
        join(ranges, set.copies.iter().copied(), |(), main, copy, n| {
            // as just said; the copy is the object's.
            raw::copy(Claim::Writer, &self.pool, copy, main, n)
        })
    }
}
