//! The index is led to the new versions.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use pmem::sync::switch_point;

use crate::Step;
use crate::error::Result;
use crate::isolation::active::Pin;
use crate::media::header::TOMBSTONE;
use crate::media::word::Word;
use crate::versions::Versions;
use crate::writers::work::Work;
use crate::writers::writer::{Dead, Log, Run, Tombstone};

/// Leads the index to the records, which are in these runs of an image, from `base` on.
#[inline]
pub(super) fn publish(
    versions: &Versions,
    pin: &Pin<'_>,
    work: &Work,
    runs: &[Run],
    base: usize,
    log: &mut Log,
) -> Result<()> {
    let mut runs = runs.iter();
    let mut run = *runs.next().unwrap_or_else(|| unreachable!("a transaction that writes has records"));
    for write in &work.writes {
        let at = base + write.at;
        while at >= run.image + run.len {
            run = *runs.next().unwrap_or_else(|| unreachable!("each record is in a run"));
        }
        let header = work.header(write.at);
        let tombstone = header.has(TOMBSTONE);
        let word = Word::new(run.offset + (at - run.image) as u64, write.len as u64, write.hash, &header);
        versions.index.set(pin, work.key(write), write.hash, write.old, word, write.spot)?;
        if word.expires() {
            fence(SeqCst);
            versions.note_expiring();
        }
        let unlinked = is_published(versions, run.segment, word, write.old, log);
        if tombstone && versions.skips(Step::KeepTombstones) {
            versions.index.remove(pin, work.key(write), write.hash, word)?;
        } else if tombstone {
            log.add_tombstone(Tombstone { key: work.key(write).into(), word, ts: header.ts, unlinked });
        }
    }
    Ok(())
}

/// The index leads to `word` instead of `old`; returns a reading of the clock behind that.
#[inline]
pub(super) fn is_published(versions: &Versions, segment: u32, word: Word, old: Word, log: &mut Log) -> u64 {
    versions.space.add_live(segment, word.space());
    switch_point();
    let unlinked = versions.now();
    if versions.skips(Step::RetireBeforeFree) {
        free_at_once(versions, old);
    } else if !old.is_none() {
        log.add_dead(Dead { word: old, unlinked });
    }
    unlinked
}

/// What must not be done.
#[cold]
fn free_at_once(versions: &Versions, old: Word) {
    let Some(number) = versions.space.number(old.offset()).filter(|_| !old.is_none()) else { return };
    versions.space.sub_live(old);
    if versions.space.live(number) == 0
        && !versions.writers.all.iter().any(|w| w.log.try_lock().is_none_or(|l| l.segment() == Some(number)))
    {
        versions.space.give_back(number);
    }
}
