//! Histories made by hand, each with one thing wrong, and large ones with nothing wrong.

use tx::Isolation::{self, Serializable, Snapshot, Strict};

use super::super::history::{History, Log, Outcome, Version};
use crate::history::Phenomenon;
use crate::rng::Rng;

/// A write that a test may read: which transaction, and its how-manyeth write.
fn v(transaction: usize, write: u64) -> Version {
    Version::from_raw((transaction as u64) << 40 | write)
}

/// A transaction: what it reads, and what it writes over what.
#[derive(Clone)]
struct T {
    reads: Vec<(u16, Version)>,
    writes: Vec<(u16, Option<Version>)>,
    outcome: Outcome,
    moments: (u64, u64),
    place: Option<u64>,
}

fn t(reads: &[(u16, Version)], writes: &[(u16, Version)]) -> T {
    let (reads, writes) = (reads.to_vec(), writes.iter().map(|&(key, over)| (key, Some(over))).collect());
    // All at the same time.
    T { reads, writes, outcome: Outcome::Committed, moments: (10, 0), place: None }
}

impl T {
    fn outcome(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    fn blind(mut self, key: u16) -> Self {
        self.writes.push((key, None));
        self
    }

    fn at(self, begin: u64, end: u64) -> Self {
        Self { moments: (begin, end), ..self }
    }

    fn place(self, place: u64) -> Self {
        Self { place: Some(place), ..self }
    }
}

const X: u16 = 0;
const Y: u16 = 1;
const Z: u16 = 2;

/// The first versions.
fn x0() -> Version {
    v(0, 0)
}

fn y0() -> Version {
    v(0, 1)
}

/// Transaction 0 writes all keys; each other one has a thread of its own.
fn history(level: Isolation, transactions: &[T]) -> History {
    let mut first = Log::new(0);
    first.begin(Strict, 1);
    for key in [X, Y, Z] {
        first.write(key, None);
    }
    first.end(Outcome::Committed, 2, Some(0));
    let mut logs = vec![first];
    for (n, t) in transactions.iter().enumerate() {
        let mut log = Log::new(n as u8 + 1);
        log.begin(level, t.moments.0);
        t.reads.iter().for_each(|&(key, version)| log.read(key, version));
        t.writes.iter().for_each(|&(key, over)| _ = log.write(key, over));
        let end = if t.moments.1 == 0 { 100 + n as u64 } else { t.moments.1 };
        log.end(t.outcome, end, t.place);
        logs.push(log);
    }
    History::new(logs, true)
}

#[track_caller]
fn found_at(level: Isolation, transactions: &[T], expected: Option<Phenomenon>) {
    let found = history(level, transactions).check();
    assert_eq!(found.as_ref().err().map(|a| a.phenomenon), expected, "at {level}: {found:?}");
}

/// Found at this level and those above, and not below.
#[track_caller]
fn found(from: Isolation, phenomenon: Phenomenon, transactions: &[T]) {
    for level in Isolation::ALL {
        found_at(level, transactions, (level >= from).then_some(phenomenon));
    }
}

#[track_caller]
fn fine(transactions: &[T]) {
    for level in Isolation::ALL {
        found_at(level, transactions, None);
    }
}

#[test]
fn one_after_the_other() {
    fine(&[]);
    fine(&[t(&[(X, x0())], &[(X, x0())]), t(&[(X, v(1, 0))], &[(X, v(1, 0))]), t(&[(X, v(2, 0)), (Y, y0())], &[])]);
}

#[test]
fn reads_of_what_never_was() {
    let aborted = t(&[], &[(X, x0())]).outcome(Outcome::Aborted);
    found(Snapshot, Phenomenon::AbortedRead, &[aborted.clone(), t(&[(X, v(1, 0))], &[])]);
    found(Snapshot, Phenomenon::AbortedRead, &[aborted.clone(), t(&[], &[(X, v(1, 0))])]);
    fine(&[aborted.clone(), t(&[(X, v(1, 0))], &[]).outcome(Outcome::Aborted), t(&[(X, x0())], &[(X, x0())])]);
    let twice = t(&[], &[(X, x0()), (X, v(1, 0))]);
    found(Snapshot, Phenomenon::IntermediateRead, &[twice.clone(), t(&[(X, v(1, 0))], &[])]);
    fine(&[twice, t(&[(X, v(1, 1))], &[])]);
    found(Snapshot, Phenomenon::UnknownValue, &[t(&[(X, v(7, 0))], &[])]);
    found(Snapshot, Phenomenon::UnknownValue, &[t(&[(X, y0())], &[])]);
    found(Snapshot, Phenomenon::UnknownValue, &[t(&[(X, v(0, 200))], &[])]);
}

#[test]
fn unknown_ends() {
    let unknown = t(&[], &[(X, x0())]).outcome(Outcome::Unknown);
    // Seen, so it has happened; not seen, so perhaps not.
    fine(&[unknown.clone(), t(&[(X, v(1, 0))], &[])]);
    fine(&[unknown.clone(), t(&[(X, x0())], &[(X, x0())])]);
    found(Snapshot, Phenomenon::LostUpdate, &[unknown.clone(), t(&[(X, x0())], &[(X, x0())]), t(&[(X, v(1, 0))], &[])]);
    // Through another one.
    let second = t(&[(X, v(1, 0))], &[(Y, y0())]).outcome(Outcome::Unknown);
    found(Snapshot, Phenomenon::LostUpdate, &[unknown, second, t(&[], &[(X, x0())]), t(&[(Y, v(2, 0))], &[])]);
}

#[test]
fn lost_updates() {
    found(Snapshot, Phenomenon::LostUpdate, &[t(&[], &[(X, x0())]), t(&[], &[(X, x0())])]);
}

#[test]
fn cycles_of_dependencies() {
    found(Snapshot, Phenomenon::G0, &[t(&[], &[(X, x0()), (Y, v(2, 1))]), t(&[], &[(X, v(1, 0)), (Y, y0())])]);
    found(Snapshot, Phenomenon::G1c, &[t(&[(Y, v(2, 0))], &[(X, x0())]), t(&[(X, v(1, 0))], &[(Y, y0())])]);
    // Through blind writes too.
    found(Snapshot, Phenomenon::G1c, &[t(&[(Y, v(2, 0))], &[]).blind(X), t(&[(X, v(1, 0))], &[]).blind(Y)]);
}

#[test]
fn read_skew() {
    let writer = t(&[], &[(X, x0()), (Y, y0())]);
    found(Snapshot, Phenomenon::GSingle, &[writer.clone(), t(&[(X, x0()), (Y, v(1, 1))], &[])]);
    found(Snapshot, Phenomenon::GSingle, &[writer.clone(), t(&[(X, x0()), (X, v(1, 0))], &[])]);
    fine(&[writer.clone(), t(&[(X, x0()), (Y, y0())], &[]), t(&[(X, v(1, 0)), (Y, v(1, 1))], &[])]);
    let second = t(&[], &[(X, v(1, 0)), (Y, v(1, 1))]);
    found(Snapshot, Phenomenon::GSingle, &[writer, second, t(&[(X, v(2, 0)), (Y, v(1, 1))], &[])]);
}

#[test]
fn long_fork() {
    let readers = [t(&[(X, v(1, 0)), (Y, y0())], &[]), t(&[(X, x0()), (Y, v(2, 0))], &[])];
    let writers = [t(&[], &[(X, x0())]), t(&[], &[(Y, y0())])];
    found(Snapshot, Phenomenon::GNonadjacent, &[&writers[..], &readers].concat());
}

#[test]
fn write_skew() {
    let both: &[_] = &[(X, x0()), (Y, y0())];
    found(Serializable, Phenomenon::G2, &[t(both, &[(X, x0())]), t(both, &[(Y, y0())])]);
    let report = t(&[(X, x0()), (Y, v(1, 0))], &[]);
    let (deposit, withdraw) = (t(&[(Y, y0())], &[(Y, y0())]), t(both, &[(X, x0())]));
    found(Serializable, Phenomenon::G2, &[deposit.clone(), withdraw.clone(), report]);
    fine(&[deposit, withdraw]);
}

/// Of two that skew, one at snapshot level is enough: it has promised nothing.
#[test]
fn mixed_levels() {
    let both: &[_] = &[(X, x0()), (Y, y0())];
    let skewed = |levels: [Isolation; 2]| {
        let mut history = history(Serializable, &[t(both, &[(X, x0())]), t(both, &[(Y, y0())])]);
        history.logs[1].entries[0].level = levels[0];
        history.logs[2].entries[0].level = levels[1];
        history.check().is_err()
    };
    assert!(skewed([Serializable, Strict]));
    assert!(!skewed([Snapshot, Strict]) && !skewed([Serializable, Snapshot]) && !skewed([Snapshot, Snapshot]));
}

#[test]
fn real_time() {
    let writer = t(&[], &[(X, x0())]).at(10, 11);
    found(Snapshot, Phenomenon::Stale, &[writer.clone(), t(&[(X, x0())], &[]).at(12, 13)]);
    fine(&[writer.clone(), t(&[(X, x0())], &[]).at(10, 13)]);
    // Through a transaction that saw it, and through many ends.
    let second = t(&[(X, v(1, 0))], &[(Y, y0())]).at(12, 13);
    let others = (0..20).map(|n| t(&[(Z, v(0, 2))], &[]).at(14 + 2 * n, 15 + 2 * n));
    let late = t(&[(X, x0()), (Y, y0())], &[]).at(60, 61);
    let all: Vec<T> = [writer.clone(), second].into_iter().chain(others).chain([late]).collect();
    found(Snapshot, Phenomenon::Stale, &all);
    // No transaction has to see it, but strict ones.
    for (level, stale) in [(Snapshot, false), (Serializable, false), (Strict, true)] {
        let mut history = history(level, &[writer.clone(), t(&[(X, x0())], &[]).at(12, 13)]);
        history.real_time = false;
        assert_eq!(history.check().is_err(), stale, "at {level}");
    }
}

#[test]
fn places_order_blind_writes() {
    let blind = |place| t(&[], &[]).blind(X).blind(Y).place(place);
    let torn = t(&[(X, v(1, 0)), (Y, v(2, 1))], &[]);
    found(Snapshot, Phenomenon::GSingle, &[blind(1), blind(2), torn.clone()]);
    fine(&[blind(1), t(&[], &[]).blind(X).blind(Y), torn]); // one has no place
    fine(&[blind(2), blind(1), t(&[(X, v(1, 0)), (Y, v(1, 1))], &[])]);
    found(Snapshot, Phenomenon::Malformed, &[blind(1), blind(1)]);
    // It was told that it came first, and has overwritten the second.
    found(Snapshot, Phenomenon::G0, &[t(&[], &[(X, v(2, 0))]).place(1), t(&[], &[]).blind(X).place(2)]);
}

#[test]
fn the_message_tells_the_cycle() {
    let anomaly = history(Strict, &[t(&[(Y, v(2, 0))], &[(X, x0())]), t(&[(X, v(1, 0))], &[(Y, y0())])]).check();
    let message = anomaly.expect_err("G1c").to_string();
    let mut lines = message.lines();
    assert!(
        matches!(lines.next(), Some("G1c: t1.0 -wr-> t2.0 -wr-> t1.0" | "G1c: t2.0 -wr-> t1.0 -wr-> t2.0")),
        "{message}"
    );
    assert_eq!(lines.next(), Some("t1.0 strict Committed 10..100: read 1=t2.0/0; wrote 0/0 over t0.0/0"), "{message}");
}

/// Serializable, with overlapping times; `swap` lets one transaction in the middle miss a commit.
fn large(count: usize, swap: bool) -> History {
    const KEYS: u64 = 100;
    const THREADS: u64 = 8;
    let mut rng = Rng::seeded(1);
    let mut logs: Vec<Log> = (0..=THREADS as u8).map(Log::new).collect();
    logs[0].begin(Strict, 0);
    let mut newest: Vec<Version> = (0..KEYS).map(|key| logs[0].write(key as u16, None)).collect();
    logs[0].end(Outcome::Committed, 1, None);
    let mut before = newest.clone();
    let mut moments = vec![2u64; THREADS as usize + 1];
    for n in 0..count {
        let now = n as u64 * 2 * THREADS + 100;
        let thread = 1 + n % THREADS as usize;
        let log = &mut logs[thread];
        log.begin(Strict, moments[thread]);
        let state = if swap && n == count / 2 { before.clone() } else { newest.clone() };
        for _ in 0..8 {
            let key = rng.below(KEYS) as usize;
            log.read(key as u16, state[key]);
        }
        // The ninth before it ended before it began.
        if swap && n + 9 == count / 2 {
            before = newest.clone();
            newest = newest.iter().enumerate().map(|(key, over)| log.write(key as u16, Some(*over))).collect();
        } else if !swap || n != count / 2 {
            let key = rng.below(KEYS) as usize;
            newest[key] = log.write(key as u16, Some(newest[key]));
        }
        // Ends after others have begun; begins after its thread's last.
        log.end(Outcome::Committed, now, None);
        moments[thread] = now + 1;
    }
    History::new(logs, true)
}

/// Linear in the number of transactions: the gate checks a hundred thousand, `CAIRN_TRANSACTIONS` as many as it says.
#[test]
fn large_histories() {
    let count = std::env::var("CAIRN_TRANSACTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let history = large(count, false);
    assert_eq!(history.committed(), count + 1);
    assert_eq!(history.check(), Ok(()));
}

/// One wrong read among many.
#[test]
fn a_needle_is_found() {
    let found = large(20_000, true).check().expect_err("a commit was missed");
    assert_eq!(found.phenomenon, Phenomenon::Stale, "{found}");
    let mut history = large(20_000, true);
    history.logs.iter_mut().flat_map(|log| &mut log.entries).for_each(|entry| entry.begin = 0);
    assert_eq!(history.check(), Ok(()), "without times nothing is wrong");
}
