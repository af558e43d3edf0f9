//! The demonstration, and what it must find.

use crate::{cairn, temp};

const DEMO: &str = "chain demo --ttl 1 --seconds 2 --clients 3";

#[test]
fn the_demonstration_loses_nothing() {
    let dir = temp();
    let run = cairn(dir.path(), &format!("{DEMO} --kills 4"));
    assert_eq!(run.code, 0, "{run:?}");
    for words in [
        "head           1 ",
        "middle         1 ",
        "tail           1 ",
        "all three      1 ",
        "lost: 0; each of 3 copies has what was acknowledged",
    ] {
        assert!(run.out.contains(words), "{words}: {run:?}");
    }
    assert!(run.err.contains("kill 4 of 4: all three"), "{run:?}");
}

/// A checker that was never seen to fail proves nothing.
#[test]
fn a_reply_before_the_commit_is_found() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let run = cairn(dir.path(), &format!("{DEMO} --kills 5 --plant-early --dir {}", dir.path().display()));
    assert_eq!(run.code, 1, "{run:?}");
    // Which of the two depends on whether the request that the kill came into is one that is asked twice.
    let is_found = run.out.contains("LOST: machine ") || run.out.contains("TWICE: request ");
    assert!(is_found && run.out.contains("files: kept in "), "{run:?}");
}

#[test]
fn a_demonstration_that_cannot_be_is_told() {
    let dir = temp();
    for (line, what) in [
        ("chain demo --dir gone", "make a directory in gone"),
        ("chain demo --seconds 0", "invalid value"),
        ("chain demo --clients 0", "invalid value"),
    ] {
        let run = cairn(dir.path(), line);
        assert!(run.code == 2 && run.err.contains(what), "{line}: {run:?}");
    }
}
