//! What becomes of a store whose handle is dropped.

use std::path::Path;

use kv::{Options, Result, Store};

fn options() -> Options {
    Options::new().segment_bytes(64 << 10)
}

/// Whether it was closed: then it can be read without a recovery.
fn is_closed(path: &Path) -> bool {
    match options().open_read_only(path) {
        Ok(store) => {
            assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            true
        }
        Err(kv::Error::Pool(pmem::Error::NeedsRecovery { .. })) => false,
        Err(error) => panic!("{error}"),
    }
}

fn made(path: &Path, background: bool) -> Store {
    let store = options().background(background).create(path).unwrap();
    store.put(b"key", b"value").unwrap();
    store
}

#[test]
fn it_is_closed() {
    for background in [true, false] {
        let dir = crate::memory();
        let path = dir.path().join("s");
        drop(made(&path, background));
        assert!(is_closed(&path));
    }
}

#[test]
fn it_is_closed_behind_an_error_that_is_passed_on() {
    fn fails(path: &Path) -> Result<()> {
        let store = made(path, true);
        let tx = store.begin(tx::Isolation::Serializable)?;
        store.put(&[7; 1 << 20], b"too long a key")?;
        tx.commit().map(|_| ())
    }
    let dir = crate::memory();
    let path = dir.path().join("s");
    fails(&path).unwrap_err();
    assert!(is_closed(&path));
}

#[test]
fn it_is_left_as_by_a_crash_when_its_thread_panics_and_when_a_test_says_so() {
    let dir = crate::memory();
    let path = dir.path().join("s");
    let panicked = std::panic::catch_unwind(|| {
        let _store = made(&path, true);
        std::panic::resume_unwind(Box::new("without a message"));
    });
    assert!(panicked.is_err() && !is_closed(&path));
    options().open(&path).unwrap().close().unwrap();
    assert!(is_closed(&path));
    options().open(&path).unwrap().abandon();
    assert!(!is_closed(&path));
}
