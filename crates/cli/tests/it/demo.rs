//! `cairn demo`, small.

use std::fs;

use tempfile::TempDir;

use super::{cairn, temp};

const TINY: &str = "demo --only-kills --dir . --keys 200 --value-bytes 100 --seconds 0.5 --threads 2";

/// On a disk, commits may take longer than a worker lives here.
fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| temp())
}

#[test]
fn nothing_is_lost() {
    let dir = memory();
    let run = cairn(dir.path(), &format!("{TINY} --kills 3 --engine undo,inplace,mvcc --report r.html"));
    assert_eq!(run.code, 0, "{run:?}");
    for words in ["undo", "inplace", "mvcc", "updates", "lost", "SIGKILL", "report: r.html"] {
        assert!(run.out.contains(words), "{words}: {run:?}");
    }
    assert!(run.err.contains("1 of 1 kills") && !run.err.contains("LOST"), "{run:?}");
    let page = fs::read_to_string(dir.path().join("r.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("none was lost"));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["r.html"], "the pools are gone");
}

/// A checker that was never seen to fail proves nothing.
#[test]
fn an_acknowledgement_before_the_commit_is_found() {
    for engine in ["undo", "inplace", "mvcc"] {
        let dir = memory();
        let run = cairn(dir.path(), &format!("{TINY} --kills 20 --engine {engine} --plant-early"));
        assert_eq!(run.code, 1, "{run:?}");
        for words in ["key \"user", "LOST: expected version", "found version", "pools: kept in"] {
            assert!(run.out.contains(words), "{words}: {run:?}");
        }
        let page = fs::read_to_string(dir.path().join("cairn-demo.html")).unwrap();
        assert!(page.contains("LOST: expected version"));
    }
}

/// Without atomicity, half a transaction is found sooner or later; one kill in ten or so leaves one.
#[test]
fn half_a_transaction_is_found() {
    let dir = memory();
    let run = cairn(dir.path(), &format!("{TINY} --kills 300 --engine none"));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("none, kill ") && run.out.contains("pools: kept in"), "{run:?}");
}

#[test]
fn a_trace_with_deletes_and_scans() {
    let dir = memory();
    fs::write(dir.path().join("t"), "put a 30\nget a\ndelete a\nput b 500\ndelete b\ndelete c\nput c 10\nscan a 2\n")
        .unwrap();
    for (skip, structure) in [("scan", "hash map"), ("#", "B+tree")] {
        let text = fs::read_to_string(dir.path().join("t")).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(skip)).collect();
        fs::write(dir.path().join("u"), lines.join("\n")).unwrap();
        let run = cairn(
            dir.path(),
            "demo --dir . --trace u --engine undo,inplace,eaw,mvcc --kills 8 --seconds 0.5 --threads 4",
        );
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.out.contains(structure) && run.out.contains("3 keys"), "{run:?}");
    }
}

#[test]
fn what_cannot_be_shown_is_said() {
    let dir = temp();
    fs::write(dir.path().join("reads"), "get a\n").unwrap();
    fs::write(dir.path().join("bad"), "get a\nfrob b\n").unwrap();
    for (line, what) in [
        ("demo --trace reads", "it changes nothing"),
        ("demo --trace bad", "bad:2:"),
        ("demo --trace gone", "gone: read failed"),
        ("demo --dir gone", "gone: make a directory failed"),
        ("demo --policy undo,undo", "each engine once"),
        ("demo --report gone/r.html", "gone/r.html: create failed"),
        ("demo --keys 1", "fewer than two keys"),
    ] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        assert!(run.failure().0.contains(what), "{line}: {run:?}");
    }
}
