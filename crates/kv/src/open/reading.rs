//! One log is read, transaction by transaction.
//!
//! | read at a position of a log | done |
//! |---|---|
//! | a whole transaction, linked to the last one | its records go into the index where they are newer; on behind it |
//! | anything else, and further on a whole first record linked to the last transaction | the rest of the segment was skipped; on there |
//! | anything else, and further on a whole first record with another link | [`Error::Lost`] |
//! | anything else, and nothing further on, but the checkpoint leads there or behind | [`Error::Lost`]: it would show a part of the transaction |
//! | anything else, and nothing further on | the end: what is there was never acknowledged |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use pmem::LINE;

use crate::Step;
use crate::error::{Error, Result};
use crate::isolation::active::Pin;
use crate::media::header::{self, FIRST, GRAIN, HEADER, JOINED, MOVED};
use crate::media::mark::Mark;
use crate::media::record::Record;
use crate::media::word::Word;
use crate::media::{checksum, key};
use crate::raw::Claim;
use crate::salvaged::CutLog;
use crate::versions::Versions;
use crate::writers::writer::{Dead, Tombstone};

/// Which numbered commits stay.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Through this number.
    pub(super) last: u64,
    /// Whole records say that all through this one were durable.
    pub(super) durable: u64,
    pub(super) all: bool,
    /// Writers of whose logs something was lost, and given up.
    pub(super) given_up: BTreeSet<usize>,
}

impl Kept {
    /// Whether the transaction that begins with this record goes.
    pub(super) fn drops(&self, first: &Record<'_>) -> bool {
        !self.all && first.number().is_some_and(|(number, _)| number > self.last)
    }

    /// Whether the reading has stopped at such a transaction.
    pub(super) fn is_cut(&self, reading: &Reading<'_>) -> Result<bool> {
        Ok(reading.transaction(reading.at)?.is_some_and(|whole| self.drops(&whole.records[0])))
    }
}

/// A piece of a writer's log: segments in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) segment: u32,
    pub(super) base: u64,
    pub(super) limit: u64,
    pub(super) generation: u16,
}

/// Where the reading of a log stands.
pub(super) struct Reading<'a> {
    pub(super) versions: &'a Versions,
    /// What is lost is given up.
    pub(super) salvages: bool,
    pub(super) pin: &'a Pin<'a>,
    pub(super) writer: usize,
    pub(super) pieces: &'a BTreeMap<u32, Piece>,
    pub(super) at: Mark,
    pub(super) link: u16,
}

/// A whole transaction: its records, and where the next one can begin.
pub(super) struct Whole<'a> {
    pub(super) records: Vec<Record<'a>>,
    pub(super) end: Mark,
}

impl<'a> Reading<'a> {
    /// The transaction at the present position, or the one that follows what was skipped.
    pub(super) fn next(&self, kept: &mut Kept) -> Result<Option<Whole<'a>>> {
        if let Some(whole) = self.transaction(self.at)? {
            return Ok(Some(whole));
        }
        // A transaction of which only a part arrived may stand here, and behind it, in a segment begun since, the next.
        let mut from = self.at;
        while let Some((mark, first)) = self.further_on(from)? {
            if first.header.link == self.link || self.versions.skips(Step::Links) {
                if let Some(whole) = self.transaction(mark)? {
                    return Ok(Some(whole));
                }
                from = Mark { at: mark.at + LINE, ..mark };
                continue;
            }
            if let Some((_, durable)) = first.number() {
                // It came before its barrier, and so may what is missing: the numbers tell.
                kept.durable = kept.durable.max(durable);
                return Ok(None);
            }
            if self.salvages {
                tracing::warn!(
                    writer = self.writer,
                    proof = first.offset,
                    "committed transactions are lost, and given up"
                );
                kept.given_up.insert(self.writer);
                return Ok(None);
            }
            let offset = self.pieces.get(&self.at.sequence).map_or(first.offset, |piece| piece.base + self.at.at);
            return Err(Error::Lost { writer: self.writer, offset, proof: first.offset });
        }
        Ok(None)
    }

    /// It ends before what was durable, as what is at `proof` says: the watermark of its log, or a version that the checkpoint leads to.
    #[cold]
    pub(super) fn is_short(&self, proof: u64, kept: &mut Kept) -> Result<()> {
        if self.salvages {
            tracing::warn!(writer = self.writer, proof, "committed transactions are lost, and given up");
            kept.given_up.insert(self.writer);
            return Ok(());
        }
        let offset = self.pieces.get(&self.at.sequence).map_or(proof, |piece| piece.base + self.at.at);
        Err(Error::Lost { writer: self.writer, offset, proof })
    }

    /// A whole transaction that begins at `at`.
    pub(super) fn transaction(&self, at: Mark) -> Result<Option<Whole<'a>>> {
        let mut records = Vec::new();
        let mut mark = at;
        loop {
            let Some((record, here)) = self.record(mark)? else { return Ok(None) };
            let header = record.header;
            match records.first() {
                None => {
                    let linked = header.link == self.link || self.versions.skips(Step::Links);
                    if !header.has(FIRST) || !linked || here != at {
                        return Ok(None);
                    }
                }
                Some(first) => {
                    let first: &Record<'_> = first;
                    let expected = first.header.rest.wrapping_sub(records.len() as u32);
                    // Versions that moved keep their own timestamps, and so do transactions of a group.
                    let own = first.header.has(MOVED) || header.has(JOINED);
                    let together = header.ts == first.header.ts || own;
                    // What an earlier session left here unfinished is no part of it.
                    let alike = header.generation == first.header.generation;
                    if header.has(FIRST) || !together || !alike || header.rest != expected {
                        return Ok(None);
                    }
                }
            }
            let end = Mark { sequence: here.sequence, at: here.at + record.space() };
            let last = header.rest == 0 || self.versions.skips(Step::WholeTransactions);
            records.push(record);
            if last {
                let end = Mark { at: end.at.next_multiple_of(LINE), ..end };
                return Ok(Some(Whole { records, end }));
            }
            mark = end;
        }
    }

    /// The record at a position, or at the beginning of the next segment.
    pub(super) fn record(&self, mark: Mark) -> Result<Option<(Record<'a>, Mark)>> {
        if let Some(record) = self.checksummed(mark)? {
            return Ok(Some((record, mark)));
        }
        let Some((sequence, _)) = self.pieces.range((Excluded(mark.sequence), Unbounded)).next() else {
            return Ok(None);
        };
        let next = Mark { sequence: *sequence, at: 0 };
        Ok(self.checksummed(next)?.map(|record| (record, next)))
    }

    /// The record at exactly this position, if it is whole.
    pub(super) fn checksummed(&self, mark: Mark) -> Result<Option<Record<'a>>> {
        let Some(piece) = self.pieces.get(&mark.sequence) else { return Ok(None) };
        if !mark.at.is_multiple_of(GRAIN) || mark.at + HEADER > piece.limit {
            return Ok(None);
        }
        let offset = piece.base + mark.at;
        let head =
            self.if_readable(crate::raw::bytes(Claim::Opening, self.versions, self.versions.pool(), offset, HEADER))?;
        let Some(header) = head.and_then(pmem::view::<header::Header>) else { return Ok(None) };
        // What an earlier life of the store left here, when the table did not keep that it had the segment.
        if !header.is_since(piece.generation) && !self.versions.skips(Step::Generations) {
            return Ok(None);
        }
        if header.checksum == 0 || !header.is_sound() || header.len() > piece.limit - mark.at {
            return Ok(None);
        }
        let record = self.if_readable(Record::at(Claim::Opening, self.versions, self.versions.pool(), offset))?;
        let named = checksum::location(offset, self.writer, mark.sequence);
        let whole = |record: &Record<'_>| {
            record.is_checksummed(self.versions.medium.key(), named) || self.versions.skips(Step::VerifyChecksum)
        };
        Ok(record.filter(whole))
    }

    /// What the medium does not return may have been a transaction: it passes for none only if what is lost is to be given up.
    fn if_readable<T>(&self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Err(error @ Error::Pool(pmem::Error::Unreadable { .. })) if !self.salvages => Err(error),
            found => Ok(found.ok()),
        }
    }

    /// The next whole first record from a position on.
    pub(super) fn further_on(&self, from: Mark) -> Result<Option<(Mark, Record<'a>)>> {
        for (sequence, piece) in self.pieces.range(from.sequence..) {
            let start = if *sequence == from.sequence { from.at.next_multiple_of(LINE) } else { 0 };
            for at in (start..piece.limit).step_by(LINE as usize) {
                let mark = Mark { sequence: *sequence, at };
                if let Some(record) = self.checksummed(mark)?.filter(|record| record.header.has(FIRST)) {
                    return Ok(Some((mark, record)));
                }
            }
        }
        Ok(None)
    }

    /// Leads the index to a record, if it has no newer one.
    pub(super) fn apply(
        &self,
        record: Record<'_>,
        dead: &mut Vec<Dead>,
        tombstones: &mut Vec<Tombstone>,
    ) -> Result<()> {
        let versions = self.versions;
        if !versions.pool().is_read_only() {
            versions.pool().flush(record.offset, record.header.len())?;
        }
        let hash = key::hash(record.key());
        let (spot, present) = versions.index.find(self.pin, record.key(), hash)?;
        if let Some((_, present)) = present {
            let ts = Record::at(Claim::Opening, versions, versions.pool(), present.offset())?.header.ts;
            let newer = record.header.ts > ts || versions.skips(Step::GreaterOnly);
            if !newer || present.offset() == record.offset {
                return Ok(());
            }
            // The checkpoint still leads there: its place must not be used before the next one.
            dead.push(Dead { word: present, unlinked: 0 });
        }
        let word: Word = record.to_word();
        versions.index.set(
            self.pin,
            record.key(),
            hash,
            present.map_or(Word::NONE, |(_, present)| present),
            word,
            spot,
        )?;
        if let Some(segment) = versions.space.number(record.offset) {
            versions.space.add_live(segment, word.space());
        }
        if word.is_tombstone() {
            tombstones.push(Tombstone { key: record.key().into(), word, ts: record.header.ts, unlinked: 0 });
        }
        Ok(())
    }

    /// What is whole from where the reading has stopped.
    pub(super) fn cut_off(&self) -> Result<CutLog> {
        let (mut records, mut keys) = (0, BTreeSet::new());
        for (sequence, piece) in self.pieces.range(self.at.sequence..) {
            let mut at = if *sequence == self.at.sequence { self.at.at.next_multiple_of(LINE) } else { 0 };
            while at < piece.limit {
                match self.checksummed(Mark { sequence: *sequence, at })? {
                    Some(record) => {
                        records += 1;
                        keys.insert(key::hash(record.key()));
                        at += record.space();
                    }
                    // A commit begins on a line.
                    None => at = (at + 1).next_multiple_of(LINE),
                }
            }
        }
        let piece = self.pieces.range(self.at.sequence..).next();
        let offset = piece.map_or(0, |(_, piece)| piece.base + self.at.at);
        Ok(CutLog { writer: self.writer, offset, records, keys: keys.len() as u64 })
    }
}
