//! Records on their way down, and entries on their way out.

use super::{A, B, Bench, C, X, Y, appends, record, retires, rule, says, ships};
use crate::failpoints::Step;
use crate::{Body, Event};

/// Two neighbours that lose power would both lack what the tail has acknowledged.
#[test]
fn a_record_is_persistent_before_it_is_forwarded() {
    rule(Step::PersistBeforeForward, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        let early = ships(&b.hear(A, Body::Records(vec![record(1, X)])), 1);
        let then = ships(&b.barrier(), 1);
        !early && then
    });
}

/// All are persistent when the first is.
#[test]
fn records_that_become_persistent_together_are_all_forwarded() {
    let mut a = Bench::member(A, crate::failpoints::Failpoints(None));
    let most = crate::IN_FLIGHT_MAX as u64;
    for n in 1..=most {
        assert!(a.lock(n, 0, &[], &[crate::Object(n)]));
        a.step(Event::Commit(crate::TransactionId(n)));
    }
    (2..=most).for_each(|n| assert!(!ships(&a.step(Event::Committed(n)), n)));
    let commands = a.step(Event::Committed(1));
    assert!((1..=most).all(|n| ships(&commands, n)), "{commands:?}");
}

/// A medium that hangs gets one request for what has been executed.
#[test]
fn an_idle_replica_asks_for_one_barrier() {
    let mut b = Bench::member(B, crate::failpoints::Failpoints(None));
    b.hear(A, Body::Records(vec![record(1, X)]));
    b.barrier();
    b.execution();
    let asks = |commands: &[crate::Command]| commands.iter().any(|c| matches!(c, crate::Command::Persist(_)));
    assert!(asks(&b.step(Event::Tick)));
    assert!(!asks(&b.step(Event::Tick)));
}

/// A hop costs a barrier, not an execution.
#[test]
fn a_record_is_forwarded_before_it_is_executed() {
    let mut b = Bench::member(B, crate::failpoints::Failpoints(None));
    b.hear(A, Body::Records(vec![record(1, X)]));
    let commands = b.barrier();
    assert!(ships(&commands, 1) && commands.contains(&crate::Command::Execute(1)), "{commands:?}");
}

#[test]
fn a_record_comes_twice_or_too_early() {
    rule(Step::TakeInOrder, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        let gap = appends(&b.hear(A, Body::Records(vec![record(2, Y)])));
        let next = appends(&b.hear(A, Body::Records(vec![record(1, X)])));
        let again = appends(&b.hear(A, Body::Records(vec![record(1, X), record(2, Y)])));
        (gap, next, again) == (0, 1, 1)
    });
}

#[test]
fn a_gap_is_asked_for_once() {
    let mut b = Bench::member(B, crate::failpoints::Failpoints(None));
    assert!(says(&b.hear(A, Body::Records(vec![record(3, Y)])), &Body::Have(0)));
    assert!(!says(&b.hear(A, Body::Records(vec![record(2, Y)])), &Body::Have(0)));
    assert!(says(&b.step(Event::Tick), &Body::Have(0)), "it may be lost");
}

/// A reader at the tail would not see what was acknowledged.
#[test]
fn the_tail_acknowledges_what_it_has_executed() {
    rule(Step::AcknowledgeExecuted, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        c.hear(B, Body::Records(vec![record(1, X)]));
        let early = says(&c.barrier(), &Body::Acknowledged(1));
        let commands = c.execution();
        !early && says(&commands, &Body::Acknowledged(1)) && says(&commands, &Body::CleanUp(1))
    });
}

#[test]
fn an_entry_stays_until_its_effects_are_persistent() {
    rule(Step::RetirePersistent, |failpoints| {
        let mut c = Bench::member(C, failpoints);
        c.hear(B, Body::Records(vec![record(1, X)]));
        c.barrier();
        let early = retires(&c.execution());
        c.step(Event::Tick);
        !early && retires(&c.barrier())
    });
}

/// The one behind may fail before it has the record, and another one come in its place.
#[test]
fn an_entry_stays_until_it_is_cleaned_up() {
    rule(Step::RetireAcknowledged, |failpoints| {
        let mut b = Bench::member(B, failpoints);
        b.hear(A, Body::Records(vec![record(1, X)]));
        let mut early = retires(&b.run());
        b.step(Event::Tick);
        early |= retires(&b.run());
        let sent_again = ships(&b.hear(C, Body::Have(0)), 1);
        !early && sent_again && retires(&b.hear(C, Body::CleanUp(1)))
    });
}

#[test]
fn a_clean_up_goes_on_upstream() {
    let mut b = Bench::member(B, crate::failpoints::Failpoints(None));
    b.hear(A, Body::Records(vec![record(1, X)]));
    b.run();
    assert!(says(&b.hear(C, Body::CleanUp(1)), &Body::CleanUp(1)));
    assert!(!says(&b.hear(C, Body::CleanUp(9)), &Body::CleanUp(9)), "nobody has more than was sent");
}
