//! Each rule is left out in turn, and some schedule finds it.

use super::run_all;
use crate::failpoints::Step;

/// Schedules that are tried.
const SEEDS: std::ops::Range<u64> = 1..6000;

/// What they need comes together too seldom: the test of the rule in `rules` alone shows them.
const SELDOM: [Step; 10] = [
    Step::EraseBehindGap,
    Step::GuardSession,
    Step::ShownToReaders,
    Step::VoidFirst,
    Step::PartAtOneNumber,
    Step::VoidHalf,
    Step::KeepForJoiner,
    Step::LeaseAfterReading,
    Step::ExecuteBeforeReading,
    Step::NoReadsDuringProposal,
];

#[test]
fn a_chain_without_a_rule_is_found() {
    for step in Step::ALL.into_iter().filter(|step| !SELDOM.contains(step)) {
        let (_, violations) = run_all(SEEDS, Some(step));
        match violations.first_key_value() {
            Some((seed, violation)) => println!("{step:?}: seed {seed}: {violation}"),
            None => panic!("no schedule finds a chain without {step:?}"),
        }
    }
}
