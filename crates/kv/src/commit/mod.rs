//! Commit: one barrier.
//!
//! 1. The writer says that it prepares, at each leaf it will change, and only then asks for its timestamp.
//! 2. What was read is looked at again, as of that timestamp.
//! 3. The records get the timestamp and their checksums, go to the log, and are drained: **the one barrier**.
//! 4. The index is led to the new versions; what they supersede waits until no reader can reach it.
//!
//! Two that validate each other's reads at once: each has announced itself before it has a timestamp, so the one with the larger timestamp sees the other
//! and waits for its outcome. Waiting goes to smaller timestamps only.

mod barrier;
mod grouped;
pub(crate) mod lone;
mod publish;
pub(crate) mod room;
mod shortage;
pub(crate) mod validate;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use pmem::Domain;
use pmem::sync::switch_point;

use crate::Step;
use crate::durable::Persistence;
use crate::error::{Error, Result};
use crate::failpoints::log_is_held;
use crate::isolation::active::Pin;
use crate::isolation::order::Position;
use crate::maintenance::{Checkpointing, Maintenance};
use crate::threads::wait::now;
use crate::versions::Versions;
use crate::writers::work::Work;
use crate::writers::writer::Writer;
use barrier::write;
use publish::publish;
pub(crate) use shortage::Shortage;
use validate::{Terms, Validation};

/// How often a replicated commit is tried at once while its log is full, and for how long after that, with pauses. A joining or slow replica holds records in the log until it has them or is given up.
const TRIMS: u32 = 8;
const WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);
/// As many as that time has room for: a bound where no time passes, since the log is held by a test.
const PAUSES: u32 = (WAIT.as_millis() / PAUSE.as_millis()) as u32;

/// What a commit takes of a store.
#[derive(Clone, Copy)]
pub(crate) struct Committing<'c> {
    versions: &'c Versions,
    persistence: &'c Persistence,
    maintenance: &'c Maintenance,
    shortage: &'c Shortage,
}

impl<'c> Committing<'c> {
    #[inline]
    pub(crate) fn new(
        versions: &'c Versions,
        persistence: &'c Persistence,
        maintenance: &'c Maintenance,
        shortage: &'c Shortage,
    ) -> Self {
        Self { versions, persistence, maintenance, shortage }
    }

    /// Commits; returns the timestamp. The caller has the locks of all that is written, and gives them back.
    #[inline]
    pub(crate) fn commit(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>) -> Result<u64> {
        self.versions.pool().check_usable()?;
        work.compact();
        if let Some(shared) = self.versions.writers.grouped() {
            return self.commit_grouped(pin, work, terms, shared);
        }
        if self.persistence.is_replicated() && !terms.follows {
            return self.commit_replicated(pin, work, terms);
        }
        self.commit_alone(pin, work, terms)
    }

    /// As [`commit`](Self::commit), when the log has room.
    fn commit_replicated(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>) -> Result<u64> {
        let leading = self.persistence.leading()?;
        leading.check()?;
        if leading.is_filled() && !log_is_held(Duration::ZERO) {
            self.persistence.trim(self.versions, leading, false)?;
        }
        // In a simulated pool no time passes, and the background thread has more to do.
        let waits = self.versions.pool().domain() != Domain::Simulated && !terms.upkeep;
        let (most, mut tries) = (if waits { TRIMS + PAUSES } else { TRIMS }, 0);
        // Its clock begins behind the first refusal: each trim takes time, too.
        let mut deadline = None;
        loop {
            let refused = match self.commit_alone(pin, work, terms) {
                Err(error @ Error::LogFull { .. }) => error,
                other => return other,
            };
            if tries == most {
                return Err(refused);
            }
            let wait = if tries < TRIMS { Duration::ZERO } else { PAUSE };
            tries += 1;
            if log_is_held(wait) {
                continue;
            }
            let left = deadline.get_or_insert_with(|| now() + WAIT).saturating_duration_since(now());
            if !wait.is_zero() {
                if left.is_zero() {
                    return Err(refused);
                }
                std::thread::sleep(wait.min(left));
            }
            self.persistence.trim(self.versions, leading, true)?;
        }
    }

    #[inline]
    fn commit_alone(&self, pin: &Pin<'_>, work: &mut Work, terms: Terms<'_>) -> Result<u64> {
        if self.persistence.is_numbered() {
            self.persistence.admit(self.versions)?;
        }
        let (number, mut log) = self.find_room(pin, work)?;
        let writer = self.versions.writers.get(number);
        writer.prepare(pin);
        announce(self.versions, pin, work, 1 << number);
        switch_point();
        let position = self.versions.concurrency.active.is_ordered().then(|| self.versions.concurrency.join());
        let ts = position.as_ref().map_or_else(|| self.versions.concurrency.active.tick(), |position| position.ts);
        switch_point();
        writer.prepared(ts);
        let result = match self.validate(pin, work, number, ts, terms) {
            Ok(()) => {
                write(self.versions, self.persistence, work, number, &mut log, ts, position.as_ref()).and_then(|()| {
                    let runs = std::mem::take(&mut work.runs);
                    let published = publish(self.versions, pin, work, &runs, 0, &mut log);
                    work.runs = runs;
                    published
                })
            }
            Err(error) => {
                self.persistence.turned_back();
                Err(error)
            }
        };
        if result.is_ok() {
            writer.count();
        }
        end(self.versions, writer, work, 1 << number, position.as_ref());
        result?;
        let written = log.tell(&self.versions.space);
        drop(log);
        if let Some(position) = position {
            position.wait_until_seen();
        }
        if let Some(bytes) = written {
            self.checkpointing().account(bytes);
        }
        Ok(ts)
    }

    #[inline]
    fn validate(&self, pin: &Pin<'_>, work: &Work, own: usize, ts: u64, terms: Terms<'_>) -> Result<()> {
        if !terms.validate {
            return Ok(());
        }
        let background = &self.maintenance.background;
        Validation::new(self.versions, background, pin, ts, terms.now, Some(own)).check(work)
    }

    fn checkpointing(&self) -> Checkpointing<'c> {
        Checkpointing::new(self.versions, self.persistence, self.maintenance)
    }
}

/// Tells readers of the leaves that are about to change.
#[inline]
fn announce(versions: &Versions, pin: &Pin<'_>, work: &mut Work, bit: u64) {
    if versions.skips(Step::Announce) {
        return;
    }
    for at in 0..work.writes.len() {
        loop {
            let spot = work.writes[at].spot;
            let leaf = versions.index.leaf(spot);
            leaf.pending.fetch_or(bit, SeqCst);
            // A leaf that was split meanwhile has passed the bit on, or was split before: then the key is elsewhere.
            if leaf.layout_now() == spot.layout {
                break;
            }
            let key = work.key(&work.writes[at]);
            let spot = versions.index.spot(pin, key);
            work.writes[at].spot = spot;
        }
    }
}

/// Nothing more of it will be published.
#[inline]
fn end(versions: &Versions, writer: &Writer, work: &Work, bit: u64, position: Option<&Position<'_>>) {
    if let Some(position) = position {
        position.publish();
    }
    writer.done();
    retreat(versions, work, bit);
    writer.wake();
}

/// No reader needs to wait any more. A bit that is left in a leaf that took keys over is harmless: its writer is asked, and says.
#[inline]
fn retreat(versions: &Versions, work: &Work, bit: u64) {
    for write in &work.writes {
        versions.index.leaf(write.spot).retreat(bit);
    }
}
