//! A store is opened: the index of the last checkpoint, then what the logs have behind its marks.

use std::collections::BTreeMap;

use pmem::Pool;

use crate::Step;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::maintenance::checkpointer::Checkpointer;
use crate::media::cell::{Cell, format, is_unmade};
use crate::media::checkpoint::{FORMAT, WRITERS};
use crate::media::mark::Mark;
use crate::media::record::Record;
use crate::media::regions::{NAME, REGION_KIND, TABLE};
use crate::media::uses::Use;
use crate::media::{checksum, header};
use crate::open::create::{assemble, cell_bytes, split};
use crate::open::reading::{Piece, Reading};
use crate::open::{load, prefix, salvage};
use crate::options::{Options, Part};
use crate::raw::Claim;
use crate::salvaged::{CutLog, Salvaged};
use crate::space::Space;
use crate::versions::Versions;

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
                crate::open::create::create(pool, options)
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
        crate::open::create::clear(pool)?;
        return crate::open::create::create(pool, options);
    }
    let format = format(&table);
    if format > FORMAT {
        return Err(Error::NewerFormat { found: format, max: FORMAT });
    }
    if table.areas().first().is_none_or(|first| first.len() <= cell_bytes(format)) {
        return Err(not("the directory says it is something else"));
    }
    let (cell, table) = split(table, format)?;
    let offset = cell.offset();
    let cell = match Cell::open(cell, format) {
        Err(pmem::Error::Damaged { .. }) => {
            let why = "neither copy verifies".to_owned();
            return Err(Error::Damaged { what: "checkpoint", offset, why });
        }
        other => other?,
    };
    let checkpoint = cell.get();
    if checkpoint.format != format {
        let why = format!("it is of format {}, the other copy of {format}", checkpoint.format);
        return Err(Error::Damaged { what: "checkpoint", offset, why });
    }
    let counts = [checkpoint.number, checkpoint.clock, checkpoint.commit_number];
    if let Some(count) = counts.into_iter().find(|count| *count >= header::COUNT_MAX) {
        let why = format!("nothing was ever counted to {count}");
        return Err(Error::Damaged { what: "checkpoint", offset: 0, why });
    }
    let options = Options { segment: checkpoint.segment_bytes, ..options.clone() };
    options.check_values()?;
    let space = Space::new(pool, &options, data, table)?;
    let mut checkpointer = Checkpointer::new(cell);
    let mut index = Index::new(pool);
    let mut damaged = None;
    if checkpoint.root != 0 {
        match load::load(pool, &options, &space, &checkpoint, &mut checkpointer, &mut index) {
            Err(error @ Error::Damaged { .. }) if options.salvage && !pool.is_read_only() => {
                (checkpointer, index) = (checkpointer.emptied(), Index::new(pool));
                space.clear_live();
                damaged = Some(error);
            }
            other => other?,
        }
    }
    let left_out = checkpointer.left_out();
    let mut core = assemble(pool, &options, &checkpoint, index, space, (offset, checkpointer))?;
    if let Some(error) = &damaged {
        tracing::warn!(%error, "the index is made anew of what the logs have");
        salvage::salvage(&core.versions, &core.maintenance)?;
    }
    let logs = replay(&core)?;
    let index = damaged.map(|error| error.to_string());
    let index = index.or((left_out > 0).then(|| format!("{left_out} versions, whose keys are corrupt, are left out")));
    core.salvaged = Salvaged { index, logs };
    if !core.salvaged.is_empty() {
        core.checkpointing().checkpoint()?; // what was given up is behind it
    }
    Ok(core)
}

/// Reads the logs; returns those of which something was given up.
fn replay(core: &Core) -> Result<Vec<CutLog>> {
    let (versions, salvages) = (&core.versions, core.options.salvage);
    let mut logs: Vec<BTreeMap<u32, Piece>> = vec![BTreeMap::new(); WRITERS];
    let bytes = versions.space.segment_bytes;
    for number in 0..versions.space.count() {
        if let Use::Log { writer, sequence, generation } = versions.space.used(number) {
            let base = versions.space.offset(number);
            let piece = Piece { segment: number, base, limit: versions.space.run(number) * bytes, generation };
            let before = logs[writer].insert(sequence, piece);
            if before.is_some() {
                let why = format!("segment {sequence} of writer {writer} is there twice");
                return Err(Error::Damaged { what: "table of segments", offset: base, why });
            }
        }
    }
    let (checkpoint, proven) = {
        let mut checkpointer = core.maintenance.checkpointer();
        (checkpointer.checkpoint(), checkpointer.take_proven())
    };
    let mut clock = checkpoint.clock;
    let pin = versions.pin()?;
    let (mut dead, mut tombstones) = (Vec::new(), Vec::new());
    let mut kept = prefix::find(versions, salvages, &checkpoint, &logs, &pin)?;
    let mut given_up = Vec::new();
    let behind =
        |writer: usize| logs[writer].range(Mark::from_word(checkpoint.marks[writer]).sequence..).count() as u64;
    let (mut done, of) = (0, (0..WRITERS).map(behind).sum());
    for (writer, pieces) in logs.iter().enumerate() {
        let at = Mark::from_word(checkpoint.marks[writer]);
        let mut reading = Reading { versions, salvages, pin: &pin, writer, pieces, at, link: checkpoint.links[writer] };
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
        let mut log = versions.writers.get(writer).log.lock();
        let (durable, proof) = log.watermark();
        if durable > reading.at && !versions.skips(Step::Watermark) {
            reading.is_short(proof, &mut kept)?;
        } else if let Some(led) = proven[writer].filter(|led| *led >= reading.at)
            && !versions.skips(Step::ReachIndex)
        {
            reading.is_short(pieces.get(&led.sequence).map_or(0, |piece| piece.base + led.at), &mut kept)?;
        }
        let dropped = salvages && kept.last < kept.durable && kept.is_cut(&reading)?;
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
            log.set_read(reading.at); // flushed, and drained below
        }
        log.stop(end, reading.link);
        let clean = versions.pool().was_clean() || versions.skips(Step::FreshSegments);
        if let Some(piece) = pieces.get(&reading.at.sequence).filter(|_| clean && last == reading.at.sequence) {
            log.resume(&versions.space, piece.segment, piece.limit);
        }
    }
    drop(pin);
    core.persistence.restart(kept.last);
    versions.concurrency.active.raise(clock);
    core.maintenance.checkpointer().inherit(dead, tombstones);
    // A segment is free if nothing in it is live and its log does not go on there.
    let current: Vec<Option<u32>> = (0..WRITERS).map(|w| versions.writers.get(w).log.lock().segment()).collect();
    let marks: Vec<Mark> = (0..WRITERS).map(|w| Mark::from_word(checkpoint.marks[w])).collect();
    let keeps = |number: u32| match versions.space.used(number) {
        Use::Log { writer, sequence, .. } => {
            versions.space.live(number) > 0
                || current[writer] == Some(number)
                // It may hold transactions that supersede what the checkpoint leads to.
                || sequence >= marks[writer].sequence && holds_records(versions, number)
        }
        Use::Nodes => core.maintenance.checkpointer().has_nodes(number),
        _ => false,
    };
    let kept: Vec<bool> = (0..versions.space.count()).map(keeps).collect();
    let mut kept_here = false;
    let kept: Vec<bool> = (0..versions.space.count())
        .map(|n| {
            // Further segments of a long record go with its first.
            kept_here = if versions.space.used(n) == Use::More { kept_here } else { kept[n as usize] };
            kept_here
        })
        .collect();
    if !versions.pool().is_read_only() && !versions.pool().was_clean() {
        // What is not kept is in no log any more: its next owner could supply just what half of a record there lacks.
        for number in (0..versions.space.count()).filter(|number| !kept[*number as usize]) {
            let leftover = matches!(versions.space.used(number), Use::Log { writer, sequence, .. } if sequence >= marks[writer].sequence);
            if leftover && !versions.skips(Step::ClearLeftovers) {
                versions.space.clear_word(number)?;
            }
        }
        if !versions.skips(Step::PersistRead) {
            // The records are flushed already. All of this must be persistent before anybody sees it.
            versions.space.flush_table()?;
            versions.pool().drain()?;
        }
    }
    versions.space.set_free(|number| !kept[number as usize]);
    Ok(given_up)
}

/// Whether a log's segment begins with a whole record.
fn holds_records(versions: &Versions, number: u32) -> bool {
    let Use::Log { writer, sequence, .. } = versions.space.used(number) else { return false };
    let at = versions.space.offset(number);
    let record = Record::at(Claim::Opening, versions, versions.pool(), at);
    record.is_ok_and(|record| record.is_checksummed(versions.medium.key(), checksum::location(at, writer, sequence)))
}
