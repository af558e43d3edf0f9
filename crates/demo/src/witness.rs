//! What was acknowledged, held against what was found.
//!
//! Versions of a key count its updates; the numbers in a thread's journal count the thread's. After a crash a journal ends with the last update
//! that its thread had acknowledged, or with the one that was under way. That decides whether the latter has been made. So each key has
//! exactly one version that it may have, and exactly one way, there or deleted.

use std::collections::BTreeMap;

use crate::message::{Announced, Update};

/// How a key was found: its version, 0 if it never had one, and whether it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) live: bool,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Acknowledged, and gone.
    Lost { key: u64, expected: State, found: State },
    /// Key and journal say different things: of a transaction only half is there, or it was never asked for.
    Half { key: u64, expected: u64, found: State },
    /// The right version, but there instead of deleted, or the other way round.
    Undead { key: u64, expected: State, found: State },
    /// A journal does not end where it may.
    Journal { thread: usize, acknowledged: u64, found: u64 },
}

impl Wrong {
    /// Acknowledged updates that are gone.
    pub(crate) fn lost(self) -> u64 {
        match self {
            Self::Lost { expected, found, .. } => expected.version - found.version,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// As found by the last look.
    base: State,
    /// The newest that was acknowledged since, or `base`.
    last: State,
    /// How many were acknowledged since.
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Number of the last update that is known to be made.
    done: u64,
    /// What the living worker's thread is about to do.
    next: Option<Announced>,
    /// What a dead worker's thread was about to do.
    doubt: Option<Announced>,
}

/// The witness's book.
#[derive(Debug)]
pub(crate) struct Ledger {
    accounts: Vec<Account>,
    threads: Vec<Thread>,
    /// Updates that were in doubt and turned out to be made, since the last look: kinds by key.
    late: BTreeMap<u64, Vec<bool>>,
    /// What workers said that cannot be right.
    wrong: Vec<Wrong>,
    /// Acknowledged in all.
    pub(crate) acknowledged: u64,
    /// In doubt in all, and how many of them turned out to be made.
    pub(crate) doubts: u64,
    pub(crate) made: u64,
}

impl Ledger {
    /// Begins with what is there; keys that cannot be read are as if they were not.
    pub(crate) fn new(states: &[Option<State>], journal: &[u64]) -> Self {
        let account = |state: &Option<State>| {
            let base = state.unwrap_or_default();
            Account { base, last: base, count: 0 }
        };
        let thread = |&done: &u64| Thread { done, next: None, doubt: None };
        Self {
            accounts: states.iter().map(account).collect(),
            threads: journal.iter().map(thread).collect(),
            late: BTreeMap::new(),
            wrong: Vec::new(),
            acknowledged: 0,
            doubts: 0,
            made: 0,
        }
    }

    /// A thread has made the update it announced, and announces another. An error if that makes no sense.
    pub(crate) fn step(&mut self, at: usize, done: Option<Update>, next: Option<Announced>) -> Result<(), String> {
        let keys = self.accounts.len() as u64;
        if let Some(key) = done.map(|d| d.key).into_iter().chain(next.map(|n| n.key)).find(|key| *key >= keys) {
            return Err(format!("reported key {key} of {keys}"));
        }
        let threads = self.threads.len();
        let thread = self.threads.get_mut(at).ok_or_else(|| format!("reported thread {at} of {threads}"))?;
        let announced = thread.next.take();
        if let Some(update) = done {
            let announced = announced.filter(|next| (next.key, next.live) == (update.key, update.live));
            thread.done = announced.ok_or_else(|| format!("made {update:?}, which it had not announced"))?.number;
            self.accounts[update.key as usize].acknowledge(update);
            self.acknowledged += 1;
        }
        if let Some(next) = next {
            if let Some(doubt) = thread.doubt.take().filter(|doubt| next.number == doubt.number + 1) {
                thread.done = doubt.number;
                self.late.entry(doubt.key).or_default().push(doubt.live);
                self.made += 1;
            }
            if next.number != thread.done + 1 {
                let found = next.number.saturating_sub(1);
                self.wrong.push(Wrong::Journal { thread: at, acknowledged: thread.done, found });
                thread.done = found;
            }
        }
        thread.next = next;
        Ok(())
    }

    /// The worker is dead.
    pub(crate) fn ended(&mut self) {
        for thread in &mut self.threads {
            if let Some(next) = thread.next.take() {
                thread.doubt = Some(next);
                self.doubts += 1;
            }
        }
    }

    /// Looks at everything, and begins anew with it. A key of which nothing could be read is `None`, and reported elsewhere.
    pub(crate) fn look(&mut self, found: &[Option<State>], journal: &[u64]) -> Vec<Wrong> {
        let mut wrong = std::mem::take(&mut self.wrong);
        for (at, (thread, &last)) in self.threads.iter_mut().zip(journal).enumerate() {
            match thread.doubt.take() {
                Some(doubt) if last == doubt.number => {
                    self.late.entry(doubt.key).or_default().push(doubt.live);
                    self.made += 1;
                }
                _ if last == thread.done => {}
                _ => wrong.push(Wrong::Journal { thread: at, acknowledged: thread.done, found: last }),
            }
            thread.done = last;
        }
        let late = std::mem::take(&mut self.late);
        for (key, (account, found)) in (0..).zip(self.accounts.iter_mut().zip(found)) {
            let Some(found) = *found else { continue };
            wrong.extend(account.judge(key, found, late.get(&key).map_or(&[], Vec::as_slice)));
            *account = Account { base: found, last: found, count: 0 };
        }
        wrong
    }
}

impl Account {
    /// Threads report in any order.
    fn acknowledge(&mut self, Update { version, live, .. }: Update) {
        self.count += 1;
        if version > self.last.version {
            self.last = State { version, live };
        }
    }

    fn judge(&self, key: u64, found: State, late: &[bool]) -> Option<Wrong> {
        let counted = self.base.version + self.count;
        let acknowledged = State { version: self.last.version.max(counted), ..self.last };
        let expected = counted + late.len() as u64;
        if found.version < acknowledged.version {
            return Some(Wrong::Lost { key, expected: acknowledged, found });
        }
        if found.version != expected {
            return Some(Wrong::Half { key, expected, found });
        }
        let right =
            if found.version == self.last.version { found.live == self.last.live } else { late.contains(&found.live) };
        (!right).then_some(Wrong::Undead { key, expected: acknowledged, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(version: u64) -> State {
        State { version, live: true }
    }

    fn dead(version: u64) -> State {
        State { version, live: false }
    }

    fn next(key: u64, live: bool, number: u64) -> Option<Announced> {
        Some(Announced { key, live, number })
    }

    /// A key that began at version 5. Each thread had made 10 updates; then threads made these and were killed; some announced another.
    struct Case<'a> {
        done: &'a [State],
        /// Kind, and whether its journal says that it has been made.
        doubts: &'a [(bool, bool)],
        found: State,
    }

    impl Case<'_> {
        fn judge(&self) -> Vec<Wrong> {
            let Self { done, doubts, found } = self;
            let mut ledger = Ledger::new(&[Some(live(5))], &[10; 4]);
            let mut journal = [10; 4];
            for (at, state) in done.iter().enumerate() {
                ledger.step(at, None, next(0, state.live, 11)).unwrap();
                let update = Update { key: 0, version: state.version, live: state.live };
                ledger.step(at, Some(update), None).unwrap();
                journal[at] = 11;
            }
            for (at, (live, made)) in doubts.iter().enumerate() {
                let number = journal[at] + 1;
                ledger.step(at, None, next(0, *live, number)).unwrap();
                journal[at] += u64::from(*made);
            }
            ledger.ended();
            ledger.look(&[Some(*found)], &journal)
        }
    }

    fn judge(done: &[State], doubts: &[(bool, bool)], found: State) -> Vec<Wrong> {
        Case { done, doubts, found }.judge()
    }

    #[test]
    fn what_may_be_found() {
        let (made, not) = ((true, true), (true, false));
        assert_eq!(judge(&[], &[], live(5)), []);
        assert_eq!(judge(&[live(6), live(7)], &[], live(7)), []);
        assert_eq!(judge(&[live(7), live(6)], &[], live(7)), [], "reports of two threads cross");
        assert_eq!(judge(&[live(6)], &[not], live(6)), []);
        assert_eq!(judge(&[live(6)], &[made], live(7)), []);
        assert_eq!(judge(&[live(7)], &[not, made], live(7)), [], "the one in doubt came first");
        assert_eq!(judge(&[dead(6)], &[], dead(6)), []);
        assert_eq!(judge(&[live(6)], &[(false, true)], dead(7)), []);
        assert_eq!(judge(&[], &[made, (false, true)], dead(7)), []);
        assert_eq!(judge(&[], &[made, (false, true)], live(7)), []);
    }

    #[test]
    fn what_may_not() {
        let (made, not) = ((true, true), (true, false));
        let lost = |expected, found| [Wrong::Lost { key: 0, expected, found }];
        assert_eq!(judge(&[live(6)], &[], live(5)), lost(live(6), live(5)));
        assert_eq!(judge(&[live(6), live(7)], &[not], live(5)), lost(live(7), live(5)));
        assert_eq!(judge(&[live(6)], &[], State::default()), lost(live(6), State::default()));
        assert_eq!(judge(&[], &[], live(4)), lost(live(5), live(4)), "older than the last look");
        assert_eq!(judge(&[live(6), live(6)], &[], live(6)), lost(live(7), live(6)), "two updates, one version");
        let half = |expected, found| [Wrong::Half { key: 0, expected, found }];
        assert_eq!(judge(&[live(6)], &[], live(7)), half(6, live(7)), "nobody asked for it");
        assert_eq!(judge(&[live(6)], &[not], live(7)), half(6, live(7)), "the key without the journal");
        assert_eq!(judge(&[live(6)], &[made], live(6)), half(7, live(6)), "the journal without the key");
        let undead = |expected, found| [Wrong::Undead { key: 0, expected, found }];
        assert_eq!(judge(&[dead(6)], &[], live(6)), undead(dead(6), live(6)));
        assert_eq!(judge(&[live(6)], &[], dead(6)), undead(live(6), dead(6)));
        assert_eq!(judge(&[live(6)], &[made], dead(7)), undead(live(6), dead(7)));
        assert_eq!(lost(live(7), live(5))[0].lost(), 2);
    }

    #[test]
    fn a_journal_that_ends_elsewhere() {
        let look = |journal| {
            let mut ledger = Ledger::new(&[Some(live(5))], &[10]);
            ledger.step(0, None, next(0, true, 11)).unwrap();
            ledger.ended();
            ledger.look(&[None], &[journal])
        };
        let wrong = |found| [Wrong::Journal { thread: 0, acknowledged: 10, found }];
        assert_eq!(look(9), wrong(9));
        assert_eq!(look(10), []);
        assert_eq!(look(11), []);
        assert_eq!(look(12), wrong(12));
    }

    /// A second worker dies before the next look: where its journals begin tells what became of the first one's updates.
    #[test]
    fn two_workers_between_two_looks() {
        for (begins, version, right) in [(11, 6, true), (12, 7, true), (11, 7, false), (12, 6, false)] {
            let mut ledger = Ledger::new(&[Some(live(5)), None], &[10]);
            ledger.step(0, None, next(0, true, 11)).unwrap();
            ledger.ended();
            ledger.step(0, None, next(0, true, begins)).unwrap();
            let update = Update { key: 0, version, live: true };
            ledger.step(0, Some(update), next(1, true, begins + 1)).unwrap();
            ledger.ended();
            let wrong = ledger.look(&[Some(live(version)), None], &[begins]);
            assert_eq!(wrong.is_empty(), right, "{begins} {version}: {wrong:?}");
            assert_eq!((ledger.acknowledged, ledger.doubts), (1, 2));
            // What was in doubt then is not any more.
            assert_eq!(ledger.look(&[Some(live(version)), None], &[begins]), []);
        }
        for begins in [10, 13] {
            let mut ledger = Ledger::new(&[Some(live(5))], &[10]);
            ledger.step(0, None, next(0, true, 11)).unwrap();
            ledger.ended();
            ledger.step(0, None, next(0, true, begins)).unwrap();
            ledger.ended();
            let wrong = ledger.look(&[Some(live(5))], &[begins - 1]);
            assert_eq!(wrong, [Wrong::Journal { thread: 0, acknowledged: 10, found: begins - 1 }]);
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        let mut ledger = Ledger::new(&[Some(live(1))], &[0]);
        let update = |key| Some(Update { key, version: 2, live: true });
        assert!(ledger.step(0, update(1), None).is_err());
        assert!(ledger.step(0, None, next(1, true, 1)).is_err());
        assert!(ledger.step(1, None, next(0, true, 1)).is_err());
        assert!(ledger.step(0, update(0), None).is_err(), "not announced");
        ledger.step(0, None, next(0, false, 1)).unwrap();
        assert!(ledger.step(0, update(0), None).is_err(), "announced as something else");
    }
}
