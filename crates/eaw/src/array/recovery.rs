//! What a crash left, and what becomes of it.
//!
//! | a number | is |
//! |---|---|
//! | at or below the mark of any member | retired: nothing is to be done |
//! | above, and every member in its set has a line that verifies, with the same digest | committed: applied, in the order of numbers |
//! | above, and some member has not | not committed, if no later line says that it was durable |
//! | the same, but a later line says that it was durable | lost: told, with the places it was to change |
//!
//! What the above was read from becomes persistent first: a cache may have kept it from the media. Then files change. When that is persistent,
//! the marks pass all that was seen, and numbers go on above. The highest mark of all members counts: so what did not count stays so, even if a crash comes between
//! two members' marks, and a crash in between is recovered in the same way.
//!
//! An array that is opened for reading only was closed: there is nothing to apply, and nothing is stored. If there is something after all, it is refused.

use std::collections::BTreeMap;

use pmem::{Area, ChecksumKey, Pool};

use super::chunks::Chunks;
use super::failpoints::Step;
use super::files::{File, Striping, file_mut};
use super::layout::{Checksummed, ENTRY, Entry, Header, INLINE, Keys, LINE, LINK};
use super::mark::MarkCell;
use crate::error::Result;

/// Numbers that are told one by one.
const TOLD_MAX: usize = 1024;

/// What was found when an array was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Transactions that were applied, again or for the first time.
    pub applied: u64,
    /// Transactions that had been begun to be committed, and were not: nothing of them is there. Or the newest one at a member, if its log is damaged: nothing tells.
    pub dropped: u64,
    /// What was durable and could not be read back. None of it was applied; everything else was.
    pub lost: Vec<Loss>,
    /// Lines of the transaction table that are not whole: commits that a crash cut short. Or they were among the last of all, and are damaged: nothing tells.
    pub in_doubt: u64,
}

/// A transaction that was durable and could not be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Its number in the order of commits.
    pub sequence: u64,
    /// The member whose part cannot be read; none if nothing of it was found anywhere.
    pub member: Option<usize>,
    /// What is wrong there.
    pub why: &'static str,
    /// What it was to change, as far as that can be read: file, offset, bytes.
    pub ranges: Vec<(String, u64, u64)>,
}

/// A member that is being opened.
pub(super) struct Opened {
    pub(super) pool: Pool,
    pub(super) keys: Keys,
    pub(super) table: Area,
    /// From a line of the table to the next.
    pub(super) stride: u64,
    pub(super) mark: MarkCell,
    pub(super) files: Vec<Option<Area>>,
    pub(super) log: Chunks,
    pub(super) meta: Chunks,
}

/// A part that was read.
struct Read {
    line: Checksummed,
    /// The metadata chunks, and bytes used in each.
    meta: Vec<(u64, u64)>,
    entries: Vec<Entry>,
    /// Why it does not count.
    broken: Option<&'static str>,
}

impl Opened {
    /// The line of a TID; `Err` if it is not whole.
    fn line(&self, tid: u32) -> Result<Result<Option<Checksummed>, ()>> {
        let at = u64::from(tid) * self.stride;
        self.table.probe("transaction table of an array", at, LINE)?;
        let bytes = self.table.bytes(at, LINE as usize)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Ok(None));
        }
        let line = pmem::from_bytes::<Checksummed>(bytes);
        let whole =
            line.filter(|line| line.checksum == self.keys.checksum(line) && line.tid == tid && line.sequence > 0);
        Ok(whole.map(Some).ok_or(()))
    }

    /// Where in the table the metadata of a line is that has it behind it, and how many bytes; nothing if that is nowhere.
    fn inline(&self, line: &Checksummed) -> Option<(u64, u64)> {
        let (at, len) = (u64::from(line.tid) * self.stride + LINE, u64::from(line.count) * ENTRY);
        (len > 0 && len <= self.stride - LINE).then_some((at, len))
    }

    /// Where the data of an entry is: in which area, and where in it. Nothing if that is nowhere.
    fn data(&self, tid: u32, entry: &Entry, chunk: u64) -> Option<(&Area, u64)> {
        let len = u64::from(entry.len);
        if entry.log & INLINE == 0 {
            return Some((self.log.get(entry.log / chunk)?, entry.log % chunk)).filter(|(_, at)| at + len <= chunk);
        }
        let at = entry.log & !INLINE;
        let is_there = at >= LINE && at.checked_add(len).is_some_and(|end| end <= self.stride);
        is_there.then(|| (&self.table, u64::from(tid) * self.stride + at))
    }

    /// Reads the part that a line is of, and verifies it.
    fn read(&self, line: Checksummed, chunk: u64, per_chunk: u32, has: impl Fn(Step) -> bool) -> Result<Read> {
        let mut read = Read { line, meta: Vec::new(), entries: Vec::new(), broken: None };
        let mut checksums = Vec::new();
        if line.inline == 0 {
            self.read_chunks(&mut read, &mut checksums, per_chunk)?;
        } else {
            self.read_inline(&mut read, &mut checksums)?;
        }
        if read.broken.is_some() {
            return Ok(read);
        }
        if self.keys.part.checksum_list(checksums.into_iter()) != line.part && has(Step::VerifyMeta) {
            read.broken = Some("metadata that does not verify");
            read.entries.clear();
            return Ok(read);
        }
        self.verify(&mut read, chunk, has(Step::VerifyData))?;
        Ok(read)
    }

    /// Metadata behind the line.
    fn read_inline(&self, read: &mut Read, checksums: &mut Vec<u64>) -> Result<()> {
        let Some((at, len)) = self.inline(&read.line) else {
            read.broken = Some("a place that is none in its metadata");
            return Ok(());
        };
        if self.table.probe("metadata of an array", at, len).is_err() {
            read.broken = Some("metadata that the medium does not return");
            return Ok(());
        }
        for index in 0..u64::from(read.line.count) {
            read.entries.push(*self.table.get::<Entry>(at + index * ENTRY)?);
        }
        checksums.push(self.keys.part.checksum(self.table.bytes(at, len as usize)?));
        Ok(())
    }

    /// Metadata in chunks.
    fn read_chunks(&self, read: &mut Read, checksums: &mut Vec<u64>, per_chunk: u32) -> Result<()> {
        let (line, mut number) = (read.line, u64::from(read.line.meta));
        while read.entries.len() < line.count as usize {
            let Some(area) = self.meta.get(number).filter(|_| (read.meta.len() as u64) < self.meta.len()) else {
                read.broken = Some("a place that is none in its metadata");
                return Ok(());
            };
            if area.probe("metadata of an array", 0, area.len()).is_err() {
                read.broken = Some("metadata that the medium does not return");
                return Ok(());
            }
            let (mut used, mut next) = (0, None);
            for index in 0..u64::from(per_chunk) {
                if read.entries.len() == line.count as usize && next.is_none() {
                    break;
                }
                let entry = *area.get::<Entry>(index * ENTRY)?;
                used += ENTRY;
                if entry.file == LINK {
                    next = Some(entry.log);
                    break;
                }
                read.entries.push(entry);
            }
            checksums.push(self.keys.part.checksum(area.bytes(0, used as usize)?));
            read.meta.push((number, used));
            match next {
                Some(next) => number = next,
                None if read.entries.len() < line.count as usize => {
                    read.broken = Some("metadata that ends too early");
                    return Ok(());
                }
                None => {}
            }
        }
        Ok(())
    }

    /// The places that the metadata names, and the data.
    fn verify(&self, read: &mut Read, chunk: u64, verify: bool) -> Result<()> {
        for entry in &read.entries {
            let file = self.files.get(entry.file as usize).and_then(Option::as_ref);
            let is_there = file
                .is_some_and(|file| entry.target.checked_add(entry.len.into()).is_some_and(|end| end <= file.len()));
            let data = self.data(read.line.tid, entry, chunk);
            let Some((data, at)) = data.filter(|_| is_there) else {
                read.broken = Some("a place that is none in its metadata");
                break;
            };
            if data.probe("log of an array", at, entry.len.into()).is_err() {
                read.broken = Some("data that the medium does not return");
                break;
            }
            if read.line.drained == 0 && verify {
                let bytes = data.bytes(at, entry.len as usize)?;
                if self.keys.data.checksum(bytes) != entry.checksum {
                    read.broken = Some("data that does not verify");
                }
            }
        }
        Ok(())
    }

    /// Flushes all that a part consists of.
    fn flush(&self, read: &Read, chunk: u64) -> Result<()> {
        self.table.flush(u64::from(read.line.tid) * self.stride, LINE)?;
        if let Some((at, len)) = self.inline(&read.line).filter(|_| read.line.inline != 0) {
            self.table.flush(at, len)?;
        }
        for (number, used) in &read.meta {
            if let Some(area) = self.meta.get(*number) {
                area.flush(0, *used)?;
            }
        }
        for entry in &read.entries {
            if let Some((area, at)) = self.data(read.line.tid, entry, chunk) {
                area.flush(at, entry.len.into())?;
            }
        }
        Ok(())
    }

    /// Copies a part to the files.
    fn apply(&mut self, read: &Read, chunk: u64) -> Result<()> {
        for entry in &read.entries {
            let Some((area, at)) = self.data(read.line.tid, entry, chunk) else { continue };
            let bytes = area.bytes(at, entry.len as usize)?.to_vec(); // of 64 KiB at most
            let file = file_mut(&mut self.files, entry.file)?;
            file.bytes_mut(entry.target, bytes.len())?.copy_from_slice(&bytes);
            file.flush(entry.target, entry.len.into())?;
        }
        Ok(())
    }
}

/// Recovers; returns the next number.
pub(super) fn recover(
    members: &mut [Opened],
    header: &Header,
    digest: &ChecksumKey,
    files: &[File],
    striping: Striping,
    has: impl Fn(Step) -> bool,
) -> Result<(Recovered, u64)> {
    let chunk = header.chunk;
    let mut found = Recovered::default();
    let retired = members.iter().map(|member| member.mark.retired()).max().unwrap_or(0);

    // What there is above the mark.
    let mut parts: BTreeMap<u64, BTreeMap<usize, Read>> = BTreeMap::new();
    let mut broken: Vec<(usize, u32)> = Vec::new();
    let (mut seen, mut durable) = (retired, retired);
    for (number, member) in members.iter().enumerate() {
        for tid in 0..header.tids {
            match member.line(tid)? {
                Ok(None) => {}
                Err(()) => broken.push((number, tid)),
                Ok(Some(line)) => {
                    seen = seen.max(line.sequence);
                    durable = durable.max(line.sequence.saturating_sub(line.durable_back.into()));
                    if line.sequence > retired {
                        let read = member.read(line, chunk, header.entries, &has)?;
                        parts.entry(line.sequence).or_default().insert(number, read);
                    }
                }
            }
        }
    }
    found.in_doubt = broken.len() as u64;

    // What of it counts.
    let mut committed = Vec::new();
    for (sequence, parts) in &parts {
        let Some(first) = parts.values().next().map(|read| read.line) else { continue };
        let set = (0..64).filter(|member| first.participants >> member & 1 == 1);
        let missing = set.clone().find(|member| !parts.contains_key(member));
        let is_one = |read: &Read| (read.line.digest, read.line.participants) == (first.digest, first.participants);
        let is_digest = || digest.checksum_words(parts.values().map(|read| read.line.part)) == first.digest;
        let why = match parts.iter().find(|(_, read)| read.broken.is_some()) {
            Some((member, read)) => Some((Some(*member), read.broken.unwrap_or_default())),
            None if !has(Step::EveryPart) => None,
            None if missing.is_some() => Some((missing, "no line in the transaction table")),
            None if !(parts.values().all(is_one) && is_digest()) => {
                Some((None, "parts that are of different transactions"))
            }
            None => None,
        };
        let Some((member, why)) = why else {
            committed.push(*sequence);
            continue;
        };
        if *sequence > durable {
            found.dropped += 1;
            continue;
        }
        let ranges = parts.iter().flat_map(|(member, read)| read.entries.iter().map(move |entry| (*member, entry)));
        let ranges = ranges.filter_map(|(member, entry)| {
            let file = files.iter().find(|file| file.number() == entry.file)?;
            Some((file.name().to_owned(), striping.file_offset(member, entry.target), entry.len.into()))
        });
        found.lost.push(Loss { sequence: *sequence, member, why, ranges: ranges.collect() });
    }
    for sequence in (retired + 1..=durable).take(TOLD_MAX).filter(|sequence| !parts.contains_key(sequence)) {
        let why = "nothing of it was found on any member";
        found.lost.push(Loss { sequence, member: None, why, ranges: Vec::new() });
    }
    found.lost.sort_by_key(|loss| loss.sequence);
    if let Some(member) = members.iter().find(|member| member.pool.is_read_only()) {
        // The files are as recovery would leave them, unless that had something to apply.
        let path = member.pool.path().to_owned();
        let needs = pmem::Error::NeedsRecovery { path };
        return if committed.is_empty() { Ok((found, seen + 1)) } else { Err(needs.into()) };
    }
    if !has(Step::InOrder) {
        committed.reverse();
    }

    // Nothing is stored to a file before what says so is persistent.
    if has(Step::PersistRead) && members.iter().any(|member| !member.pool.was_clean()) {
        for member in members.iter() {
            member.mark.flush()?;
        }
        for (member, read) in parts.values().flatten() {
            members[*member].flush(read, chunk)?;
        }
        drain(members)?;
    }
    found.applied = committed.len() as u64;
    for (member, read) in committed.iter().filter_map(|sequence| parts.get(sequence)).flatten() {
        members[*member].apply(read, chunk)?;
    }
    if !committed.is_empty() {
        drain(members)?;
    }
    // The marks pass all that does not count, too. But a line that is not whole has no number: the next one at its place, torn too, could supply the words that it lacks.
    for (member, tid) in broken.iter().filter(|_| has(Step::EraseTorn)) {
        let at = u64::from(*tid) * header.stride();
        members[*member].table.bytes_mut(at, LINE as usize)?.fill(0);
        members[*member].table.flush(at, LINE)?;
    }
    // In both slots, one behind the other.
    if members.iter().any(|member| !member.pool.was_clean() || member.mark.retired() != seen) {
        for _ in 0..2 {
            members.iter_mut().try_for_each(|member| member.mark.stage(seen))?;
            drain(members)?;
        }
    }
    let next = if has(Step::NumbersAbove) { seen } else { committed.iter().max().copied().unwrap_or(retired) } + 1;
    Ok((found, next))
}

/// One barrier for each pool.
#[track_caller]
fn drain(members: &[Opened]) -> Result<()> {
    for (index, member) in members.iter().enumerate() {
        let is_same = |other: &Opened| other.pool.path() == member.pool.path() && other.pool.id() == member.pool.id();
        if !members[..index].iter().any(is_same) {
            member.pool.drain()?;
        }
    }
    Ok(())
}
