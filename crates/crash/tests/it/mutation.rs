//! Barrier mutation: every barrier of a correct log is needed, and a redundant one is named.

use crash::{Kind, mutate, run};

use crate::tiny::{Bug, config, found, log};

#[test]
fn every_barrier_of_the_log_is_needed() {
    let report = mutate(log(Bug::None), &config());
    assert!(report.is_minimal(), "{report}");
    // Two pairs of the program, and that with which recovery makes sure of what it reports.
    assert_eq!(report.killed.len(), 6, "{report}");
}

#[test]
fn a_redundant_drain_survives() {
    let report = mutate(log(Bug::ExtraDrain), &config());
    // Two drains in a row: either may go.
    assert_eq!(report.survivors.len(), 2, "{report}");
    assert!(report.survivors.iter().all(|barrier| barrier.kind == Kind::Drain), "{report}");
}

#[test]
fn a_muted_barrier_is_found_like_a_missing_one() {
    let barriers = run(log(Bug::None), &config()).barriers;
    // The first is recovery's, the second that of the slot.
    let flush = barriers.iter().filter(|b| b.kind == Kind::Flush).nth(1).cloned();
    found(&run(log(Bug::None), &config().mute(flush.unwrap())), "torn");
}
