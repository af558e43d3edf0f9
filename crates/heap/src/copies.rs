//! In place with a partial backup: copies of the objects that were written lately (Kamino-Tx §4, "Dynamic").
//!
//! An object is written in place once it has a copy; who finds none makes one first, behind a barrier. Settling keeps the copy as main is. So at every
//! moment each object that may differ from its last durable state has that state in a copy, and recovery puts copies back.
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
//! | step | who | why it is safe |
//! |---|---|---|
//! | made, checksummed; a barrier | the object's writer, before its first write | torn, it does not count, and nothing was written |
//! | sure | the same writer, with its transaction's next barrier | nobody settles the object before that |
//! | follows main | who settles | recovery finds the transaction's record, and does it again |
//! | given up | the hand (`arena`), if the object is neither written nor pending; settling, if it was freed | main is durable, or free |
//! | its space used again | | behind a barrier for the proof's 0, so a stale copy is never put back |
//!
//! The map from object to copy is in DRAM, in shards; the region tells recovery the same. Lock order: gate, arena, then a shard. Who looks for a copy is
//! the object's writer already, and the hand looks at the object's lock under the shard's: so one of them sees the other.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use pmem::sync::{Mutex, is_scheduled, wait_point};
use pmem::{Block, ChecksumKey, FlushSet, LINE, PPtr, Pool};
use tx::{Error, Result};

use crate::arena::{Arena, Piece};
use crate::core::{Core, Counters};
use crate::failpoints::{Failpoints, Step};
use crate::lock::{self, State};
use crate::raw::{self, Claim, Word};
use crate::record::Bytes;
use crate::space::Space;
use crate::state::{PointerHash, Set};

/// Objects longer than [`WHOLE`] are copied piece by piece, as they are written: of a node with many records few are hot.
const SEGMENT: u64 = 1024;
/// Longest copy.
pub(crate) const WHOLE: u64 = 2048;
/// Bytes before those of a copy.
pub(crate) const HEADER: u64 = 32;
/// Copies begin and end at multiples of this.
pub(crate) const UNIT: u64 = 16;
/// Copies from this length on lie on lines of their own, but for half of one.
const LONG: u64 = 256;
const SHARDS: usize = 64;
/// Rounds of giving copies up before everything is settled, and before it is an error.
const ROUNDS: usize = 4;

/// Bytes of main and where in the pool their copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) at: u64,
}

pub(crate) struct Copies {
    pool: Pool,
    key: ChecksumKey,
    /// Of the bytes of copies, whose checksums are exclusive-ored with tags that `key` made.
    of_bytes: ChecksumKey,
    /// The region, as a line of bytes.
    pub(crate) line: Space,
    shards: Box<[Shard]>,
    pub(crate) arena: Mutex<Arena>,
    /// Shared by who makes copies; held alone, it keeps everybody from it. Before every other lock.
    gate: parking_lot::RwLock<()>,
    failpoints: Failpoints,
}

/// From the offset in main to the place in the line, which leaves four bits.
type Map = HashMap<usize, u64, BuildHasherDefault<PointerHash>>;

#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Map>);

/// Written since the hand passed.
const USED: u64 = 1;
/// Given up, and not durably so: nobody uses its space.
const LEAVING: u64 = 2;
/// Brought back, and who gave it up has not noticed: it is not given up anew before.
const BACK: u64 = 4;
const FLAGS: u64 = UNIT - 1;

/// Places taken for copies; and what was given up to have more, which is free behind the next drain.
#[derive(Default)]
struct Room {
    places: Vec<u64>,
    given_up: Vec<Piece>,
}

/// What the map says.
enum Found {
    At(u64),
    /// Given up, but its bytes are there. It is the caller's to bring back.
    Left(u64),
    Missing,
}

/// What the hand may do with what it meets.
pub(crate) enum Verdict {
    /// Nothing counts there, durably.
    Free,
    /// Given up just now.
    GivenUp,
    /// To be left alone; true if a transaction of another slot writes it.
    Stays(bool),
}

impl Copies {
    pub(crate) fn new(pool: &Pool, epoch: u64, line: Space, failpoints: Failpoints) -> Self {
        Self {
            pool: pool.clone(),
            of_bytes: pool.checksum_key(KEY | epoch).of_kind(OF_BYTES),
            key: pool.checksum_key(KEY | epoch),
            line,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            arena: Mutex::new(Arena::default()),
            gate: parking_lot::RwLock::new(()),
            failpoints,
        }
    }

    /// Bytes of the region that a copy takes.
    pub(crate) fn space(len: u64) -> u64 {
        (HEADER + len).next_multiple_of(if len < LONG { UNIT } else { LINE })
    }

    /// Bytes to leave free before a copy at `at`, so that a long one's bytes begin with a line: it is copied past the cache then.
    pub(crate) fn pad(at: u64, len: u64) -> u64 {
        if len < LONG { 0 } else { (LINE - (at + HEADER) % LINE) % LINE }
    }

    // ---- who makes copies ---------------------------------------------------------------------------------------------

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

    /// Nobody makes copies while it is held; `None` if somebody goes on making some for this time.
    pub(crate) fn try_hold_gate(&self, timeout: Duration) -> Option<parking_lot::RwLockWriteGuard<'_, ()>> {
        if is_scheduled() { self.gate.try_write() } else { self.gate.try_write_for(timeout) }
    }

    // ---- what stands in the region ----------------------------------------------------------------------------------

    pub(crate) fn tag(&self, at: u64, offset: u64, len: u64) -> u64 {
        let mut words = [0; 24];
        words[..8].copy_from_slice(&at.to_le_bytes());
        words[8..16].copy_from_slice(&offset.to_le_bytes());
        words[16..].copy_from_slice(&len.to_le_bytes());
        self.key.checksum(&words)
    }

    /// The proof of a copy that follows main.
    pub(crate) fn sure(&self, at: u64) -> u64 {
        self.key.checksum(&at.to_le_bytes()) | 1
    }

    /// The proof of a copy with these bytes.
    pub(crate) fn checksummed(&self, tag: u64, bytes: &[u8]) -> u64 {
        (self.of_bytes.checksum(bytes) ^ tag) | 1 // never 0
    }

    /// The place in the pool of what is at `at` in the line.
    pub(crate) fn place(&self, at: u64) -> Result<u64> {
        self.line.place(at).map(|(offset, _)| offset).ok_or_else(|| self.outside(at))
    }

    #[cold]
    pub(crate) fn outside(&self, at: u64) -> Error {
        let why = format!("byte {at} is not in it: it has {}", self.line.len());
        Error::Damaged { what: "copies of objects", offset: at, why }
    }

    /// Stores the first two words of what is at `at`: the arena's.
    pub(crate) fn store(&self, at: u64, words: [u64; 2]) -> Result<()> {
        let place = self.place(at)?;
        // the caller has the arena, and nothing that counts is there; or it is just being taken for a copy.
        raw::bytes_mut(Claim::Copies, self, &self.pool, place, 16)?.copy_from_slice(pmem::bytes_of(&words));
        Ok(())
    }

    /// Stores the proof of the copy at `at`. The caller flushes it: eight bytes from the place returned.
    fn prove(&self, at: u64, proof: u64) -> Result<u64> {
        let place = self.place(at)? + 16;
        // the caller is the object's writer, or has its shard and has found that it has no writer; or settles that it is freed.
        raw::bytes_mut(Claim::Copies, self, &self.pool, place, 8)?.copy_from_slice(&proof.to_le_bytes());
        Ok(place)
    }

    /// A copy of a range of main that nobody but the caller writes; persistent, all but its header, after the next drain.
    #[track_caller]
    fn write(&self, at: u64, (offset, len): Bytes) -> Result<u64> {
        let place = self.place(at)?;
        // the caller is the writer of the range, and has not written yet; the place is its own.
        let tag = self.tag(at, offset, len);
        let proof = self.checksummed(tag, raw::bytes(Claim::Writer, self, &self.pool, offset, len)?);
        raw::copy(Claim::Copies, &self.pool, offset, place + HEADER, len)?;
        // The first half of its header is there, from when the place was taken.
        let rest = raw::bytes_mut(Claim::Copies, self, &self.pool, place + 16, 16)?;
        rest[..8].copy_from_slice(&proof.to_le_bytes());
        rest[8..].copy_from_slice(&tag.to_le_bytes());
        self.pool.flush(place, HEADER)?;
        Ok(place + HEADER)
    }

    // ---- the map ----------------------------------------------------------------------------------------------------

    fn shard(&self, offset: u64) -> &Mutex<Map> {
        // Neighbours in one shard: a transaction's objects are often neighbours.
        &self.shards[(offset >> 12) as usize % SHARDS].0
    }

    fn find(&self, offset: u64) -> Found {
        match self.shard(offset).lock().get_mut(&(offset as usize)) {
            None => Found::Missing,
            Some(entry) if *entry & LEAVING != 0 => {
                *entry = *entry & !FLAGS | USED | BACK;
                Found::Left(*entry & !FLAGS)
            }
            Some(entry) => {
                *entry |= USED;
                Found::At(*entry & !FLAGS)
            }
        }
    }

    /// A copy is about to be made at `at`.
    pub(crate) fn enlist(&self, offset: u64, at: u64) {
        self.shard(offset).lock().insert(offset as usize, at | USED);
    }

    fn forget(&self, offset: u64) {
        self.shard(offset).lock().remove(&(offset as usize));
    }

    /// Forgets a copy that was given up, behind the barrier for that. False if its object's writer has brought it back.
    pub(crate) fn forget_left(&self, offset: u64, at: u64) -> bool {
        let mut map = self.shard(offset).lock();
        match map.get_mut(&(offset as usize)) {
            Some(entry) if *entry == at | LEAVING => map.remove(&(offset as usize)).is_some(),
            Some(entry) if *entry & !FLAGS == at => {
                *entry &= !BACK;
                false
            }
            _ => false,
        }
    }

    /// What the hand, held by a transaction in `slot`, may do with a copy of bytes at `offset`.
    #[track_caller]
    pub(crate) fn judge(&self, core: &Core, slot: usize, offset: u64, at: u64) -> Result<Verdict> {
        let mut map = self.shard(offset).lock();
        let Some(entry) = map.get_mut(&(offset as usize)).filter(|entry| **entry & !FLAGS == at) else {
            return Ok(Verdict::Free);
        };
        if *entry & (LEAVING | BACK) != 0 {
            return Ok(Verdict::Stays(false));
        }
        if *entry & USED != 0 {
            *entry &= !USED;
            return Ok(Verdict::Stays(false));
        }
        // One that does not resolve is being freed.
        let Ok(found) = core.alloc.find(PPtr::<u8>::new(self.pool.tag(), offset), 0) else {
            return Ok(Verdict::Stays(false));
        };
        match lock::load(Word::at(&found).get()) {
            State::Writer(other) => return Ok(Verdict::Stays(other != slot)),
            State::Pending(..) if !self.failpoints.skips(Step::PendingStays) => return Ok(Verdict::Stays(false)),
            State::Shared(_) | State::Pending(..) => {}
        }
        *entry |= LEAVING;
        let place = self.prove(at, 0)?;
        self.pool.flush(place, 8)?;
        Ok(Verdict::GivenUp)
    }

    // ---- freed objects ----------------------------------------------------------------------------------------------

    /// Gives up the copies of a block that was freed, durably with these lines: who gets its bytes next makes none.
    pub(crate) fn give_up(&self, block: &Block, lines: &mut FlushSet) -> Result<()> {
        if self.failpoints.skips(Step::FreedGivenUp) {
            return Ok(());
        }
        for (offset, _) in segments(block, (block.offset(), block.len())) {
            let mut map = self.shard(offset).lock();
            if let Some(entry) = map.get_mut(&(offset as usize)) {
                *entry |= LEAVING;
                let place = self.prove(*entry & !FLAGS, 0)?;
                self.pool.add_lines(lines, place, 8);
            }
        }
        Ok(())
    }

    /// Forgets the copies of a block that is about to be handed out again.
    pub(crate) fn forget_block(&self, block: &Block) {
        for (offset, _) in segments(block, (block.offset(), block.len())) {
            self.forget(offset);
        }
    }
}

/// Apart from the other keys of a heap's pool.
const KEY: u64 = 0xc0 << 56;
/// The kind of the checksums of bytes.
const OF_BYTES: u32 = 1;

/// The pieces of a block in which bytes lie, as they are copied.
pub(crate) fn segments(block: &Block, (offset, len): Bytes) -> impl Iterator<Item = Bytes> + use<> {
    let (start, end) = (block.offset(), block.offset() + block.len());
    let each = if block.len() <= WHOLE { block.len() } else { SEGMENT };
    let first = start + (offset - start) / each * each;
    (first..offset + len).step_by(each as usize).map(move |at| (at, each.min(end - at)))
}

/// Calls `f` with (range, main, copy, length) for each piece of the ranges that has a copy. Both come in order, and apart.
pub(crate) fn join<R: Copy>(
    ranges: impl Iterator<Item = (Bytes, R)>,
    copies: impl Iterator<Item = Copied>,
    mut f: impl FnMut(R, u64, u64, u64) -> Result<()>,
) -> Result<()> {
    let mut copies = copies.peekable();
    for ((start, len), range) in ranges {
        let end = start + len;
        while let Some(copy) = copies.peek().copied().filter(|copy| copy.offset < end) {
            let copy_end = copy.offset + copy.len;
            let (from, to) = (start.max(copy.offset), end.min(copy_end));
            if from < to {
                f(range, from, copy.at + (from - copy.offset), to - from)?;
            }
            if copy_end > end {
                break; // the next range may lie in it, too
            }
            copies.next();
        }
    }
    Ok(())
}

impl Core {
    /// Sees to it that ranges, each of a block of which the transaction in `slot` is the writer, have copies. One barrier if one has not; then
    /// another if nothing is free that is known to be so on media.
    #[inline]
    pub(crate) fn cover(&self, slot: usize, set: &mut Set, wanted: &[(usize, Bytes)]) -> Result<()> {
        let Some(copies) = &self.copies else { return Ok(()) };
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
                match copies.find(offset) {
                    Found::Missing => {
                        self.pool.prefetch(offset, pmem::lines(offset, len)); // all of it is checksummed, and copied
                        missing.push((offset, len));
                    }
                    Found::At(at) => {
                        set.copies.push(Copied { offset, len, at: copies.place(at)? + HEADER });
                    }
                    Found::Left(at) => {
                        set.copies.push(Copied { offset, len, at: copies.place(at)? + HEADER });
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
        let _gate = copies.share_gate();
        set.unsure = true; // until the next drain of this thread
        for &at in left {
            let place = copies.prove(at, copies.sure(at))?; // it is as main is
            self.pool.flush(place, 8)?;
        }
        // Should anything fail, what was brought back is sure with the barrier of the abort.
        let mut room = Room::default();
        let made = self.room_for(copies, slot, missing, &mut room).and_then(|()| {
            missing.iter().zip(&room.places).try_for_each(|(&range, &at)| {
                let (offset, len) = range;
                set.copies.push(Copied { offset, len, at: copies.write(at, range)? });
                Ok(())
            })
        });
        if made.is_err() {
            // Nobody is to find copies that are not there; nor recovery those that were made, once their objects have others.
            for (m, &at) in missing.iter().zip(&room.places) {
                copies.forget(m.0);
                let place = copies.prove(at, 0)?;
                self.pool.flush(place, 8)?;
            }
        }
        if !self.failpoints.skips(Step::CopyBarrier) {
            self.pool.drain()?; // the copies, before their objects are written; what was given up, before its space is
        }
        copies.publish(&room.given_up)?;
        made?;
        for &at in &room.places {
            let place = copies.prove(at, copies.sure(at))?;
            self.pool.flush(place, 8)?; // with the transaction's next barrier
        }
        Counters::add(&self.counters[slot].misses);
        Ok(())
    }

    /// Takes places for copies, and notes them in the map.
    fn room_for(&self, copies: &Copies, slot: usize, missing: &[Bytes], room: &mut Room) -> Result<()> {
        let needed: u64 = missing.iter().map(|m| Copies::space(m.1)).sum();
        let mut in_use = false;
        for round in 0..=2 * ROUNDS {
            if round > 0 {
                if round == ROUNDS || room.given_up.is_empty() {
                    self.settle_all(&mut |_| {})?;
                }
                if room.given_up.iter().any(|piece| piece.of.is_some()) {
                    self.pool.drain()?;
                }
                copies.publish(&std::mem::take(&mut room.given_up))?;
            }
            let mut arena = copies.arena.lock();
            for &(offset, len) in &missing[room.places.len()..] {
                let Some(at) = arena.take(copies, (offset, len))? else { break };
                copies.enlist(offset, at);
                room.places.push(at);
            }
            // Where copies are of many lengths, so little may lie in pieces that are too short: then more.
            let wanted = if round < ROUNDS { needed << round } else { arena.limit().max(needed) };
            arena.advance(self, copies, slot, wanted, &mut room.given_up)?;
            in_use = arena.in_use(); // now: another one's look is next
            if room.places.len() == missing.len() {
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
        crate::record::coalesce(&mut set.writes);
        set.order_copies();
        let ranges = set.writes.iter().map(|&range| (range, ()));
        join(ranges, set.copies.iter().copied(), |(), main, copy, n| {
            // as just said; the copy is the object's.
            raw::copy(Claim::Writer, &self.pool, copy, main, n)
        })
    }
}
