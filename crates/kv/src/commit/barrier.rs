//! The records get what is known only now, go to the log, and are drained: **the one barrier**.

use crate::Step;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::isolation::order::Position;
use crate::media::{checksum, header};
use crate::raw::{self, Claim};
use crate::writers::work::{Known, Work};
use crate::writers::writer::{Log, Run};

impl Core {
    #[inline]
    pub(super) fn write(
        &self,
        work: &mut Work,
        number: usize,
        log: &mut Log,
        ts: u64,
        position: Option<&Position<'_>>,
    ) -> Result<()> {
        let runs = std::mem::take(&mut work.runs);
        let written = self.write_at(work, &runs, number, log, ts, position);
        work.runs = runs;
        written
    }

    #[inline]
    fn write_at(
        &self,
        work: &mut Work,
        runs: &[Run],
        number: usize,
        log: &mut Log,
        ts: u64,
        position: Option<&Position<'_>>,
    ) -> Result<()> {
        let order = if self.persistence.is_numbered() {
            let number = self.persistence.draw(&self.versions.medium, work, position)?;
            (number, self.persistence.watermark(&self.versions.medium))
        } else {
            (0, 0)
        };
        let known =
            Known { ts, generation: self.versions.medium.generation(), link: Some(log.link), behind: 0, number: order };
        let link = self.checksum(work, runs, 0, number, &known);
        if self.persistence.is_numbered() {
            log.number_drawn = order.0;
            self.store_unforced(work, runs, log)?;
            log.link = link;
            self.advance(runs, work.image.len(), log);
        } else {
            self.drain_into(&work.image, runs, link, log, 1)?;
        }
        Ok(())
    }

    /// Finishes the records of a transaction that will be in these runs of an image, from `base` on; returns what the next one in the log keeps of its first checksum.
    #[inline]
    pub(crate) fn checksum(&self, work: &mut Work, runs: &[Run], base: usize, number: usize, known: &Known) -> u16 {
        let (mut run, mut link) = (0, None);
        work.finish(known, |bytes, write| {
            let at = base + write.at;
            while at >= runs[run].image + runs[run].len {
                run += 1;
            }
            let location =
                checksum::location(runs[run].offset + (at - runs[run].image) as u64, number, runs[run].sequence);
            let covered = if self.versions.skips(Step::ChecksumAll) { header::HEADER as usize } else { bytes.len() };
            let checksum = checksum::checksum(self.versions.medium.key(), &bytes[..covered], location);
            link.get_or_insert(checksum::link(checksum));
            checksum
        });
        link.unwrap_or_default()
    }

    /// Writes the image, of so many commits, and drains.
    #[inline]
    pub(super) fn drain_into(&self, image: &[u8], runs: &[Run], link: u16, log: &mut Log, commits: u32) -> Result<()> {
        // The previous holder of the log may have failed here: what it stored is in doubt, and stays as it is.
        self.versions.pool().check_usable()?;
        crate::failpoints::before_barrier();
        log.follow(self.versions.pool(), self.versions.medium.key(), commits)?;
        for run in runs {
            raw::store(Claim::Writer, self.versions.pool(), run.offset, &image[run.image..run.image + run.len])?;
        }
        log.name_segments(&self.versions.space)?;
        if !self.versions.skips(Step::CommitBarrier) {
            self.versions.pool().drain().map_err(|source| Error::InDoubt { source })?;
            log.unnamed.clear();
        }
        log.link = link;
        self.advance(runs, image.len(), log);
        log.is_durable();
        Ok(())
    }

    #[inline]
    fn advance(&self, runs: &[Run], bytes: usize, log: &mut Log) {
        if let Some(last) = runs.last() {
            log.advance(&self.versions.space, *last, bytes as u64);
        }
    }

    /// Leaves the records in the cache, for the thread that forces.
    fn store_unforced(&self, work: &Work, runs: &[Run], log: &mut Log) -> Result<()> {
        for run in runs {
            raw::copy(Claim::Writer, self.versions.pool(), run.offset, &work.image[run.image..run.image + run.len])?;
            log.unforced.push(*run);
        }
        if let Some(watermark) = &mut log.watermark {
            watermark.count(1);
        }
        Ok(())
    }
}
