//! Compaction: versions that are still needed move out of segments that hold little else.
//!
//! Versions move with their timestamps, some at a time as one transaction in some writer's log, under their keys' locks. For recovery each is one more record of that
//! version: whichever it meets first will do.

use std::ops::ControlFlow;

use pmem::sync::{OwnMutex, OwnMutexGuard};

use crate::error::Result;
use crate::isolation::active::Pin;
use crate::isolation::locks::Tried;
use crate::maintenance::Checkpointing;
use crate::maintenance::checkpointer::Checkpointer;
use crate::media::checkpoint::WRITERS;
use crate::media::header::{self, FIRST, GRAIN, MOVED};
use crate::media::record::{self, Record};
use crate::media::uses::Use;
use crate::media::word::Word;
use crate::media::{checksum, key};
use crate::raw::{self, Claim};
use crate::space::need::Need;
use crate::writers::writer::{Dead, Log, Run, Tombstone};

/// Versions that move in one transaction, at most.
pub(super) const TOGETHER: usize = 256;

/// A version, where it is, and its key's hash.
type Moved<'r> = (Record<'r>, Word, u64);

/// `own`, and of `others` what fills the ends of their segments, in the order in which least is left there: the longest that fits is next. `rest` bytes are left of the first segment.
fn packed<'r>(own: Vec<Moved<'r>>, others: Vec<Moved<'r>>, mut rest: u64, segment_bytes: u64) -> Vec<Moved<'r>> {
    let mut packed = Vec::with_capacity(own.len());
    let mut ranks = [own, others];
    for rank in &mut ranks {
        rank.sort_by_key(|(record, ..)| std::cmp::Reverse(record.space()));
    }
    loop {
        let fits = |(rank, all): (usize, &Vec<Moved<'_>>)| {
            let first = all.partition_point(|(record, ..)| record.space() > rest);
            (first < all.len()).then_some((rank, first))
        };
        let (rank, at) = match ranks.iter().enumerate().find_map(fits) {
            Some(found) => found,
            None if ranks[0].is_empty() => return packed,
            // One that takes more than a segment has its own.
            None => (0, 0),
        };
        let next = ranks[rank].remove(at);
        if next.0.space() > rest {
            rest = next.0.space().max(segment_bytes);
        }
        rest -= next.0.space();
        packed.push(next);
    }
}

/// Segments whose versions may fill up the ends of others, at most.
const FILLERS: usize = 8;

/// A segment with something in it.
#[derive(Clone, Copy, Debug)]
struct Full {
    number: u32,
    writer: usize,
    sequence: u32,
    live: u64,
}

impl<'c> Checkpointing<'c> {
    /// Empties the sparsest segments, if the store takes far more space than it needs; and those far out, if its file does. Returns how many bytes more may move.
    pub(super) fn compact(&self, checkpointer: &mut Checkpointer, pin: &Pin<'_>) -> Result<u64> {
        let usage = self.versions.space.usage();
        let bytes = self.versions.space.segment_bytes;
        let taken = (usage.segments - usage.free - usage.nodes) * bytes;
        // What is written between two checkpoints, and what writers have begun.
        let has_begun = |log: &OwnMutex<Log>| log.try_lock().is_none_or(|log| log.segment().is_some());
        let mut begun = self.versions.writers.all.iter().filter(|writer| has_begun(&writer.log)).count() as u64;
        if self.versions.writers.grouped().is_some() {
            begun = begun.min(2); // that of groups, and that of the thread that makes checkpoints
        }
        let slack = self.maintenance.due.enough() + begun * bytes;
        // Where data were refused, a gain is welcome, and any gain where it was a transaction that takes data out.
        let (wanted, dense) = match (self.versions.space.take_short(), checkpointer.rescue) {
            (_, true) => (usage.live, bytes / 64 * 63),
            (true, false) => (usage.live, bytes / 8 * 7),
            (false, _) => {
                let spare = self.maintenance.spare;
                (usage.live + usage.live / 100 * spare + slack, bytes * 100 / (100 + spare))
            }
        };
        // What is written goes to the lowest free segments. So the end of the file becomes free, once what is there has moved.
        let near = 2 * (usage.segments - usage.free) + slack / bytes;
        checkpointer.nodes.far = (usage.segments > near + near / 2).then_some(near as u32);
        // As much as is written between two checkpoints, at most.
        let mut left = self.maintenance.due.most();
        if let Some(mut excess) = taken.checked_sub(wanted) {
            let worthwhile =
                |full: &Full| full.live < dense && checkpointer.alone.get(&full.number) != Some(&full.sequence);
            let mut sparse: Vec<Full> = self.checkpointed(checkpointer).filter(worthwhile).collect();
            sparse.sort_unstable_by_key(|full| full.live);
            for (at, full) in sparse.iter().enumerate() {
                if excess == 0 || left == 0 {
                    break;
                }
                self.empty(checkpointer, pin, *full, Some(&sparse[at + 1..]))?;
                excess = excess.saturating_sub(bytes - full.live);
                left = left.saturating_sub(full.live);
            }
        }
        if let Some(far) = checkpointer.nodes.far {
            let moves = |full: &Full| {
                full.number >= far
                    && self
                        .versions
                        .space
                        .lowest(self.versions.space.run(full.number) as u32)
                        .is_some_and(|to| to < far)
            };
            for full in self.checkpointed(checkpointer).filter(moves).collect::<Vec<_>>() {
                if left == 0 {
                    break;
                }
                self.empty(checkpointer, pin, full, None)?;
                left = left.saturating_sub(full.live);
            }
        }
        Ok(left)
    }

    /// Segments that something is in, and that recovery does not read.
    fn checkpointed<'a>(&'a self, checkpointer: &Checkpointer) -> impl Iterator<Item = Full> + use<'a, 'c> {
        let marks: Vec<u32> = (0..WRITERS).map(|writer| checkpointer.mark(writer).sequence).collect();
        (0..self.versions.space.count()).filter_map(move |number| match self.versions.space.used(number) {
            Use::Log { writer, sequence, .. } if sequence < marks[writer] => {
                let live = self.versions.space.live(number);
                (live > 0).then_some(Full { number, writer, sequence, live })
            }
            _ => None,
        })
    }

    /// Moves what is needed out of a segment; if it is to gain room, and all is wanted, with what fills it up of those that are next.
    fn empty(
        &self,
        checkpointer: &mut Checkpointer,
        pin: &Pin<'_>,
        full: Full,
        to_gain: Option<&[Full]>,
    ) -> Result<()> {
        let mut needed = Vec::new();
        self.needed(pin, full, &mut needed)?;
        // A long one that is alone would be so again.
        if to_gain.is_some() && needed.len() == 1 && needed[0].space() > self.versions.space.segment_bytes / 2 {
            checkpointer.alone.insert(full.number, full.sequence);
            return Ok(());
        }
        let need = match (checkpointer.rescue, full.live < self.versions.space.segment_bytes / 8) {
            (false, _) => Need::Move,
            (true, false) => Need::Rescue,
            (true, true) => Need::Last,
        };
        let mut others = Vec::new();
        // Short ones fill segments by themselves.
        if checkpointer.rescue && needed.iter().any(|record| record.space() > self.versions.space.segment_bytes / 64) {
            for next in to_gain.unwrap_or_default().iter().take(FILLERS) {
                self.needed(pin, *next, &mut others)?;
            }
            others.truncate(TOGETHER);
        }
        needed.chunks(TOGETHER).try_for_each(|some| self.move_together(checkpointer, pin, some, &others, need))
    }

    /// The records of a segment that the index leads to.
    fn needed<'a>(&'a self, pin: &Pin<'_>, full: Full, needed: &mut Vec<Record<'a>>) -> Result<()> {
        let Full { number, writer, sequence, .. } = full;
        self.versions.walk(number, writer, sequence, |record| {
            if self.versions.index.find_at(pin, record.key(), key::hash(record.key()), record.offset).is_some() {
                needed.push(record);
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Moves those of up to [`TOGETHER`] versions that are still the newest of their keys, into one run if there is room for it, and as many of the `others` as find room behind
    /// them. One barrier.
    pub(super) fn move_together<'r>(
        &self,
        checkpointer: &mut Checkpointer,
        pin: &Pin<'_>,
        some: &[Record<'r>],
        others: &[Record<'r>],
        need: Need,
    ) -> Result<()> {
        let mut held = Vec::new();
        let mut lock = |record: &Record<'r>| {
            let hash = key::hash(record.key());
            match self.versions.concurrency.try_lock(hash, pin) {
                Tried::Taken => held.push(hash),
                // Two keys may share a lock.
                Tried::Own => {}
                // A transaction that writes it now supersedes it anyway.
                Tried::Busy => return None,
            }
            Some((*record, self.versions.index.find_at(pin, record.key(), hash, record.offset)?, hash))
        };
        let own: Vec<Moved<'_>> = some.iter().filter_map(&mut lock).collect();
        let others = if own.is_empty() { Vec::new() } else { others.iter().filter_map(&mut lock).collect() };
        let moved = if own.is_empty() { Ok(()) } else { self.rewrite(checkpointer, pin, own, others, need) };
        held.into_iter().for_each(|hash| self.versions.concurrency.unlock(hash, pin));
        moved
    }

    /// A log in which everything is durable: what is linked to that testifies to it.
    fn claim_forced(&self) -> Result<(usize, OwnMutexGuard<'_, Log>)> {
        loop {
            self.persistence.force(self.versions)?;
            let (writer, log) = self.versions.writers.claim();
            if log.number() <= self.persistence.forced() {
                return Ok((writer, log));
            }
        }
    }

    fn rewrite<'r>(
        &self,
        checkpointer: &mut Checkpointer,
        pin: &Pin<'_>,
        mut batch: Vec<Moved<'r>>,
        others: Vec<Moved<'r>>,
        need: Need,
    ) -> Result<()> {
        let (writer, mut log) = self.claim_forced()?;
        if checkpointer.rescue {
            batch = packed(batch, others, log.rest(), self.versions.space.segment_bytes);
        }
        let mut image = Vec::new();
        let mut pieces = Vec::new();
        for (record, ..) in &batch {
            let at = image.len();
            let first = if at == 0 { FIRST } else { 0 };
            let flags = record.header.key_len_flags & header::TOMBSTONE | first | MOVED;
            record::encode(&mut image, record.key(), record.value(), flags, record.expires());
            pieces.push((at, image.len() - at));
        }
        let mut runs: Vec<Run> = Vec::new();
        self.versions.note_leaves();
        log.reserve(&self.versions.space, pieces.iter().copied(), || need, &mut runs)?;
        let mut link = log.link();
        let mut words = Vec::with_capacity(batch.len());
        let mut run = 0;
        for ((record, _, hash), (at, _)) in batch.iter().zip(&pieces) {
            while *at >= runs[run].image + runs[run].len {
                run += 1;
            }
            let offset = runs[run].offset + (at - runs[run].image) as u64;
            let bytes = &mut image[*at..];
            let Some(mut header) = pmem::from_bytes::<header::Header>(&bytes[..header::HEADER as usize]) else {
                continue;
            };
            (header.ts, header.prev) = (record.header.ts, record.header.prev);
            (header.generation, header.rest) =
                (self.versions.medium.generation(), (batch.len() - 1 - words.len()) as u32);
            if header.has(FIRST) {
                header.link = log.link();
            }
            bytes[..header::HEADER as usize].copy_from_slice(pmem::bytes_of(&header));
            let len = header.len() as usize;
            header.checksum = checksum::checksum(
                self.versions.medium.key(),
                &bytes[..len],
                checksum::location(offset, writer, runs[run].sequence),
            );
            bytes[..8].copy_from_slice(&header.checksum.to_le_bytes());
            if header.has(FIRST) {
                link = checksum::link(header.checksum);
            }
            let space = header.len().next_multiple_of(GRAIN);
            words.push((Word::new(offset, space, *hash, &header), runs[run].segment));
        }
        log.is_durable();
        log.follow(self.versions.pool(), self.versions.medium.key(), 1)?;
        for run in &runs {
            raw::store(Claim::Writer, self.versions.pool(), run.offset, &image[run.image..run.image + run.len])?;
        }
        log.name_segments(&self.versions.space)?;
        self.versions.pool().drain()?;
        log.segments_are_named();
        log.advance(&self.versions.space, &runs, image.len(), link);
        log.is_durable();
        for ((record, old, hash), (new, segment)) in batch.iter().zip(words) {
            if self.versions.index.swap(pin, record.key(), *hash, *old, new)? {
                self.versions.space.add_live(segment, new.space());
                let unlinked = self.versions.now();
                checkpointer.unripe.push(Dead { word: *old, unlinked });
                if new.is_tombstone() {
                    let (key, ts) = (record.key().into(), record.header.ts);
                    checkpointer.tombstones.push(Tombstone { key, word: new, ts, unlinked });
                }
            }
        }
        crate::stats::add(&self.maintenance.moved, batch.len() as u64);
        Ok(())
    }
}
