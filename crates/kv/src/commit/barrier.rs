//! The records get what is known only now, go to the log, and are drained: **the one barrier**.

use crate::Step;
use crate::durable::Persistence;
use crate::error::{Error, Result};
use crate::isolation::order::Position;
use crate::media::{checksum, header};
use crate::medium::Medium;
use crate::raw::{self, Claim};
use crate::space::Space;
use crate::versions::Versions;
use crate::writers::work::{Known, Work};
use crate::writers::writer::{Log, Run};

/// Draws the commit's number, if it has one; then its records are in the log, and durable unless that comes later.
#[inline]
pub(super) fn write(
    versions: &Versions,
    persistence: &Persistence,
    work: &mut Work,
    number: usize,
    log: &mut Log,
    ts: u64,
    position: Option<&Position<'_>>,
) -> Result<()> {
    let (medium, space) = (&versions.medium, &versions.space);
    let order = if persistence.is_numbered() {
        (persistence.draw(medium, work, position)?, persistence.watermark(medium))
    } else {
        (0, 0)
    };
    let runs = std::mem::take(&mut work.runs);
    let known = Known { ts, generation: medium.generation(), link: Some(log.link()), behind: 0, number: order };
    let link = checksum(medium, work, &runs, 0, number, &known);
    let written = if persistence.is_numbered() {
        log.set_number(order.0);
        store_unforced(medium, work, &runs, log).map(|()| log.advance(space, &runs, work.image.len(), link))
    } else {
        drain_into(medium, space, &work.image, &runs, link, log, 1)
    };
    work.runs = runs;
    written
}

/// Finishes the records of a transaction that will be in these runs of an image, from `base` on; returns what the next one in the log keeps of its first checksum.
#[inline]
pub(super) fn checksum(
    medium: &Medium,
    work: &mut Work,
    runs: &[Run],
    base: usize,
    number: usize,
    known: &Known,
) -> u16 {
    let (mut run, mut link) = (0, None);
    work.finish(known, |bytes, write| {
        let at = base + write.at;
        while at >= runs[run].image + runs[run].len {
            run += 1;
        }
        let location = checksum::location(runs[run].offset + (at - runs[run].image) as u64, number, runs[run].sequence);
        let covered = if medium.skips(Step::ChecksumAll) { header::HEADER as usize } else { bytes.len() };
        let checksum = checksum::checksum(medium.key(), &bytes[..covered], location);
        link.get_or_insert(checksum::link(checksum));
        checksum
    });
    link.unwrap_or_default()
}

/// Writes the image, of so many commits, and drains.
#[inline]
pub(super) fn drain_into(
    medium: &Medium,
    space: &Space,
    image: &[u8],
    runs: &[Run],
    link: u16,
    log: &mut Log,
    commits: u32,
) -> Result<()> {
    // The previous holder of the log may have failed here: what it stored is in doubt, and stays as it is.
    medium.pool().check_usable()?;
    crate::failpoints::before_barrier();
    log.follow(medium.pool(), medium.key(), commits)?;
    for run in runs {
        raw::store(Claim::Writer, medium.pool(), run.offset, &image[run.image..run.image + run.len])?;
    }
    log.name_segments(space)?;
    if !medium.skips(Step::CommitBarrier) {
        medium.pool().drain().map_err(|source| Error::InDoubt { source })?;
        log.segments_are_named();
    }
    log.advance(space, runs, image.len(), link);
    log.is_durable();
    Ok(())
}

/// Leaves the records in the cache, for the thread that forces.
fn store_unforced(medium: &Medium, work: &Work, runs: &[Run], log: &mut Log) -> Result<()> {
    for run in runs {
        raw::copy(Claim::Writer, medium.pool(), run.offset, &work.image[run.image..run.image + run.len])?;
        log.add_unforced(*run);
    }
    log.count_unforced();
    Ok(())
}
