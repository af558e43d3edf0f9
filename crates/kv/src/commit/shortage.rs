//! A store that is full: for which needs nothing is left that could be freed, and which thread tries.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmem::sync::{Mutex, MutexGuard};

use crate::isolation::active::{Active, Pin};
use crate::space::need::Need;

pub(crate) struct Shortage {
    /// The clock, and the oldest reader's, when nothing was left that could be freed: for those who put in, those who overwrite, and those who take out.
    cramped: Mutex<[Option<(u64, u64)>; 3]>,
    /// A snapshot that those who overwrite have waited for in vain.
    lasting: AtomicU64,
    /// A thread that was refused room looks for some while it has this, one at a time, without a snapshot; a deletion has everything moved.
    turn: Mutex<()>,
    /// How often that was done.
    rescues: AtomicU64,
}

impl Default for Shortage {
    fn default() -> Self {
        Self { cramped: Mutex::default(), lasting: u64::MAX.into(), turn: Mutex::default(), rescues: 0.into() }
    }
}

impl Shortage {
    /// Whether no transaction has committed or gone since all was freed that could be. That a put was tried in vain says nothing about deletions, for which
    /// more is moved.
    pub(super) fn is_cramped(&self, active: &Active, own: Option<&Pin<'_>>, need: Need) -> bool {
        let now = Some((active.now(), active.oldest_but(own)));
        self.cramped.lock()[rank(need)..].contains(&now)
    }

    /// From now on, until a transaction commits or goes.
    pub(super) fn set_cramped(&self, active: &Active, need: Need) {
        self.cramped.lock()[rank(need)] = Some((active.now(), active.oldest_but(None)));
    }

    /// Whether a checkpoint made now would be in vain, or in the way of a thread that has a turn: what this snapshot sees would not be freed.
    pub(super) fn is_hopeless(&self, active: &Active, pin: &Pin<'_>, need: Need) -> bool {
        self.is_cramped(active, Some(pin), need) || need != Need::Urgent && self.turn.try_lock().is_none()
    }

    /// The caller looks for room, and is the only one as long as what is returned lives.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    pub(super) fn rescues(&self) -> u64 {
        self.rescues.load(Relaxed)
    }

    /// Everything is about to be moved. The caller has the turn.
    pub(super) fn note_rescue(&self) {
        self.rescues.fetch_add(1, Relaxed);
    }

    /// Whether this snapshot was waited for in vain.
    pub(super) fn is_lasting(&self, snapshot: Option<u64>) -> bool {
        snapshot == Some(self.lasting.load(Relaxed))
    }

    pub(super) fn note_lasting(&self, snapshot: u64) {
        self.lasting.store(snapshot, Relaxed);
    }
}

/// Of those who are refused, the ones for whom less is done first.
fn rank(need: Need) -> usize {
    match need {
        Need::Urgent => 2,
        Need::Replace => 1,
        _ => 0,
    }
}
