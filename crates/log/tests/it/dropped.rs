//! What becomes of a log whose handle is dropped.

use std::path::Path;

use log::{Log, Options};

fn made(path: &Path) -> Log {
    let log = Options::new().bytes(1 << 16).create(path).unwrap();
    log.append(b"record").unwrap();
    log
}

/// Whether it was closed; it is, from now on.
fn was_closed(path: &Path) -> bool {
    let (log, found) = Options::new().open(path).unwrap();
    assert_eq!(found.records, 1);
    log.close().unwrap();
    found.was_closed
}

#[test]
fn it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    drop(made(&path));
    assert!(was_closed(&path));
    let (log, _) = Options::new().open(&path).unwrap();
    log.abandon();
    assert!(!was_closed(&path));
}

#[test]
fn it_is_left_as_by_a_crash_when_its_thread_panics_or_a_reservation_was_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let panicked = std::panic::catch_unwind(|| {
        let _log = made(&path);
        std::panic::resume_unwind(Box::new("without a message"));
    });
    assert!(panicked.is_err() && !was_closed(&path));
    let (log, _) = Options::new().open(&path).unwrap();
    std::mem::forget(log.reserve(5).unwrap());
    drop(log);
    assert!(!was_closed(&path));
}
