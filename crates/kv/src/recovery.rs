//! A store is opened: the index of the last checkpoint, then what the logs have behind its marks.
//!
//! | read at a place of a log | done |
//! |---|---|
//! | a whole transaction, linked to the last one | its records go into the index where they are newer; on behind it |
//! | anything else, and further on a whole first record linked to the last transaction | the rest of the segment was skipped; on there |
//! | anything else, and further on a whole first record with another link | [`Error::Lost`] |
//! | anything else, and nothing further on, but the checkpoint leads there or behind | [`Error::Lost`]: it would show a part of the transaction |
//! | anything else, and nothing further on | the end: what is there was never acknowledged |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use pmem::{LINE, Pool};

use crate::Step;
use crate::checkpoint::nodes::{self, Nodes};
use crate::checkpoint::settler::{List, Settler};
use crate::core::Core;
use crate::create::{assemble, cell_bytes, failpoints, split};
use crate::error::{Error, Result};
use crate::index::{Index, SLOTS};
use crate::isolation::active::Pin;
use crate::media::cell::{Cell, format, is_unmade};
use crate::media::checkpoint::{Checkpoint, FORMAT, WRITERS};
use crate::media::header::{self, FIRST, GRAIN, HEADER, JOINED, MOVED};
use crate::media::mark::Mark;
use crate::media::node::{self, CHUNK, FANOUT, LEAF, Node, ROOT};
use crate::media::record::Record;
use crate::media::regions::{NAME, REGION_KIND, TABLE};
use crate::media::uses::Use;
use crate::media::watermark::Watermark;
use crate::media::word::{Word, tag};
use crate::media::{checksum, key};
use crate::options::{Options, Part};
use crate::raw::Claim;
use crate::salvaged::{CutLog, Salvaged};
use crate::space::Space;
use crate::writers::writer::{Dead, Tombstone};
use prefix::Kept;

mod prefix;

/// Opens the store in `pool`.
pub(crate) fn open(pool: &Pool, options: &Options) -> Result<Core> {
    let not = |why| Error::NotAStore { region: NAME.to_owned(), why };
    let regions = (pool.region(TABLE), pool.region(NAME));
    let (table, data) = match regions {
        (Ok(table), Ok(data)) => (table, data),
        (Err(pmem::Error::NoRegion { .. }), _) | (_, Err(pmem::Error::NoRegion { .. })) => {
            drop(regions); // one may be there, and is claimed again
            // The making of the pool came first, so a crash cut the making of the store short.
            return if pool.info().engine == NAME && !pool.is_read_only() {
                crate::create::create(pool, options)
            } else {
                Err(not("there is none in this pool"))
            };
        }
        (Err(error), _) | (_, Err(error)) => return Err(error.into()),
    };
    if table.kind() != REGION_KIND.code() || data.kind() != REGION_KIND.code() {
        return Err(not("the directory says it is something else"));
    }
    if is_unmade(&table) && !pool.is_read_only() {
        // The first checkpoint did not arrive as a whole, and nothing came behind it.
        drop((table, data));
        crate::create::clear(pool)?;
        return crate::create::create(pool, options);
    }
    let format = format(&table);
    if format > FORMAT {
        return Err(Error::NewerFormat { found: format, max: FORMAT });
    }
    if table.areas().first().is_none_or(|first| first.len() <= cell_bytes(format)) {
        return Err(not("the directory says it is something else"));
    }
    let (cell, table) = split(table, format)?;
    let place = cell.offset();
    let cell = match Cell::open(cell, format) {
        Err(pmem::Error::Damaged { .. }) => {
            let why = "neither copy verifies".to_owned();
            return Err(Error::Damaged { what: "checkpoint", offset: place, why });
        }
        other => other?,
    };
    let checkpoint = cell.get();
    if checkpoint.format != format {
        let why = format!("it is of format {}, the other copy of {format}", checkpoint.format);
        return Err(Error::Damaged { what: "checkpoint", offset: place, why });
    }
    let counts = [checkpoint.number, checkpoint.clock, checkpoint.commit_number];
    if let Some(count) = counts.into_iter().find(|count| *count >= header::COUNT_MAX) {
        let why = format!("nothing was ever counted to {count}");
        return Err(Error::Damaged { what: "checkpoint", offset: 0, why });
    }
    let options = Options { segment: checkpoint.segment_bytes, ..options.clone() };
    options.check_values()?;
    let space = Space::new(pool, &options, data, table)?;
    let mut settler = Settler::new(cell);
    let mut index = Index::new(pool);
    let mut damaged = None;
    if checkpoint.root != 0 {
        match load(pool, &options, &space, &checkpoint, &mut settler, &mut index) {
            Err(error @ Error::Damaged { .. }) if options.salvage && !pool.is_read_only() => {
                (settler, index) = (Settler::new(settler.cell), Index::new(pool));
                space.clear_live();
                damaged = Some(error);
            }
            other => other?,
        }
    }
    let left_out = settler.left_out;
    let mut core = assemble(pool, &options, &checkpoint, index, space, (place, settler))?;
    if let Some(error) = &damaged {
        tracing::warn!(%error, "the index is made anew of what the logs have");
        salvage(&core)?;
    }
    let logs = replay(&core)?;
    let index = damaged.map(|error| error.to_string());
    let index = index.or((left_out > 0).then(|| format!("{left_out} versions, whose keys are corrupt, are left out")));
    core.salvaged = Salvaged { index, logs };
    if !core.salvaged.is_empty() {
        core.checkpoint()?; // what was given up is behind it
    }
    Ok(core)
}

/// Makes the index of all whole records.
fn salvage(core: &Core) -> Result<()> {
    let pin = core.active.pin()?;
    let none = BTreeMap::new();
    let reading = Reading { core, pin: &pin, writer: 0, pieces: &none, at: Mark::from_word(0), link: 0 };
    let (mut dead, mut tombstones, mut clock) = (Vec::new(), Vec::new(), 0);
    core.salvage(|record| {
        clock = clock.max(record.header.ts);
        reading.apply(record, &mut dead, &mut tombstones)
    })?;
    core.active.raise(clock);
    let mut settler = core.settler.lock();
    settler.unripe.append(&mut dead);
    settler.tombstones.append(&mut tombstones);
    Ok(())
}

// ---- the index of the checkpoint -------------------------------------------------------------------------------

fn load(
    pool: &Pool,
    options: &Options,
    space: &Space,
    checkpoint: &Checkpoint,
    settler: &mut Settler,
    index: &mut Index,
) -> Result<()> {
    let key = &pool.checksum_key(space.offset(0));
    let mut chunks = Vec::new();
    let mut root = checkpoint.root;
    let mut entries = 0;
    let mut last: Option<Vec<u8>> = None;
    let proves = checkpoint.proves_nodes() && !failpoints(options).skips(Step::ProveNodes);
    // Of the root that was read last: where it is, what it says of those it names, and their checksums, but for that of the next one.
    let mut before: Option<(u32, u64, Vec<u64>)> = None;
    while root != 0 {
        take(&mut settler.nodes, space, root, 1)?;
        let (node, _) = nodes::read(pool, key, space, root, ROOT)?;
        match before.take() {
            None if proves && node.checksum != checkpoint.root_checksum => return Err(stale(space, root)),
            Some((at, children, checksums))
                if proves
                    && children != Node::children(key, ROOT, checksums.iter().copied().chain([node.checksum])) =>
            {
                return Err(stale(space, at));
            }
            _ => {}
        }
        settler.roots.push(root);
        let mut list_checksums = Vec::with_capacity(FANOUT);
        let of_root = node;
        for list in of_root.numbers() {
            take(&mut settler.nodes, space, list, 1)?;
            let (node, _) = nodes::read(pool, key, space, list, CHUNK)?;
            let (list_checksum, children) = (node.checksum, node.children);
            list_checksums.push(list_checksum);
            let numbers: Vec<u32> = node.numbers().collect();
            let mut chunk = Vec::with_capacity(FANOUT);
            let mut checksums = Vec::with_capacity(FANOUT);
            for number in &numbers {
                if number / node::per_segment(space.segment_bytes) >= space.count() {
                    return Err(damaged(space, list, "it leads nowhere"));
                }
                let (node, fence) = nodes::read(pool, key, space, *number, LEAF)?;
                if node.checkpoint > checkpoint.number {
                    return Err(damaged(space, *number, "it is newer than the checkpoint"));
                }
                if last.as_ref().map_or(!fence.is_empty(), |last| *last >= fence) || node.count as usize > SLOTS {
                    return Err(damaged(space, *number, "its first key is out of order"));
                }
                let span = Node::span(fence.len());
                take(&mut settler.nodes, space, *number, span)?;
                if span > 1 {
                    settler.long.insert(*number, span);
                }
                entries += u64::from(node.count);
                chunk.push((fence.clone(), load_leaf(pool, options, space, index, settler, *number, &node)?));
                checksums.push(node.checksum);
                last = Some(fence);
            }
            let Some(first) = numbers.first() else { return Err(damaged(space, list, "it is empty")) };
            if proves && children != Node::children(key, CHUNK, checksums.into_iter()) {
                return Err(stale(space, list));
            }
            let list = List { leaves: numbers.clone(), children, node: list, checksum: list_checksum };
            settler.chunks.insert(*first, list);
            chunks.push(chunk);
            options.progress.tell(Part::Index, entries, checkpoint.entries.max(entries));
        }
        before = Some((root, of_root.children, list_checksums));
        root = of_root.next;
    }
    if let Some((at, children, checksums)) = before
        && proves
        && children != Node::children(key, ROOT, checksums.into_iter())
    {
        return Err(stale(space, at));
    }
    if chunks.is_empty() {
        return Err(damaged(space, checkpoint.root, "it is empty"));
    }
    index.load(chunks, entries - settler.left_out);
    Ok(())
}

fn load_leaf(
    pool: &Pool,
    options: &Options,
    space: &Space,
    index: &Index,
    settler: &mut Settler,
    number: u32,
    node: &Node,
) -> Result<u32> {
    let mut words: Vec<Word> = node.words().collect();
    if options.salvage && !pool.is_read_only() {
        // A leaf with such a key cannot be split when logs are read.
        let is_known = |word: &Word| {
            let record = Record::at(Claim::Opening, pool, pool, word.offset());
            record.is_ok_and(|record| tag(key::hash(record.key())) == word.tag())
        };
        let before = words.len();
        words.retain(is_known);
        settler.left_out += (before - words.len()) as u64;
    }
    for word in words.iter().copied() {
        let segment = space.number(word.offset()).map(|segment| (segment, space.used(segment)));
        let Some((segment, Use::Log { writer, sequence, .. })) = segment else {
            return Err(damaged(space, number, "it leads to a place that is in no log"));
        };
        let place = Mark { sequence, at: word.offset() - space.offset(segment) };
        let proven = &mut settler.proven[writer];
        *proven = (*proven).max(Some(place));
        space.add_live(segment, word.space());
        if word.is_tombstone() {
            // One that cannot be read stays.
            if let Ok(record) = Record::at(Claim::Opening, pool, pool, word.offset()) {
                settler.tombstones.push(Tombstone {
                    key: record.key().into(),
                    word,
                    ts: record.header.ts,
                    unlinked: 0,
                });
            }
        }
    }
    let leaf = index.leaves.add();
    let made = index.leaves.get(leaf);
    if let Some(mut locked) = made.lock(made.layout()) {
        locked.fill(words.iter().copied());
    }
    if words.len() < node.count as usize {
        index.leaves.mark_dirty(leaf); // the next checkpoint leaves them out, too
    }
    made.set_node(number);
    made.checksum.store(node.checksum, std::sync::atomic::Ordering::Relaxed);
    Ok(leaf)
}

fn take(nodes: &mut Nodes, space: &Space, number: u32, count: u32) -> Result<()> {
    let per = node::per_segment(space.segment_bytes);
    let exists = number / per < space.count() && space.used(number / per) == Use::Nodes;
    if exists && nodes.mark(space, number, count) {
        Ok(())
    } else {
        Err(damaged(space, number, "what leads to it leads nowhere, or twice to one place"))
    }
}

/// It, or one that it leads to, is not the one that was written last.
fn stale(space: &Space, number: u32) -> Error {
    damaged(
        space,
        number,
        "it, or a node that it names, is not of this checkpoint: a page went back to an earlier state",
    )
}

fn damaged(space: &Space, number: u32, why: &str) -> Error {
    Error::Damaged { what: "node of the index", offset: nodes::offset(space, number), why: why.to_owned() }
}

// ---- the logs behind its marks ---------------------------------------------------------------------------------

/// A piece of a writer's log: segments in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    segment: u32,
    pub(crate) base: u64,
    pub(crate) limit: u64,
    generation: u16,
}

/// Where the reading of a log stands.
pub(crate) struct Reading<'a> {
    core: &'a Core,
    pin: &'a Pin<'a>,
    pub(crate) writer: usize,
    pub(crate) pieces: &'a BTreeMap<u32, Piece>,
    pub(crate) at: Mark,
    link: u16,
}

/// A whole transaction: its records, and where the next one can begin.
struct Whole<'a> {
    records: Vec<Record<'a>>,
    end: Mark,
}

/// Reads the logs; returns those of which something was given up.
fn replay(core: &Core) -> Result<Vec<CutLog>> {
    let mut logs: Vec<BTreeMap<u32, Piece>> = vec![BTreeMap::new(); WRITERS];
    let bytes = core.space.segment_bytes;
    for number in 0..core.space.count() {
        if let Use::Log { writer, sequence, generation } = core.space.used(number) {
            let base = core.space.offset(number);
            let piece = Piece { segment: number, base, limit: core.space.run(number) * bytes, generation };
            let before = logs[writer].insert(sequence, piece);
            if before.is_some() {
                let why = format!("segment {sequence} of writer {writer} is there twice");
                return Err(Error::Damaged { what: "table of segments", offset: base, why });
            }
        }
    }
    let (checkpoint, proven) = {
        let mut settler = core.settler.lock();
        (settler.cell.get(), std::mem::take(&mut settler.proven))
    };
    let mut clock = checkpoint.clock;
    let pin = core.active.pin()?;
    let (mut dead, mut tombstones) = (Vec::new(), Vec::new());
    let mut kept = prefix::find(core, &checkpoint, &logs, &pin)?;
    let mut given_up = Vec::new();
    let behind =
        |writer: usize| logs[writer].range(Mark::from_word(checkpoint.marks[writer]).sequence..).count() as u64;
    let (mut done, of) = (0, (0..WRITERS).map(behind).sum());
    for (writer, pieces) in logs.iter().enumerate() {
        let at = Mark::from_word(checkpoint.marks[writer]);
        let mut reading = Reading { core, pin: &pin, writer, pieces, at, link: checkpoint.links[writer] };
        while let Some(whole) = reading.next(&mut kept)? {
            if kept.drops(&whole.records[0]) {
                break; // and with it all behind it
            }
            for record in &whole.records {
                clock = clock.max(record.header.ts);
                reading.apply(*record, &mut dead, &mut tombstones)?;
            }
            reading.link = checksum::link(whole.records[0].header.checksum);
            if whole.end.sequence != reading.at.sequence {
                let read = pieces.range(at.sequence..whole.end.sequence).count() as u64;
                core.options.progress.tell(Part::Logs, done + read, of);
            }
            reading.at = whole.end;
        }
        done += behind(writer);
        if behind(writer) > 0 {
            core.options.progress.tell(Part::Logs, done, of);
        }
        let mut log = core.writers.get(writer).log.lock();
        let durable = log.watermark.as_ref().map_or(Mark::START, |watermark| watermark.durable);
        if durable > reading.at && !core.failpoints.skips(Step::Watermark) {
            let proof = log.watermark.as_ref().map_or(0, Watermark::offset);
            reading.is_short(proof, &mut kept)?;
        } else if let Some(led) = proven[writer].filter(|led| *led >= reading.at)
            && !core.failpoints.skips(Step::ReachIndex)
        {
            reading.is_short(pieces.get(&led.sequence).map_or(0, |piece| piece.base + led.at), &mut kept)?;
        }
        let dropped = core.options.salvage && kept.last < kept.durable && kept.is_cut(&reading)?;
        if kept.given_up.contains(&writer) || dropped {
            given_up.push(reading.cut_off()?);
        }
        reading.erase(&kept)?;
        let last = pieces.keys().next_back().copied().unwrap_or(0);
        let mut end = reading.at;
        if last > end.sequence {
            end = Mark { sequence: last, at: 0 };
        }
        if let Some(piece) = pieces.get(&last).filter(|_| kept.given_up.contains(&writer)) {
            end.at = piece.limit; // behind everything that was given up
        }
        if kept.given_up.contains(&writer) {
            end = end.max(durable);
        } else if reading.at != at {
            (log.end, log.durable) = (reading.at, reading.at); // flushed, and drained below
            log.watermark.iter_mut().for_each(Watermark::is_due);
        }
        log.stop(end, reading.link);
        let clean = core.pool.was_clean() || core.failpoints.skips(Step::FreshSegments);
        if let Some(piece) = pieces.get(&reading.at.sequence).filter(|_| clean && last == reading.at.sequence) {
            log.resume(&core.space, piece.segment, piece.limit);
        }
    }
    drop(pin);
    core.bound.restart(kept.last);
    core.active.raise(clock);
    let mut settler = core.settler.lock();
    settler.unripe.append(&mut dead);
    settler.tombstones.append(&mut tombstones);
    drop(settler);
    // A segment is free if nothing in it is live and its log does not go on there.
    let current: Vec<Option<u32>> = (0..WRITERS).map(|w| core.writers.get(w).log.lock().segment()).collect();
    let marks: Vec<Mark> = (0..WRITERS).map(|w| Mark::from_word(checkpoint.marks[w])).collect();
    let keeps = |number: u32| match core.space.used(number) {
        Use::Log { writer, sequence, .. } => {
            core.space.live(number) > 0
                || current[writer] == Some(number)
                // It may hold transactions that supersede what the checkpoint leads to.
                || sequence >= marks[writer].sequence && holds_records(core, number)
        }
        Use::Nodes => core.settler.lock().nodes.has_segment(number),
        _ => false,
    };
    let kept: Vec<bool> = (0..core.space.count()).map(keeps).collect();
    let mut kept_here = false;
    let kept: Vec<bool> = (0..core.space.count())
        .map(|n| {
            // Further segments of a long record go with its first.
            kept_here = if core.space.used(n) == Use::More { kept_here } else { kept[n as usize] };
            kept_here
        })
        .collect();
    if !core.pool.is_read_only() && !core.pool.was_clean() {
        // What is not kept is in no log any more: its next owner could supply just what half of a record there lacks.
        for number in (0..core.space.count()).filter(|number| !kept[*number as usize]) {
            let leftover = matches!(core.space.used(number), Use::Log { writer, sequence, .. } if sequence >= marks[writer].sequence);
            if leftover && !core.failpoints.skips(Step::ClearLeftovers) {
                core.space.clear_word(number)?;
            }
        }
        if !core.failpoints.skips(Step::SettleRead) {
            // The records are flushed already. All of this must be persistent before anybody sees it.
            core.space.flush_table()?;
            core.pool.drain()?;
        }
    }
    core.space.set_free(|number| !kept[number as usize]);
    Ok(given_up)
}

/// Whether a log's segment begins with a whole record.
fn holds_records(core: &Core, number: u32) -> bool {
    let Use::Log { writer, sequence, .. } = core.space.used(number) else { return false };
    let at = core.space.offset(number);
    let record = Record::at(Claim::Opening, core, &core.pool, at);
    record.is_ok_and(|record| record.is_checksummed(&core.key, checksum::place(at, writer, sequence)))
}

impl<'a> Reading<'a> {
    /// The transaction at the present place, or the one that follows what was skipped.
    fn next(&self, kept: &mut Kept) -> Result<Option<Whole<'a>>> {
        if let Some(whole) = self.transaction(self.at)? {
            return Ok(Some(whole));
        }
        // A transaction of which only a part arrived may stand here, and behind it, in a segment begun since, the next.
        let mut from = self.at;
        while let Some((place, first)) = self.further_on(from)? {
            if first.header.link == self.link || self.core.failpoints.skips(Step::Links) {
                if let Some(whole) = self.transaction(place)? {
                    return Ok(Some(whole));
                }
                from = Mark { at: place.at + LINE, ..place };
                continue;
            }
            if let Some((_, durable)) = first.number() {
                // It came before its barrier, and so may what is missing: the numbers tell.
                kept.durable = kept.durable.max(durable);
                return Ok(None);
            }
            if self.core.options.salvage {
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
    fn is_short(&self, proof: u64, kept: &mut Kept) -> Result<()> {
        if self.core.options.salvage {
            tracing::warn!(writer = self.writer, proof, "committed transactions are lost, and given up");
            kept.given_up.insert(self.writer);
            return Ok(());
        }
        let offset = self.pieces.get(&self.at.sequence).map_or(proof, |piece| piece.base + self.at.at);
        Err(Error::Lost { writer: self.writer, offset, proof })
    }

    /// A whole transaction that begins at `at`.
    fn transaction(&self, at: Mark) -> Result<Option<Whole<'a>>> {
        let mut records = Vec::new();
        let mut place = at;
        loop {
            let Some((record, here)) = self.record(place)? else { return Ok(None) };
            let header = record.header;
            match records.first() {
                None => {
                    let linked = header.link == self.link || self.core.failpoints.skips(Step::Links);
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
            let last = header.rest == 0 || self.core.failpoints.skips(Step::WholeTransactions);
            records.push(record);
            if last {
                let end = Mark { at: end.at.next_multiple_of(LINE), ..end };
                return Ok(Some(Whole { records, end }));
            }
            place = end;
        }
    }

    /// The record at a place, or at the beginning of the next segment.
    fn record(&self, place: Mark) -> Result<Option<(Record<'a>, Mark)>> {
        if let Some(record) = self.checksummed(place)? {
            return Ok(Some((record, place)));
        }
        let Some((sequence, _)) = self.pieces.range((Excluded(place.sequence), Unbounded)).next() else {
            return Ok(None);
        };
        let next = Mark { sequence: *sequence, at: 0 };
        Ok(self.checksummed(next)?.map(|record| (record, next)))
    }

    /// The record at exactly this place, if it is whole.
    pub(crate) fn checksummed(&self, place: Mark) -> Result<Option<Record<'a>>> {
        let Some(piece) = self.pieces.get(&place.sequence) else { return Ok(None) };
        if !place.at.is_multiple_of(GRAIN) || place.at + HEADER > piece.limit {
            return Ok(None);
        }
        let offset = piece.base + place.at;
        let head = self.if_readable(crate::raw::bytes(Claim::Opening, self.core, &self.core.pool, offset, HEADER))?;
        let Some(header) = head.and_then(pmem::view::<header::Header>) else { return Ok(None) };
        // What an earlier life of the store left here, when the table did not keep that it had the segment.
        if !header.is_since(piece.generation) && !self.core.failpoints.skips(Step::Generations) {
            return Ok(None);
        }
        if header.checksum == 0 || !header.is_sound() || header.len() > piece.limit - place.at {
            return Ok(None);
        }
        let record = self.if_readable(Record::at(Claim::Opening, self.core, &self.core.pool, offset))?;
        let named = checksum::place(offset, self.writer, place.sequence);
        let whole = |record: &Record<'_>| {
            record.is_checksummed(&self.core.key, named) || self.core.failpoints.skips(Step::VerifyChecksum)
        };
        Ok(record.filter(whole))
    }

    /// Nobody can say that what the medium does not return was no transaction: it passes for none only if what is lost is to be given up.
    fn if_readable<T>(&self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Err(error @ Error::Pool(pmem::Error::Unreadable { .. })) if !self.core.options.salvage => Err(error),
            found => Ok(found.ok()),
        }
    }

    /// The next whole first record from a place on.
    fn further_on(&self, from: Mark) -> Result<Option<(Mark, Record<'a>)>> {
        for (sequence, piece) in self.pieces.range(from.sequence..) {
            let start = if *sequence == from.sequence { from.at.next_multiple_of(LINE) } else { 0 };
            for at in (start..piece.limit).step_by(LINE as usize) {
                let place = Mark { sequence: *sequence, at };
                if let Some(record) = self.checksummed(place)?.filter(|record| record.header.has(FIRST)) {
                    return Ok(Some((place, record)));
                }
            }
        }
        Ok(None)
    }

    /// Leads the index to a record, if it has no newer one.
    fn apply(&self, record: Record<'_>, dead: &mut Vec<Dead>, tombstones: &mut Vec<Tombstone>) -> Result<()> {
        let core = self.core;
        if !core.pool.is_read_only() {
            core.pool.flush(record.offset, record.header.len())?;
        }
        let hash = key::hash(record.key());
        let (spot, present) = core.index.find(self.pin, record.key(), hash)?;
        if let Some((_, present)) = present {
            let ts = Record::at(Claim::Opening, core, &core.pool, present.offset())?.header.ts;
            let newer = record.header.ts > ts || core.failpoints.skips(Step::GreaterOnly);
            if !newer || present.offset() == record.offset {
                return Ok(());
            }
            // The checkpoint still leads there: its place must not be used before the next one.
            dead.push(Dead { word: present, unlinked: 0 });
        }
        let word: Word = record.to_word();
        core.index.set(self.pin, record.key(), hash, present.map_or(Word::NONE, |(_, present)| present), word, spot)?;
        if let Some(segment) = core.space.number(record.offset) {
            core.space.add_live(segment, word.space());
        }
        if word.is_tombstone() {
            tombstones.push(Tombstone { key: record.key().into(), word, ts: record.header.ts, unlinked: 0 });
        }
        Ok(())
    }

    /// What is whole from where the reading has stopped.
    fn cut_off(&self) -> Result<CutLog> {
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
