//! Which objects have copies, and where: what stands in the region, and the map.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use pmem::sync::Mutex;
use pmem::{Allocator, Block, ChecksumKey, FlushSet, LINE, PPtr, Pool};
use tx::{Error, Result};

use crate::failpoints::{Failpoints, Step};
use crate::hash::PointerHash;
use crate::lock::{self, State};
use crate::raw::{self, Claim, Word};
use crate::record::Bytes;
use crate::space::Space;

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
/// Bytes of main and where in the pool their copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) at: u64,
}

/// The copies that there are: what stands in the region, and the map from an object to its copy.
pub(crate) struct Catalog {
    pub(super) pool: Pool,
    key: ChecksumKey,
    /// Of the bytes of copies, whose checksums are exclusive-ored with tags that `key` made.
    of_bytes: ChecksumKey,
    /// The region, as a line of bytes.
    pub(crate) line: Space,
    shards: Box<[Shard]>,
    pub(super) failpoints: Failpoints,
}

/// From the offset in main to the place in the line, which leaves four bits.
type Map = HashMap<usize, u64, BuildHasherDefault<PointerHash>>;

#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Map>);

/// Written since the hand passed.
const USED: u64 = 1;
/// Given up, and not durably so: its space is not used.
const LEAVING: u64 = 2;
/// Brought back, and the thread that gave it up has not noticed: it is not given up anew before.
const BACK: u64 = 4;
const FLAGS: u64 = UNIT - 1;

/// What the map says.
pub(crate) enum Found {
    At(u64),
    /// Given up, but its bytes are there. It is the caller's to bring back.
    Left(u64),
    Missing,
}

/// What the hand may do with what it meets.
pub(super) enum Verdict {
    /// Nothing counts there, durably.
    Free,
    /// Given up just now.
    GivenUp,
    /// To be left alone; true if a transaction of another slot writes it.
    Stays(bool),
}

impl Catalog {
    pub(super) fn new(pool: &Pool, epoch: u64, line: Space, failpoints: Failpoints) -> Self {
        Self {
            pool: pool.clone(),
            of_bytes: pool.checksum_key(KEY | epoch).of_kind(OF_BYTES),
            key: pool.checksum_key(KEY | epoch),
            line,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            failpoints,
        }
    }

    /// Bytes of the region that a copy takes.
    pub(crate) fn space(len: u64) -> u64 {
        (HEADER + len).next_multiple_of(if len < LONG { UNIT } else { LINE })
    }

    /// Bytes to leave free before a copy at `at`, so that a long one's bytes begin with a line: it is copied past the cache then.
    pub(super) fn pad(at: u64, len: u64) -> u64 {
        if len < LONG { 0 } else { (LINE - (at + HEADER) % LINE) % LINE }
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
    pub(crate) fn offset(&self, at: u64) -> Result<u64> {
        self.line.offset(at).map(|(offset, _)| offset).ok_or_else(|| self.outside(at))
    }

    #[cold]
    pub(super) fn outside(&self, at: u64) -> Error {
        let why = format!("byte {at} is not in it: it has {}", self.line.len());
        Error::Damaged { what: "copies of objects", offset: at, why }
    }

    /// Stores the first two words of what is at `at`: the arena's.
    pub(super) fn store(&self, at: u64, words: [u64; 2]) -> Result<()> {
        let header = self.offset(at)?;
        // the caller has the arena, and nothing that counts is there; or it is just being taken for a copy.
        raw::bytes_mut(Claim::Copies, self, &self.pool, header, 16)?.copy_from_slice(pmem::bytes_of(&words));
        Ok(())
    }

    /// Stores the proof of the copy at `at`. The caller flushes it: eight bytes from the place returned.
    pub(crate) fn prove(&self, at: u64, proof: u64) -> Result<u64> {
        let header = self.offset(at)? + 16;
        // the caller is the object's writer, or has its shard and has found that it has no writer; or carries out that it is freed.
        raw::bytes_mut(Claim::Copies, self, &self.pool, header, 8)?.copy_from_slice(&proof.to_le_bytes());
        Ok(header)
    }

    /// A copy of a range of main that only the caller writes; persistent, all but its header, after the next drain.
    #[track_caller]
    pub(crate) fn write(&self, at: u64, (offset, len): Bytes) -> Result<u64> {
        let header = self.offset(at)?;
        // the caller is the writer of the range, and has not written yet; the place is its own.
        let tag = self.tag(at, offset, len);
        let proof = self.checksummed(tag, raw::bytes(Claim::Writer, self, &self.pool, offset, len)?);
        raw::copy(Claim::Copies, &self.pool, offset, header + HEADER, len)?;
        // The first half of its header is there, from when the place was taken.
        let rest = raw::bytes_mut(Claim::Copies, self, &self.pool, header + 16, 16)?;
        rest[..8].copy_from_slice(&proof.to_le_bytes());
        rest[8..].copy_from_slice(&tag.to_le_bytes());
        self.pool.flush(header, HEADER)?;
        Ok(header + HEADER)
    }

    // ---- the map ----------------------------------------------------------------------------------------------------

    fn shard(&self, offset: u64) -> &Mutex<Map> {
        // Neighbours in one shard: a transaction's objects are often neighbours.
        &self.shards[(offset >> 12) as usize % SHARDS].0
    }

    pub(crate) fn find(&self, offset: u64) -> Found {
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

    pub(crate) fn forget(&self, offset: u64) {
        self.shard(offset).lock().remove(&(offset as usize));
    }

    /// Forgets a copy that was given up, behind the barrier for that. False if its object's writer has brought it back.
    pub(super) fn forget_left(&self, offset: u64, at: u64) -> bool {
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
    pub(super) fn judge(&self, alloc: &Allocator, slot: usize, offset: u64, at: u64) -> Result<Verdict> {
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
        let Ok(found) = alloc.find(PPtr::<u8>::new(self.pool.tag(), offset), 0) else {
            return Ok(Verdict::Stays(false));
        };
        match lock::load(Word::at(&found).get()) {
            State::Writer(other) => return Ok(Verdict::Stays(other != slot)),
            State::Pending(..) if !self.failpoints.skips(Step::PendingStays) => return Ok(Verdict::Stays(false)),
            State::Shared(_) | State::Pending(..) => {}
        }
        *entry |= LEAVING;
        let header = self.prove(at, 0)?;
        self.pool.flush(header, 8)?;
        Ok(Verdict::GivenUp)
    }

    // ---- freed objects ----------------------------------------------------------------------------------------------

    /// Gives up the copies of a block that was freed, durably with these lines: the transaction that gets its bytes next makes none.
    pub(crate) fn give_up(&self, block: &Block, lines: &mut FlushSet) -> Result<()> {
        if self.failpoints.skips(Step::FreedGivenUp) {
            return Ok(());
        }
        for (offset, _) in segments(block, (block.offset(), block.len())) {
            let mut map = self.shard(offset).lock();
            if let Some(entry) = map.get_mut(&(offset as usize)) {
                *entry |= LEAVING;
                let header = self.prove(*entry & !FLAGS, 0)?;
                self.pool.add_lines(lines, header, 8);
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
