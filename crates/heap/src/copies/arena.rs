//! Where copies are: a region that a hand goes round in (CLOCK). Ahead of it, copies; what it gives up behind it is used for new ones, in the same order, so
//! pieces of any length come together again.
//!
//! Every place is the start of something that tells its length: a copy; or free, as | [`IDLE`] or [`LISTED`] u64 | length u64 |. Recovery does not
//! believe that (`copies`).

use std::collections::VecDeque;

use pmem::Allocator;
use pmem::sync::switch_point;
use tx::{Error, Result};

use crate::failpoints::Step;
use crate::raw::{self, Claim};
use crate::record::Bytes;

use super::catalog::{Catalog, UNIT, Verdict};

/// Free, for the hand to find. No object is at these offsets.
const IDLE: u64 = 0;
/// Free, and in the list or on its way there.
const LISTED: u64 = 1;

/// A piece that is free once what was flushed is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    at: u64,
    len: u64,
    /// The object whose copy it was, if one was given up for it.
    pub(crate) of: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Arena {
    /// Free and known to be so on media, the oldest first.
    free: VecDeque<Bytes>,
    free_bytes: u64,
    hand: u64,
    /// Bytes of the line that are used.
    limit: u64,
    /// The last round met what another transaction writes.
    in_use: bool,
    pub(crate) given_up: u64,
}

impl Arena {
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn in_use(&self) -> bool {
        self.in_use
    }

    /// Adds what is behind the limit up to the new one.
    pub(crate) fn extend(&mut self, catalog: &Catalog, limit: u64) -> Result<()> {
        let limit = limit.min(catalog.line.len()) / UNIT * UNIT;
        while self.limit < limit {
            let (_, rest) = catalog.line.offset(self.limit).ok_or_else(|| catalog.outside(self.limit))?;
            let len = rest.min(limit - self.limit);
            self.list(catalog, self.limit, len)?;
            self.limit += len;
        }
        Ok(())
    }

    /// A place for a copy of these bytes.
    pub(crate) fn take(&mut self, catalog: &Catalog, (offset, len): Bytes) -> Result<Option<u64>> {
        while let Some((at, room)) = self.free.front_mut() {
            let start = *at;
            let pad = Catalog::pad(start, len);
            let space = pad + Catalog::space(len);
            if *room >= space {
                let rest = *room - space;
                (*at, *room) = (start + space, rest);
                self.free_bytes -= space;
                if rest == 0 {
                    self.free.pop_front();
                } else {
                    catalog.store(start + space, [LISTED, rest])?;
                }
                if pad > 0 {
                    catalog.store(start, [IDLE, pad])?;
                }
                catalog.store(start + pad, [offset, len])?; // so that the hand finds its way
                return Ok(Some(start + pad));
            }
            catalog.store(start, [IDLE, *room])?; // the hand joins it with its neighbours
            self.free_bytes -= *room;
            self.free.pop_front();
        }
        Ok(None)
    }

    /// Moves the hand on, if less than `needed` and a little more is free, until as much is given up. The calling thread drains, and publishes it,
    /// be there an error or not.
    pub(crate) fn advance(
        &mut self,
        catalog: &Catalog,
        alloc: &Allocator,
        slot: usize,
        needed: u64,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        let spare = needed.max((self.limit / SPARE).min(SPARE_MAX));
        self.in_use = false;
        if self.free_bytes >= spare {
            return Ok(());
        }
        let (mut gained, mut passed) = (0, 0);
        while gained < needed && passed < 2 * self.limit {
            if self.hand >= self.limit {
                self.hand = 0;
            }
            switch_point();
            let at = self.hand;
            let (header, rest) = catalog.line.offset(at).ok_or_else(|| catalog.outside(at))?;
            let rest = rest.min(self.limit - at);
            let [what, len] = words(catalog, header)?;
            let step = if what <= LISTED { len } else { Catalog::space(len.min(rest)) };
            if step == 0 || step > rest || !step.is_multiple_of(UNIT) {
                let why = format!("{len} bytes of what is at {what} cannot be there");
                return Err(Error::Damaged { what: "copy of an object", offset: header, why });
            }
            catalog.pool.prefetch(header + AHEAD * step, 1); // copies are often of one length, and cold
            let verdict = match what {
                IDLE => Verdict::Free,
                LISTED => Verdict::Stays(false),
                offset => catalog.judge(alloc, slot, offset, at)?,
            };
            match verdict {
                Verdict::Free => {
                    catalog.store(at, [LISTED, step])?; // no other thread's from now on
                    pieces.push(Piece { at, len: step, of: None });
                    gained += step;
                }
                Verdict::GivenUp => {
                    self.given_up += 1;
                    pieces.push(Piece { at, len: step, of: Some(what) });
                    gained += step;
                }
                Verdict::Stays(in_use) => self.in_use |= in_use,
            }
            self.hand += step;
            passed += step;
        }
        if catalog.failpoints.skips(Step::GivenUpFirst) {
            self.publish(catalog, pieces)?;
            pieces.clear();
        }
        Ok(())
    }

    pub(super) fn publish(&mut self, catalog: &Catalog, pieces: &[Piece]) -> Result<()> {
        for piece in pieces {
            if piece.of.is_none_or(|offset| catalog.forget_left(offset, piece.at)) {
                self.list(catalog, piece.at, piece.len)?;
            }
        }
        Ok(())
    }

    /// Puts a free piece into the list, joined with the one before it.
    fn list(&mut self, catalog: &Catalog, at: u64, len: u64) -> Result<()> {
        self.free_bytes += len;
        let header = catalog.offset(at)?;
        if let Some((start, before)) = self.free.back_mut()
            && *start + *before == at
            && catalog.line.offset(*start).is_some_and(|(first, rest)| rest > *before && first + *before == header)
        {
            *before += len;
            if self.hand == at {
                self.hand = *start; // nothing begins at `at` any more
            }
            return catalog.store(*start, [LISTED, *before]);
        }
        self.free.push_back((at, len));
        catalog.store(at, [LISTED, len])
    }
}

/// Copies that are asked for ahead of the hand.
const AHEAD: u64 = 4;
/// Free space that is kept ahead of need, so that a copy has not to wait for a barrier of its own: a share of all, up to so much.
const SPARE: u64 = 32;
const SPARE_MAX: u64 = 1 << 20;

/// The first two words of what is at a place.
fn words(catalog: &Catalog, header: u64) -> Result<[u64; 2]> {
    // changed under the arena's lock alone, which the caller holds.
    let bytes = raw::bytes(Claim::Copies, catalog, &catalog.pool, header, 16)?;
    Ok(pmem::from_bytes(bytes).unwrap_or_default())
}
