//! Room for what is written; and what is done where there is none.

use std::time::Duration;

use pmem::sync::OwnMutexGuard;

use crate::commit::Committing;
use crate::error::{Error, Result};
use crate::isolation::active::{Active, Pin};
use crate::media::header::TOMBSTONE;
use crate::space::need::Need;
use crate::threads::wait::Wait;
use crate::versions::Versions;
use crate::writers::work::Work;
use crate::writers::writer::Log;

/// How often a change is tried in a store that is full, with a checkpoint each time. What one checkpoint has moved is free behind the next but one.
const TRIES: u32 = 8;
/// The same of one that takes out more than it puts in, as long as something is moved or freed in between.
const TRIES_URGENT: u32 = 1024;
/// The same of one that puts in as much.
const TRIES_REPLACE: u32 = 32;
/// ... in vain, of one that waits for others' snapshots each time.
const VAIN_REPLACE: u32 = 16;
/// Behind so many, with a checkpoint each, nothing counts as live any more that is not, but for the transactions that still read it.
const TRIES_TO_FREE: u32 = 16;
/// How often it looks for the end of those who could reach what was moved, each time it was tried in vain: about 100 ms.
const LOOKS: u32 = 310;
/// What a transaction has tried in a store that is full.
#[derive(Default)]
pub(crate) struct Tried {
    tries: u32,
    in_vain: u32,
    /// What was moved by then, and how many segments were free.
    last: (u64, u64),
}

impl<'c> Committing<'c> {
    /// A log, with space reserved in it for what is written.
    #[inline]
    pub(super) fn find_room(&self, pin: &Pin<'_>, work: &mut Work) -> Result<(usize, OwnMutexGuard<'c, Log>)> {
        let (number, mut log) = self.versions.writers.claim();
        match self.reserve(work, &mut log) {
            Ok(()) => Ok((number, log)),
            Err(error) => {
                drop(log);
                self.make_room(pin, work, error).inspect_err(|_| self.persistence.turned_back())
            }
        }
    }

    #[inline]
    fn reserve(&self, work: &mut Work, log: &mut Log) -> Result<()> {
        let mut runs = std::mem::take(&mut work.runs);
        let records = work.writes.iter().map(|write| (write.at, write.len));
        let reserved = log.reserve(&self.versions.space, records, || self.need(work), &mut runs);
        work.runs = runs;
        reserved
    }

    /// The store is full: others may have begun segments with room, and a checkpoint frees what is no longer needed.
    #[cold]
    fn make_room(&self, pin: &Pin<'_>, work: &mut Work, error: Error) -> Result<(usize, OwnMutexGuard<'c, Log>)> {
        let bytes: u64 = work.writes.iter().map(|write| write.len as u64).sum();
        let Some(need) = error.refused() else { return Err(error) };
        for (number, writer) in self.versions.writers.all.iter().enumerate() {
            // A transaction that takes data out waits for one in use, rather than have one more begun. It has none itself, and no timestamp that others wait
            // for.
            let log = if need == Need::Urgent { Some(writer.log.lock()) } else { writer.log.try_lock() };
            if let Some(mut log) = log.filter(|log| log.has_room(&self.versions.space, bytes, need)) {
                self.reserve(work, &mut log)?;
                return Ok((number, log));
            }
        }
        if self.shortage.is_hopeless(&self.versions.concurrency.active, pin, need) {
            return Err(error);
        }
        self.checkpointing().checkpoint()?;
        let (number, mut log) = self.versions.writers.claim();
        self.reserve(work, &mut log)?;
        Ok((number, log))
    }

    /// Says whether to try again what was refused with `error`, which is returned if not. It is as long as the store is full and that gains anything: what one checkpoint has moved
    /// is free behind the next but one, unless an active transaction could still reach it; so one that tries must not be active. Records of so many `bytes`
    /// find no room by that if they would not beside all that is live. One at a time, and the others wait without a snapshot; not while they try, since that
    /// may be a caller's code.
    #[cold]
    pub(crate) fn full_again(&self, tried: &mut Tried, error: Error, bytes: u64) -> Result<()> {
        let Some(need) = error.refused() else { return Err(error) };
        let (versions, shortage) = (self.versions, self.shortage);
        let active = &versions.concurrency.active;
        if shortage.is_cramped(active, None, need) {
            return Err(named(versions, error));
        }
        let deletes = need == Need::Urgent;
        if tried.in_vain > 0 {
            match need {
                Need::Urgent => await_oldest(active),
                // What they have overwritten is free as soon as no transaction reads it. That was long ago for who has waited before.
                Need::Replace if !shortage.is_lasting(active.oldest_snapshot()) => await_oldest(active),
                _ => {}
            }
        }
        let before = shortage.rescues();
        let _turn = shortage.turn();
        // What another one has moved meanwhile is for all.
        let is_done = shortage.rescues() != before;
        let now = (self.maintenance.moved(), versions.space.usage().free);
        let gained = now != tried.last;
        tried.in_vain = if gained { 0 } else { tried.in_vain + 1 };
        tried.last = now;
        tried.tries += 1;
        let hopeless = tried.tries > TRIES_TO_FREE && !versions.space.could_hold(bytes);
        let most = if deletes { TRIES_URGENT } else { TRIES_REPLACE };
        let vain = if need == Need::Replace { VAIN_REPLACE } else { TRIES };
        let goes_on = tried.tries < most && tried.in_vain < vain && !hopeless;
        if goes_on && deletes && !is_done {
            shortage.note_rescue();
            // The background thread need not.
            versions.space.take_urgent();
            // The checkpoint made when it was refused has moved nothing that it had locked.
            if let Err(error) = self.checkpointing().rescue() {
                tracing::debug!(%error, "a checkpoint failed while somebody takes data out of a full store");
            }
        }
        // One that is too long says nothing about others that delete.
        if !(goes_on || hopeless && deletes) {
            shortage.set_cramped(active, need);
        }
        if goes_on {
            return Ok(());
        }
        if let Some(snapshot) = active.oldest_snapshot() {
            shortage.note_lasting(snapshot);
        }
        Err(named(versions, error))
    }

    /// What a transaction needs room for. Asked when a segment is taken, so it looks how many leaves there are.
    #[cold]
    pub(super) fn need(&self, work: &Work) -> Need {
        self.versions.note_leaves();
        let need = need(work);
        match self.persistence.follows() {
            true if self.persistence.is_cornered() => Need::Rescue,
            true if need != Need::Urgent => Need::Repeat,
            _ => need,
        }
    }
}

/// With the snapshot that is in the way, if one is.
fn named(versions: &Versions, mut error: Error) -> Error {
    if let Error::Full { snapshot, .. } = &mut error
        && versions.space.held() >= versions.space.segment_bytes
    {
        *snapshot = versions.concurrency.active.oldest_snapshot().map(Into::into);
    }
    error
}

/// What was moved is not freed while an active transaction could still reach it: that one may be about to end, and not on a processor.
fn await_oldest(active: &Active) {
    let oldest = || active.census().1;
    let (was, mut wait) = (oldest(), Wait::new());
    let mut looks = 0;
    while was.is_some() && oldest() == was && looks < LOOKS {
        wait.for_as_long_as(Duration::from_millis(1));
        looks += 1;
    }
}

/// What a transaction needs room for: by what it puts in, against what it takes out.
pub(super) fn need(work: &Work) -> Need {
    let (mut puts, mut deleted, mut replaced) = (0, 0, 0);
    for write in &work.writes {
        let deletes = work.header(write.at).has(TOMBSTONE);
        if !deletes {
            puts += write.len as u64;
        }
        match write.old {
            old if old.is_none() || old.is_tombstone() => {}
            old if deletes => deleted += old.space_at_least(),
            old => replaced += old.space(),
        }
    }
    // Tombstones go by themselves, with the next checkpoints.
    match puts {
        0 => Need::Urgent,
        puts if puts < deleted + replaced && deleted > 0 => Need::Urgent,
        puts if puts <= replaced => Need::Replace,
        _ => Need::Data,
    }
}
