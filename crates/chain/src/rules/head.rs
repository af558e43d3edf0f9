//! What the head admits, and what it does with numbers.

use super::{A, B, Bench, C, X, Y, appends, retires, rule, ships};
use crate::failpoints::{Failpoints, Step};
use crate::{Body, Command, Event, Refusal, TransactionId};

/// A number drawn and lost.
#[test]
fn a_failed_commit_fills_its_number() {
    rule(Step::EmitSkip, |failpoints| {
        let mut a = Bench::member(A, failpoints);
        a.lock(1, 0, &[], &[X]);
        a.lock(2, 1, &[], &[Y]);
        a.step(Event::Commit(TransactionId(1)));
        let waits = !ships(&a.commit(2, 2), 2);
        let filled = appends(&a.step(Event::CommitFailed(1)));
        let commands = a.run();
        waits && filled == 1 && ships(&commands, 1) && ships(&commands, 2)
    });
}

/// An overtaken read lock: the transaction that reads x and writes y comes before the one that writes x next, in numbers too.
#[test]
fn a_read_lock_is_held_until_the_number_is_drawn() {
    rule(Step::DrawUnderLocks, |failpoints| {
        let mut a = Bench::member(A, failpoints);
        assert!(a.lock(1, 0, &[X], &[Y]));
        let overtakes = a.lock(2, 1, &[], &[X]);
        a.step(Event::Commit(TransactionId(1)));
        !overtakes && a.lock(3, 2, &[], &[X])
    });
}

/// Also a retry that meets the cell of its own request: it is answered when the tail has acknowledged that.
#[test]
fn what_is_in_flight_is_refused_until_it_is_acknowledged() {
    rule(Step::LockUntilAcknowledged, |failpoints| {
        let mut a = Bench::member(A, failpoints);
        assert!(a.lock(1, 0, &[], &[X]));
        a.commit(1, 1);
        a.run();
        let early = a.lock(2, 1, &[X], &[]) || a.lock(3, 1, &[], &[X]);
        a.hear(C, Body::Acknowledged(1));
        a.run();
        !early && a.lock(4, 1, &[], &[X])
    });
}

#[test]
fn what_is_in_flight_is_refused_until_the_backup_has_it() {
    rule(Step::LockUntilApplied, |failpoints| {
        let mut a = Bench::member(A, failpoints);
        assert!(a.lock(1, 0, &[], &[X]));
        a.commit(1, 1);
        let commands = a.hear(C, Body::Acknowledged(1));
        let told = commands.contains(&Command::Acknowledged(1));
        told && !retires(&commands) && retires(&a.barrier()) && !a.lock(2, 1, &[], &[X]) && {
            a.barrier();
            a.lock(3, 1, &[], &[X])
        }
    });
}

/// The record may have a checksum of what stands in the heap, and be sent again.
#[test]
fn what_is_in_flight_is_refused_to_its_own_slot() {
    rule(Step::RefuseOwnSlot, |failpoints| {
        let mut a = Bench::member(A, failpoints);
        assert!(a.lock(1, 7, &[], &[X]));
        a.commit(1, 1);
        !a.lock(2, 7, &[], &[X])
    });
}

#[test]
fn a_head_without_a_lease_admits_nothing() {
    let mut a = Bench::member(A, Failpoints(None));
    a.lease_ends();
    assert!(!a.lock(1, 0, &[], &[X]));
}

#[test]
fn a_replica_that_is_not_the_head_admits_nothing() {
    let mut b = Bench::member(B, Failpoints(None));
    let transaction = TransactionId(1);
    let commands = b.step(Event::Lock { transaction, slot: 0, reads: vec![], writes: vec![X] });
    assert_eq!(commands, [Command::Refused(transaction, Refusal::NotHere)]);
}

#[test]
fn transactions_in_flight_have_a_bound() {
    let mut a = Bench::member(A, Failpoints(None));
    let most = crate::IN_FLIGHT_MAX as u64;
    for n in 1..=most {
        assert!(a.lock(n, 0, &[], &[crate::Object(n)]));
        a.commit(n, n);
    }
    assert!(!a.lock(most + 1, 0, &[], &[crate::Object(most + 1)]));
    a.run();
    a.hear(C, Body::Acknowledged(1));
    a.run();
    assert!(a.lock(most + 2, 0, &[], &[crate::Object(most + 1)]));
}

/// Those that run become records, too.
#[test]
fn transactions_that_run_are_bounded_with_those_in_flight() {
    let mut a = Bench::member(A, Failpoints(None));
    let most = crate::IN_FLIGHT_MAX as u64;
    (1..=most).for_each(|n| assert!(a.lock(n, 0, &[], &[crate::Object(n)])));
    assert!(!a.lock(most + 1, 0, &[], &[crate::Object(most + 1)]));
    assert!(a.lock(most, 0, &[], &[crate::Object(most + 1)]), "it is counted already");
    a.step(Event::Abort(TransactionId(1)));
    assert!(a.lock(most + 2, 0, &[], &[crate::Object(1)]));
}

/// A caller that waits for a commit waits for an answer.
#[test]
fn a_commit_that_cannot_be_is_refused() {
    let mut a = Bench::member(A, Failpoints(None));
    let transaction = TransactionId(1);
    let refused = [Command::Refused(transaction, Refusal::NotHere)];
    assert_eq!(a.step(Event::Commit(transaction)), refused, "it has no locks");
    assert!(a.lock(1, 0, &[], &[X]));
    a.install(&super::view(2, &[B, C]));
    assert_eq!(a.step(Event::Commit(transaction)), refused, "the copy is void");
}
