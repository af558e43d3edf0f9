//! Interleaved transactions: what each level forbids does not happen (names from Adya's and Bailis's taxonomies).

use crate::Isolation::{self, Snapshot};
use crate::conformance::stage::Do::{self, Abort, Begin, Commit, Read, Write};
use crate::conformance::stage::{Script, patience, play};
use crate::conformance::support::numbers;
use crate::conformance::{Check, Concurrency, Subject};
use crate::{Engine, Error, Transaction};

const X: usize = 0;
const Y: usize = 1;
const Z: usize = 2;

/// A name, and who does what.
type Named = (&'static str, &'static Script);

/// Nobody may see an anomaly of its level; somebody gets on.
const ANOMALIES: &[Named] = &[
    (
        "g0",
        &[(0, Begin), (1, Begin), (0, Write(X)), (1, Write(X)), (1, Write(Y)), (0, Write(Y)), (0, Commit), (1, Commit)],
    ),
    ("g1a", &[(0, Begin), (1, Begin), (0, Write(X)), (1, Read(X)), (0, Abort), (1, Read(X)), (1, Commit)]),
    ("g1a_overwritten", &[(0, Begin), (1, Begin), (0, Write(X)), (1, Write(X)), (0, Abort), (1, Commit)]),
    ("g1b", &[(0, Begin), (1, Begin), (0, Write(X)), (1, Read(X)), (0, Write(X)), (0, Commit), (1, Commit)]),
    (
        "g1c",
        &[(0, Begin), (1, Begin), (0, Write(X)), (1, Write(Y)), (0, Read(Y)), (1, Read(X)), (0, Commit), (1, Commit)],
    ),
    (
        "observed_transaction_vanishes",
        &[
            (0, Begin),
            (1, Begin),
            (2, Begin),
            (0, Write(X)),
            (0, Write(Y)),
            (1, Write(X)),
            (0, Commit),
            (2, Read(X)),
            (1, Write(Y)),
            (2, Read(Y)),
            (1, Commit),
            (2, Read(X)),
            (2, Commit),
        ],
    ),
    (
        "lost_update",
        &[(0, Begin), (1, Begin), (0, Read(X)), (1, Read(X)), (0, Write(X)), (1, Write(X)), (0, Commit), (1, Commit)],
    ),
    (
        "lost_update_later",
        &[(0, Begin), (0, Read(X)), (1, Begin), (1, Write(X)), (1, Commit), (0, Write(X)), (0, Commit)],
    ),
    (
        "g_single",
        &[(0, Begin), (0, Read(X)), (1, Begin), (1, Write(X)), (1, Write(Y)), (1, Commit), (0, Read(Y)), (0, Commit)],
    ),
    (
        "g_single_writing",
        &[
            (0, Begin),
            (0, Read(X)),
            (1, Begin),
            (1, Write(X)),
            (1, Write(Y)),
            (1, Commit),
            (0, Read(Y)),
            (0, Write(Z)),
            (0, Commit),
        ],
    ),
    ("fuzzy_read", &[(0, Begin), (0, Read(X)), (1, Begin), (1, Write(X)), (1, Commit), (0, Read(X)), (0, Commit)]),
    (
        "long_fork",
        &[
            (2, Begin),
            (2, Read(Z)),
            (0, Begin),
            (0, Write(X)),
            (0, Commit),
            (3, Begin),
            (3, Read(X)),
            (1, Begin),
            (1, Write(Y)),
            (1, Commit),
            (2, Read(Y)),
            (2, Read(X)),
            (3, Read(Y)),
            (2, Commit),
            (3, Commit),
        ],
    ),
    (
        "write_skew",
        &[
            (0, Begin),
            (1, Begin),
            (0, Read(X)),
            (0, Read(Y)),
            (1, Read(X)),
            (1, Read(Y)),
            (0, Write(X)),
            (1, Write(Y)),
            (0, Commit),
            (1, Commit),
        ],
    ),
    (
        "write_skew_of_three",
        &[
            (0, Begin),
            (1, Begin),
            (2, Begin),
            (0, Read(X)),
            (1, Read(Y)),
            (2, Read(Z)),
            (0, Write(Y)),
            (1, Write(Z)),
            (2, Write(X)),
            (0, Commit),
            (1, Commit),
            (2, Commit),
        ],
    ),
    (
        "read_only_anomaly",
        &[
            (1, Begin),
            (1, Read(X)),
            (1, Read(Y)),
            (0, Begin),
            (0, Write(Y)),
            (0, Commit),
            (2, Begin),
            (2, Read(X)),
            (2, Read(Y)),
            (2, Commit),
            (1, Write(X)),
            (1, Commit),
        ],
    ),
    ("stale_read", &[(0, Begin), (0, Write(X)), (0, Commit), (1, Begin), (1, Read(X)), (1, Commit)]),
    (
        "stale_read_by_hearsay",
        &[
            (0, Begin),
            (0, Write(X)),
            (0, Commit),
            (1, Begin),
            (1, Read(X)),
            (1, Write(Y)),
            (1, Commit),
            (2, Begin),
            (2, Read(Y)),
            (2, Read(X)),
            (2, Commit),
        ],
    ),
];

/// Everybody commits: no engine has a reason to refuse.
const HARMLESS: &[Named] = &[
    (
        "one_after_the_other",
        &[
            (0, Begin),
            (0, Write(X)),
            (0, Write(Y)),
            (0, Commit),
            (1, Begin),
            (1, Read(X)),
            (1, Write(Y)),
            (1, Commit),
            (2, Begin),
            (2, Write(X)),
            (2, Abort),
            (3, Begin),
            (3, Read(X)),
            (3, Read(Y)),
            (3, Commit),
        ],
    ),
    (
        "different_objects",
        &[(0, Begin), (1, Begin), (0, Write(X)), (1, Write(Y)), (0, Write(X)), (1, Read(Y)), (0, Commit), (1, Commit)],
    ),
    (
        "readers_share",
        &[(0, Begin), (1, Begin), (0, Read(X)), (1, Read(X)), (0, Read(Y)), (1, Read(Y)), (0, Commit), (1, Commit)],
    ),
];

/// Everybody commits where there are versions.
const READERS_AND_WRITERS: &[Named] = &[
    (
        "readers_do_not_stop_writers",
        &[(0, Begin), (0, Read(X)), (1, Begin), (1, Write(X)), (1, Commit), (0, Read(X)), (0, Read(Y)), (0, Commit)],
    ),
    (
        "writers_do_not_stop_readers",
        &[(0, Begin), (0, Write(X)), (1, Begin), (1, Read(X)), (0, Commit), (1, Read(Y)), (1, Commit)],
    ),
];

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    let check = |name, run| Check::new(group, name, run).rolls_back();
    let mut checks = Vec::new();
    for &(name, script) in ANOMALIES {
        checks.push(check(name, Box::new(move |s: &S| perform(s, script, somebody))));
    }
    for &(name, script) in HARMLESS {
        let all = move |committed, script: &Script| committed == commits(script);
        checks.push(check(name, Box::new(move |s: &S| perform(s, script, all))));
    }
    for &(name, script) in READERS_AND_WRITERS {
        let run = move |s: &S| {
            if s.concurrency() == Concurrency::Versions && s.levels().contains(&Snapshot) {
                perform_at(s, &s.fresh(), Snapshot, script, |committed, script| committed == commits(script));
            }
        };
        checks.push(check(name, Box::new(run)));
    }
    checks.push(Check::new(group, "levels", Box::new(levels)));
    checks
}

/// Who is not told to abort may still be refused, if another one is.
fn somebody(committed: usize, script: &Script) -> bool {
    committed > 0 || script.iter().any(|(_, step)| matches!(step, Abort))
}

fn commits(script: &Script) -> usize {
    script.iter().filter(|(_, step)| matches!(step, Do::Commit)).count()
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
    let history = play(engine, level, &cells, script, patience(subject.waits()));
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
