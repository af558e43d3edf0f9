//! `CLIENT PAUSE`: until when commands are held back, those that write or all of them.
//!
//! A write enters, and looks then whether there is a pause; who begins a pause says so, and looks then how many writes are under way. So when there are none any more, none of
//! those that were before the pause changes anything behind its answer, and none that comes enters.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::now;

/// Milliseconds of a pause, at most.
pub(crate) const LONGEST: u64 = 86_400_000;
/// Counts: a thread has one, so that threads rarely share one.
const COUNTS: usize = 32;
/// One that was not woken looks again so soon.
const LOOK: Duration = Duration::from_millis(50);

/// What is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Held {
    Writes,
    All,
}

#[derive(Debug)]
pub(crate) struct Pauses {
    /// Twice the end, in milliseconds of Unix time, and one more if all is held; 0 if nothing is.
    state: AtomicU64,
    /// Writes that are under way.
    writes: Box<[Count]>,
    ended: Notify,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Default for Pauses {
    fn default() -> Self {
        Self { state: 0.into(), writes: (0..COUNTS).map(|_| Count::default()).collect(), ended: Notify::new() }
    }
}

impl Pauses {
    /// Whether there may be a pause: one look at a number.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.state.load(SeqCst) != 0
    }

    /// What is held back at this moment, and until when.
    pub(crate) fn held(&self) -> Option<(Held, u64)> {
        let state = self.state.load(SeqCst);
        if state == 0 {
            return None;
        }
        let until = state / 2;
        if until > now() {
            return Some((if state % 2 == 1 { Held::All } else { Held::Writes }, until));
        }
        // It is over; a new one that begins here stays.
        if self.state.compare_exchange(state, 0, SeqCst, SeqCst).is_ok() {
            self.ended.notify_waiters();
        }
        None
    }

    /// Holds back, until this moment at least; what another pause holds back stays so, as long as the longer of them.
    pub(crate) fn begin(&self, what: Held, until: u64) {
        let now = now();
        let longer = |before: u64| {
            // One that is over says nothing of what is held.
            let before = if before / 2 > now { before } else { 0 };
            let all = what == Held::All || before % 2 == 1;
            Some(2 * until.max(before / 2) + u64::from(all))
        };
        // Another one may begin at the same moment. It always changes to something.
        let _ = self.state.fetch_update(SeqCst, SeqCst, longer);
    }

    pub(crate) fn end(&self) {
        self.state.store(0, SeqCst);
        self.ended.notify_waiters();
    }

    /// A write is under way, as long as what this returns has not left; none if it is held back.
    pub(crate) fn enter(&self) -> Option<usize> {
        let at = pmem::thread_number() % COUNTS;
        self.writes[at].0.fetch_add(1, SeqCst);
        if self.held().is_some() {
            self.leave(at);
            return None;
        }
        Some(at)
    }

    pub(crate) fn leave(&self, at: usize) {
        self.writes[at].0.fetch_sub(1, SeqCst);
    }

    /// The same for as long as it is kept.
    pub(crate) fn enter_now(&self) -> Option<Writing<'_>> {
        self.enter().map(|at| Writing { pauses: self, at })
    }

    /// The same. Waits while there is a pause, and the server is not to stop.
    pub(crate) async fn write(&self, stops: impl Fn() -> bool) -> Writing<'_> {
        loop {
            if let Some(writing) = self.enter_now() {
                return writing;
            }
            if stops() {
                let at = pmem::thread_number() % COUNTS;
                self.writes[at].0.fetch_add(1, SeqCst);
                return Writing { pauses: self, at };
            }
            self.look(u64::MAX).await;
        }
    }

    /// Until there is a reason to look again: at this moment at the latest.
    pub(crate) async fn look(&self, until: u64) {
        let left = Duration::from_millis(until.saturating_sub(now()).max(1)).min(LOOK);
        drop(tokio::time::timeout(left, self.ended.notified()).await);
    }

    /// Writes that are under way.
    pub(crate) fn writes(&self) -> usize {
        self.writes.iter().map(|count| count.0.load(SeqCst)).sum()
    }
}

/// A write that is under way.
pub(crate) struct Writing<'p> {
    pauses: &'p Pauses,
    at: usize,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.pauses.leave(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_two_pauses_lasts_and_holds_more() {
        let (pauses, end) = (Pauses::default(), now() + LONGEST);
        assert!(!pauses.any() && pauses.held().is_none());
        pauses.begin(Held::All, end);
        pauses.begin(Held::Writes, end + 5);
        assert_eq!(pauses.held(), Some((Held::All, end + 5)));
        pauses.begin(Held::Writes, end);
        assert_eq!(pauses.held(), Some((Held::All, end + 5)));
        pauses.end();
        pauses.begin(Held::Writes, end);
        assert_eq!(pauses.held(), Some((Held::Writes, end)));
        pauses.end();
        // One that is over holds nothing back, and is forgotten.
        pauses.begin(Held::All, now());
        assert!(pauses.held().is_none() && !pauses.any());
    }

    #[test]
    fn pauses_that_begin_at_once_are_as_one() {
        let pauses = Pauses::default();
        std::thread::scope(|scope| {
            for turn in 0..4_u64 {
                let pauses = &pauses;
                scope.spawn(move || {
                    let (what, end) = (if turn == 1 { Held::All } else { Held::Writes }, now() + LONGEST / 2);
                    (0..1000).for_each(|more| pauses.begin(what, end + turn * more));
                });
            }
        });
        let (held, until) = pauses.held().unwrap_or((Held::Writes, 0));
        assert!(held == Held::All && until >= now() + LONGEST / 2 - 60_000 + 3 * 999);
    }

    #[test]
    fn writes_enter_or_are_seen() {
        let pauses = Pauses::default();
        let at = pauses.enter();
        assert!(at.is_some());
        pauses.begin(Held::Writes, now() + LONGEST);
        assert_eq!((pauses.enter(), pauses.writes()), (None, 1));
        at.into_iter().for_each(|at| pauses.leave(at));
        assert_eq!(pauses.writes(), 0);
    }
}
