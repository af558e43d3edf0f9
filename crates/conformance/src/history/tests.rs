//! Histories by hand: each phenomenon is found by its name, at the levels that forbid it and at no other.

use super::*;

use Isolation::{Serializable, Snapshot, Strict};

const X: u64 = 1;
const Y: u64 = 2;

fn r(key: u64, value: u64) -> Event {
    Event::Read { key, value }
}

fn w(key: u64, old: u64, new: u64) -> Event {
    Event::Write { key, old: Some(old), new }
}

/// All at the same time.
fn history(transactions: &[(bool, &[Event])]) -> History {
    let record = |(i, (committed, events)): (usize, &(bool, &[Event]))| Record {
        name: format!("t{}", i + 1),
        begin: 0,
        end: 1,
        committed: *committed,
        events: events.to_vec(),
    };
    History { transactions: transactions.iter().enumerate().map(record).collect() }
}

/// One after the other.
fn serial(transactions: &[(bool, &[Event])]) -> History {
    let mut history = history(transactions);
    for (i, record) in history.transactions.iter_mut().enumerate() {
        (record.begin, record.end) = (i as u64 * 2, i as u64 * 2 + 1);
    }
    history
}

#[track_caller]
fn forbidden_from(level: Isolation, phenomenon: Phenomenon, history: &History) {
    for each in Isolation::ALL {
        let found = history.check(each).err().map(|a| a.phenomenon);
        assert_eq!(found, (each >= level).then_some(phenomenon), "at {each}: {:?}", history.check(each));
    }
}

#[track_caller]
fn allowed(history: &History) {
    for level in Isolation::ALL {
        assert_eq!(history.check(level), Ok(()), "at {level}");
    }
}

#[test]
fn one_after_the_other_is_allowed() {
    allowed(&serial(&[
        (true, &[w(X, 0, 1), w(Y, 0, 2), w(X, 1, 3)]),
        (true, &[r(X, 3), r(Y, 2)]),
        (false, &[r(X, 3), w(X, 3, 4)]),
        (true, &[r(X, 3), w(X, 3, 5), r(X, 5)]),
        (true, &[r(X, 5), r(Y, 2)]),
    ]));
    allowed(&History::default());
}

#[test]
fn aborted_read() {
    forbidden_from(Snapshot, Phenomenon::AbortedRead, &history(&[(false, &[w(X, 0, 1)]), (true, &[r(X, 1)])]));
    // Overwriting is seeing.
    forbidden_from(Snapshot, Phenomenon::AbortedRead, &history(&[(false, &[w(X, 0, 1)]), (true, &[w(X, 1, 2)])]));
    // A transaction that was rolled back itself may have seen anything.
    allowed(&history(&[(false, &[w(X, 0, 1)]), (false, &[r(X, 1)])]));
}

#[test]
fn intermediate_read() {
    let writer: &[Event] = &[w(X, 0, 1), w(X, 1, 2)];
    forbidden_from(Snapshot, Phenomenon::IntermediateRead, &history(&[(true, writer), (true, &[r(X, 1)])]));
    allowed(&history(&[(true, writer), (true, &[r(X, 2)])]));
}

#[test]
fn values_from_nowhere() {
    forbidden_from(Snapshot, Phenomenon::UnknownValue, &history(&[(true, &[w(X, 0, 1)]), (true, &[r(X, 7)])]));
    forbidden_from(Snapshot, Phenomenon::UnknownValue, &history(&[(true, &[w(X, 0, 1)]), (true, &[r(Y, 1)])]));
    forbidden_from(Snapshot, Phenomenon::Malformed, &history(&[(true, &[w(X, 0, 1)]), (true, &[w(X, 0, 1)])]));
}

#[test]
fn own_writes() {
    forbidden_from(Snapshot, Phenomenon::Internal, &history(&[(true, &[w(X, 0, 1), r(X, 0)])]));
    forbidden_from(Snapshot, Phenomenon::Internal, &history(&[(true, &[w(X, 0, 1), w(X, 0, 2)])]));
}

#[test]
fn own_blind_writes() {
    let blind = Event::Write { key: X, old: None, new: 1 };
    forbidden_from(Snapshot, Phenomenon::Internal, &history(&[(true, &[blind, r(X, 0)])]));
    allowed(&history(&[(true, &[blind, r(X, 1), w(X, 1, 2), r(X, 2)]), (true, &[r(X, 2)])]));
}

#[test]
fn lost_update() {
    forbidden_from(Snapshot, Phenomenon::LostUpdate, &history(&[(true, &[w(X, 0, 1)]), (true, &[w(X, 0, 2)])]));
    // Seen by both, but one was rolled back.
    allowed(&history(&[(true, &[w(X, 0, 1)]), (false, &[w(X, 0, 2)])]));
}

#[test]
fn cycle_of_writes() {
    forbidden_from(
        Snapshot,
        Phenomenon::G0,
        &history(&[(true, &[w(X, 0, 1), w(Y, 4, 2)]), (true, &[w(X, 1, 3), w(Y, 0, 4)])]),
    );
}

#[test]
fn cycle_of_information() {
    forbidden_from(
        Snapshot,
        Phenomenon::G1c,
        &history(&[(true, &[w(X, 0, 1), r(Y, 2)]), (true, &[w(Y, 0, 2), r(X, 1)])]),
    );
    // Through three.
    forbidden_from(
        Snapshot,
        Phenomenon::G1c,
        &history(&[(true, &[w(X, 0, 1), r(Y, 2)]), (true, &[r(X, 1), w(3, 0, 3)]), (true, &[w(Y, 0, 2), r(3, 3)])]),
    );
}

#[test]
fn read_skew() {
    let writer: &[Event] = &[w(X, 0, 1), w(Y, 0, 2)];
    forbidden_from(Snapshot, Phenomenon::GSingle, &history(&[(true, writer), (true, &[r(X, 0), r(Y, 2)])]));
    // The same object twice.
    forbidden_from(Snapshot, Phenomenon::GSingle, &history(&[(true, writer), (true, &[r(X, 0), r(X, 1)])]));
    allowed(&history(&[(true, writer), (true, &[r(X, 0), r(Y, 0)])]));
}

#[test]
fn observed_transaction_vanishes() {
    let first: &[Event] = &[w(X, 0, 1), w(Y, 0, 2)];
    let second: &[Event] = &[w(X, 1, 3), w(Y, 2, 4)];
    forbidden_from(
        Snapshot,
        Phenomenon::GSingle,
        &history(&[(true, first), (true, second), (true, &[r(X, 3), r(Y, 2)])]),
    );
}

#[test]
fn long_fork() {
    forbidden_from(
        Snapshot,
        Phenomenon::GNonadjacent,
        &history(&[
            (true, &[w(X, 0, 1)]),
            (true, &[w(Y, 0, 2)]),
            (true, &[r(X, 1), r(Y, 0)]),
            (true, &[r(X, 0), r(Y, 2)]),
        ]),
    );
}

#[test]
fn write_skew() {
    forbidden_from(
        Serializable,
        Phenomenon::G2,
        &history(&[(true, &[r(X, 0), r(Y, 0), w(X, 0, 1)]), (true, &[r(X, 0), r(Y, 0), w(Y, 0, 2)])]),
    );
}

#[test]
fn read_only_anomaly() {
    let (deposit, withdraw): (&[Event], &[Event]) = (&[w(Y, 0, 20)], &[r(X, 0), r(Y, 0), w(X, 0, 11)]);
    let report: &[Event] = &[r(X, 0), r(Y, 20)];
    forbidden_from(Serializable, Phenomenon::G2, &history(&[(true, deposit), (true, withdraw), (true, report)]));
    allowed(&history(&[(true, deposit), (true, withdraw)]));
}

#[test]
fn stale_read() {
    forbidden_from(Strict, Phenomenon::Stale, &serial(&[(true, &[w(X, 0, 1)]), (true, &[r(X, 0)])]));
    allowed(&history(&[(true, &[w(X, 0, 1)]), (true, &[r(X, 0)])]));
    // By way of a transaction that saw it.
    let mut chain = serial(&[(true, &[w(X, 0, 1)]), (true, &[w(Y, 0, 2)]), (true, &[r(X, 0), r(Y, 2)])]);
    forbidden_from(Strict, Phenomenon::Stale, &chain);
    chain.transactions[1].begin = 0;
    forbidden_from(Strict, Phenomenon::Stale, &chain);
    chain.transactions[2].begin = 0;
    allowed(&chain);
}

#[test]
fn writes_that_saw_nothing_make_no_order() {
    let blind = |key, new| Event::Write { key, old: None, new };
    allowed(&history(&[
        (true, &[blind(X, 1), blind(Y, 2)]),
        (true, &[blind(X, 3), blind(Y, 4)]),
        (true, &[r(X, 1), r(Y, 4)]),
    ]));
    forbidden_from(
        Snapshot,
        Phenomenon::G1c,
        &history(&[(true, &[blind(X, 1), r(Y, 2)]), (true, &[blind(Y, 2), r(X, 1)])]),
    );
}

#[test]
fn the_message_names_the_cycle() {
    let found = history(&[(true, &[w(X, 0, 1), r(Y, 2)]), (true, &[w(Y, 0, 2), r(X, 1)])]).check(Snapshot);
    assert_eq!(found.expect_err("G1c").to_string(), "G1c: t1 -wr-> t2 -wr-> t1");
}
