//! Interleaved transactions: what each level forbids does not happen (names from Adya's and Bailis's taxonomies).

use tx::Isolation::{self, Snapshot};
use tx::{Engine, Error, Transaction};

use super::stage::Do::{self, Abort, Begin, Commit, Read, Write};
use super::stage::{Script, play, policy};
use super::subject::{Concurrency, Subject};
use super::support::numbers;
use crate::check::Check;

/// A name, and which transaction does what, step by step as the literature writes it: `w1x` is a write of transaction 1 to x.
type Named = (&'static str, &'static str);

/// No transaction may see an anomaly of its level; at least one gets on.
const ANOMALIES: &[Named] = &[
    ("g0", "b0 b1 w0x w1x w1y w0y c0 c1"),
    ("g1a", "b0 b1 w0x r1x a0 r1x c1"),
    ("g1a_overwritten", "b0 b1 w0x w1x a0 c1"),
    ("g1b", "b0 b1 w0x r1x w0x c0 c1"),
    ("g1c", "b0 b1 w0x w1y r0y r1x c0 c1"),
    ("observed_transaction_vanishes", "b0 b1 b2 w0x w0y w1x c0 r2x w1y r2y c1 r2x c2"),
    ("lost_update", "b0 b1 r0x r1x w0x w1x c0 c1"),
    ("lost_update_later", "b0 r0x b1 w1x c1 w0x c0"),
    ("g_single", "b0 r0x b1 w1x w1y c1 r0y c0"),
    ("g_single_writing", "b0 r0x b1 w1x w1y c1 r0y w0z c0"),
    ("fuzzy_read", "b0 r0x b1 w1x c1 r0x c0"),
    ("long_fork", "b2 r2z b0 w0x c0 b3 r3x b1 w1y c1 r2y r2x r3y c2 c3"),
    ("write_skew", "b0 b1 r0x r0y r1x r1y w0x w1y c0 c1"),
    ("write_skew_of_three", "b0 b1 b2 r0x r1y r2z w0y w1z w2x c0 c1 c2"),
    ("read_only_anomaly", "b1 r1x r1y b0 w0y c0 b2 r2x r2y c2 w1x c1"),
    ("stale_read", "b0 w0x c0 b1 r1x c1"),
    ("stale_read_by_hearsay", "b0 w0x c0 b1 r1x w1y c1 b2 r2y r2x c2"),
];

/// Every commit succeeds: no engine has a reason to refuse.
const HARMLESS: &[Named] = &[
    ("one_after_the_other", "b0 w0x w0y c0 b1 r1x w1y c1 b2 w2x a2 b3 r3x r3y c3"),
    ("different_objects", "b0 b1 w0x w1y w0x r1y c0 c1"),
    ("readers_share", "b0 b1 r0x r1x r0y r1y c0 c1"),
];

/// Every commit succeeds where there are versions.
const READERS_AND_WRITERS: &[Named] = &[
    ("readers_do_not_stop_writers", "b0 r0x b1 w1x c1 r0x r0y c0"),
    ("writers_do_not_stop_readers", "b0 w0x b1 r1x c0 r1y c1"),
];

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    let check = |name, run| Check::new(group, name, run).rolls_back();
    let mut checks = Vec::new();
    for &(name, text) in ANOMALIES {
        checks.push(check(name, Box::new(move |s: &S| perform(s, &script(text), somebody))));
    }
    for &(name, text) in HARMLESS {
        checks.push(check(name, Box::new(move |s: &S| perform(s, &script(text), everybody))));
    }
    for &(name, text) in READERS_AND_WRITERS {
        let run = move |s: &S| {
            if s.concurrency() == Concurrency::Versions && s.levels().contains(&Snapshot) {
                perform_at(s, &s.fresh(), Snapshot, &script(text), everybody);
            }
        };
        checks.push(check(name, Box::new(run)));
    }
    checks.push(Check::new(group, "levels", Box::new(levels)));
    checks
}

fn script(text: &str) -> Vec<(usize, Do)> {
    let cell = |name: u8| usize::from(name - b'x');
    let step = |word: &str| {
        let (actor, step) = match *word.as_bytes() {
            [b'b', actor] => (actor, Begin),
            [b'r', actor, name] => (actor, Read(cell(name))),
            [b'w', actor, name] => (actor, Write(cell(name))),
            [b'c', actor] => (actor, Commit),
            [b'a', actor] => (actor, Abort),
            _ => panic!("a script says {word}"),
        };
        (usize::from(actor - b'0'), step)
    };
    text.split(' ').map(step).collect()
}

/// A transaction that is not told to abort may still be refused, if another one is.
fn somebody(committed: usize, script: &Script) -> bool {
    committed > 0 || script.iter().any(|(_, step)| matches!(step, Abort))
}

fn everybody(committed: usize, script: &Script) -> bool {
    committed == script.iter().filter(|(_, step)| matches!(step, Commit)).count()
}

fn perform<S: Subject>(subject: &S, script: &Script, enough: impl Fn(usize, &Script) -> bool) {
    let engine = subject.fresh();
    for &level in subject.levels() {
        perform_at(subject, &engine, level, script, &enough);
    }
}

fn perform_at<S: Subject>(
    subject: &S,
    engine: &S::Engine,
    level: Isolation,
    script: &Script,
    enough: impl Fn(usize, &Script) -> bool,
) {
    let cells = numbers(engine, 3);
    let history = play(engine, level, &cells, script, policy(subject.waits()));
    if let Err(anomaly) = history.check(subject.kept(level)) {
        panic!("at {level}: {anomaly}\n{history:#?}");
    }
    let committed = history.transactions.iter().filter(|t| t.committed).count() - 1; // not the last look
    assert!(enough(committed, script), "at {level}: only {committed} committed\n{history:#?}");
}

/// Each level that the engine has is served by itself or a stronger one; others are refused.
fn levels<S: Subject>(subject: &S) {
    let engine = subject.fresh();
    assert_eq!(subject.levels().iter().max(), Some(&engine.strongest()), "the strongest level is one of the levels");
    for level in Isolation::ALL {
        match engine.begin(level) {
            Ok(tx) => {
                let at = tx.isolation();
                assert!(subject.levels().contains(&level), "begins at {level}, which it does not have");
                assert!(at >= level && at <= engine.strongest(), "asked for {level}, runs at {at}");
            }
            Err(e) => {
                assert!(!subject.levels().contains(&level), "{level}: {e}");
                assert!(matches!(e, Error::Isolation { .. }), "should have named the levels: {e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_in_a_script_begins_once_and_ends_once() {
        for (name, text) in [ANOMALIES, HARMLESS, READERS_AND_WRITERS].concat() {
            let script = script(text);
            for actor in 0..=script.iter().map(|(actor, _)| *actor).max().unwrap() {
                let steps: Vec<_> = script.iter().filter(|(a, _)| *a == actor).map(|(_, step)| *step).collect();
                assert!(matches!(steps[..], [Begin, .., Commit | Abort]), "{name}: {steps:?}");
                let inside = &steps[1..steps.len() - 1];
                assert!(inside.iter().all(|step| matches!(step, Read(0..3) | Write(0..3))), "{name}: {steps:?}");
            }
        }
    }

    #[test]
    fn a_script_says_who_does_what() {
        let said = script("b0 b1 r0x r1z w0y c0 a1").into_iter().map(|step| format!("{step:?}")).collect::<Vec<_>>();
        let meant =
            ["(0, Begin)", "(1, Begin)", "(0, Read(0))", "(1, Read(2))", "(0, Write(1))", "(0, Commit)", "(1, Abort)"];
        assert_eq!(said, meant);
    }
}
