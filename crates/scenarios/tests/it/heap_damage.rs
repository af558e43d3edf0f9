//! Damaged heaps: see `scenarios::heap::damage` for what is claimed of them.

use std::collections::BTreeMap;

use heap::{Options, Policy, Step};
use scenarios::heap::damage::{Claim, Outcome, Reference};
use scenarios::heap::{Cells, Edit};

const HEAPS: u64 = 12_000;

/// Blocks and objects go from slot to slot, so that a record that came up again would do harm.
fn transactions(policy: Policy) -> Vec<(usize, Vec<Edit>)> {
    let w = Edit::whole;
    let many = vec![
        (0, vec![Edit::Node(0, 116), w(1)]),
        (1, vec![Edit::Node(1, 116), w(2)]),
        (0, vec![Edit::Unlink(0), w(3)]),
        (0, vec![w(4)]),
        (1, vec![w(1), Edit::Node(3, 700)]),
        (2, vec![Edit::Node(0, 116), w(3)]),
        (1, vec![Edit::Unlink(1)]),
        (2, vec![w(4), Edit::Node(2, 116)]),
        (0, vec![w(1), w(2)]),
        (1, vec![w(3)]),
        (0, vec![w(1)]),
        (2, vec![Edit::Node(4, 116)]),
        // The block goes from slot 0 to slot 1, while what was written with its release stays as it was.
        (0, vec![Edit::Unlink(4)]),
        (0, vec![w(1)]),
        (0, vec![w(2)]),
        (0, vec![w(1)]),
        (1, vec![Edit::Node(1, 116)]),
    ];
    let long =
        if policy == Policy::Undo { vec![] } else { vec![(1, vec![Edit::Comb(5)]), (0, vec![w(2), Edit::Unlink(0)])] };
    many.into_iter().chain(long).collect()
}

fn references(adjust: fn(Options) -> Options) -> Vec<Reference> {
    let mut all = Vec::new();
    for policy in [Policy::InPlace, Policy::InPlacePartial, Policy::Undo, Policy::Eaw] {
        let transactions = transactions(policy);
        let n = transactions.len();
        // Left at different moments: what is unretired differs.
        for (len, close) in [(n, false), (n - 1, false), (n - 3, false), (6, false), (n, true)] {
            let cells = Cells::script(policy, Vec::new()).adjust(adjust);
            all.push(Reference::new(cells, &transactions[..len], close).expect("built"));
        }
    }
    all
}

#[test]
fn the_formulas_of_a_heaps_checksums_are_the_right_ones() {
    for reference in references(|o| o) {
        assert_eq!(reference.rechecksummed(), [0; 0]);
    }
}

type Counts = BTreeMap<(bool, Outcome), u64>;

/// What came of damaged heaps, and what should not have.
fn judge(references: &[Reference], numbers: impl Iterator<Item = u64>) -> (Counts, Vec<String>) {
    let (mut counts, mut failures) = (Counts::new(), Vec::new());
    for n in numbers {
        let which = (n / 4) as usize % references.len();
        let (bytes, claim) = references[which].case(n);
        match references[which].judge(&bytes, claim) {
            Ok(outcome) => *counts.entry((claim != Claim::Sane, outcome)).or_default() += 1,
            Err(why) => failures.push(format!("{n} (reference {which}, {claim:?}): {why}")),
        }
    }
    (counts, failures)
}

#[test]
fn damaged_heaps() {
    let references = references(|o| o);
    let references = &references;
    let half = |half: u64| judge(references, (0..HEAPS).filter(move |n| n / 2 % 2 == half));
    let halves =
        std::thread::scope(|scope| [0, 1].map(|n| scope.spawn(move || half(n))).map(|t| t.join().expect("no panic")));
    let (mut counts, mut failures) = (Counts::new(), Vec::new());
    for (some, wrong) in halves {
        some.into_iter().for_each(|(key, n)| *counts.entry(key).or_default() += n);
        failures.extend(wrong);
    }
    println!("{counts:?}");
    assert!(failures.is_empty(), "{} failures: {:#?}", failures.len(), &failures[..failures.len().min(20)]);
    for outcome in [Outcome::Equal, Outcome::InDoubt, Outcome::Refused] {
        assert!(counts.contains_key(&(true, outcome)), "never {outcome:?}");
    }
    assert!(counts.contains_key(&(false, Outcome::Opened)));
}

/// A record that alone said that others are retired goes bad: they come up again, over blocks that have new owners by now.
#[test]
fn retirement_in_one_place_is_not_enough() {
    let all = references(|o| o.leave_out(Step::RetireTwice));
    // Five of each policy, those with eaw last.
    for some in [&all[..15], &all[15..]] {
        let found = (0..HEAPS).step_by(2).map(|n| judge(some, std::iter::once(n)).1).find(|f| !f.is_empty());
        println!("{:?}", found.expect("left out, and nobody noticed"));
    }
}
