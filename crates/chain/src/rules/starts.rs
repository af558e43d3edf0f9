//! A process starts on what an earlier one has left.

use super::{A, B, Bench, C, X, Y, appends, entry, retires, rule, ships, view};
use crate::failpoints::Step;
use crate::{Body, Command, Event, Found, ReadId};

fn found(id: crate::ReplicaId, entries: Vec<crate::Entry>) -> Found {
    Found { entries, ..Found::new(id) }
}

/// The head commits, starts again, and again, and never forwards.
#[test]
fn a_head_that_starts_keeps_what_is_not_acknowledged() {
    rule(Step::KeepInRecovery, |failpoints| {
        let mut a = Bench::start(found(A, vec![entry(1, X)]), failpoints);
        a.install(&view(1, &[A, B, C]));
        a.barrier();
        let mut commands = a.step(Event::Recovered);
        commands.extend(a.run());
        !retires(&commands)
    });
}

#[test]
fn a_head_that_starts_forwards_again() {
    rule(Step::ForwardAgain, |failpoints| {
        let mut a = Bench::start(found(A, vec![entry(1, X)]), failpoints);
        a.install(&view(1, &[A, B, C]));
        a.barrier();
        a.step(Event::Recovered);
        a.run();
        ships(&a.hear(B, Body::Have(0)), 1)
    });
}

#[test]
fn a_head_locks_what_is_in_flight_before_it_serves() {
    rule(Step::RebuildLocks, |failpoints| {
        let mut a = Bench::start(found(A, vec![entry(1, X)]), failpoints);
        a.install(&view(1, &[A, B, C]));
        a.barrier();
        a.step(Event::Recovered);
        a.run();
        a.step(Event::Lease { id: A, until: crate::Moment(1000) });
        let reads = a.step(Event::Read { read: ReadId(1), objects: vec![X] }).contains(&Command::Read(ReadId(1)));
        !reads && !a.lock(1, 0, &[], &[X]) && a.lock(2, 0, &[], &[Y])
    });
}

/// A replica that becomes the head does not know which the tail has acknowledged.
#[test]
fn a_new_head_locks_what_is_in_flight() {
    rule(Step::RebuildLocks, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        b.hear(A, Body::Records(vec![super::record(1, X)]));
        b.run();
        b.install(&view(2, &[B, C]));
        let early = b.lock(1, 0, &[], &[X]);
        let sent = ships(&b.hear(C, Body::Have(0)), 1);
        b.run();
        b.hear(C, Body::Acknowledged(1));
        b.run();
        !early && sent && b.lock(2, 0, &[], &[X])
    });
}

/// What was read may stand in a cache alone: it would be lost behind the back of those that were told.
#[test]
fn what_a_start_has_found_is_persistent_before_it_is_sent() {
    rule(Step::PersistRecovery, |failpoints| {
        let mut a = Bench::start(found(A, vec![entry(1, X), entry(3, Y)]), failpoints);
        let commands = a.install(&view(1, &[A, B, C]));
        let redo = Command::Recover { first: 1, last: 3 };
        if commands.contains(&redo) {
            return false;
        }
        let then = a.barrier().contains(&redo);
        a.step(Event::Recovered);
        appends(&commands) == 1 && then && ships(&a.hear(B, Body::Have(0)), 3)
    });
}

/// Entries behind a gap would be taken for the next ones when the gap is filled, by the records of another head.
#[test]
fn what_stands_behind_a_gap_is_erased() {
    rule(Step::EraseBehindGap, |failpoints| {
        let mut b = Bench::start(found(B, vec![entry(1, X), entry(3, Y)]), failpoints);
        let commands = b.install(&view(1, &[A, B, C]));
        commands.contains(&Command::Truncate(1)) && b.replica.progress().last == 1
    });
}

/// A new head that is torn, too: its queue has all that it needs.
#[test]
fn a_start_carries_out_its_queue_again() {
    rule(Step::ExecuteAgain, |failpoints| {
        let mut b = Bench::start(found(B, vec![entry(1, X), entry(2, Y)]), failpoints);
        b.install(&view(2, &[B, C]));
        b.barrier().contains(&Command::Recover { first: 1, last: 2 })
    });
}

/// A power failure in the middle would leave half of a record that no queue has.
#[test]
fn a_start_persists_its_queue_before_it_carries_it_out() {
    rule(Step::PersistRecovery, |failpoints| {
        let mut b = Bench::start(found(B, vec![entry(1, X)]), failpoints);
        let early = b.install(&view(1, &[A, B, C]));
        let redo = Command::Recover { first: 1, last: 1 };
        !early.contains(&redo) && b.barrier().contains(&redo)
    });
}

/// The barrier before it says nothing of what comes after it.
#[test]
fn a_start_retires_nothing_before_the_heap_is_persistent() {
    let mut b = Bench::start(found(B, vec![entry(1, X)]), crate::failpoints::Failpoints(None));
    b.install(&view(1, &[A, B, C]));
    b.barrier();
    b.step(Event::Recovered);
    assert!(!retires(&b.hear(C, Body::CleanUp(1))));
    assert!(retires(&b.barrier()));
}

/// All are down, and one comes back: it has everything.
#[test]
fn one_survivor_is_enough() {
    let mut c = Bench::start(found(C, vec![entry(1, X)]), crate::failpoints::Failpoints(None));
    c.install(&view(1, &[A, B, C]));
    c.barrier();
    c.step(Event::Recovered);
    c.run();
    let commands = c.step(Event::Lapsed(A));
    assert!(commands.contains(&Command::Propose(view(2, &[B, C]))), "{commands:?}");
    c.install(&view(2, &[B, C]));
    assert!(c.step(Event::Lapsed(B)).contains(&Command::Propose(view(3, &[C]))));
    c.install(&view(3, &[C]));
    c.step(Event::LeasesEnded(crate::ViewId(3)));
    c.run();
    assert_eq!(c.replica.progress().acknowledged, 1);
    c.step(Event::Lease { id: C, until: crate::Moment(1000) });
    assert!(c.lock(1, 0, &[], &[X]));
}
