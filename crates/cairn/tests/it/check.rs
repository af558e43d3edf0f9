//! `cairn check`.

use std::fs;
use std::path::Path;

use super::{cairn, temp};

fn pool(dir: &Path) -> pmem::Pool {
    let pool = pmem::Options::new().size(1 << 20).create(dir.join("p")).unwrap();
    drop(pool.add_region("counters", 8192).unwrap());
    pool
}

#[test]
fn a_sound_pool() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("p: sound") && run.out.contains("raw \"counters\", readable"), "{run:?}");
    let json = cairn(dir.path(), "check p --json").json();
    assert_eq!(json["sound"], true);
    assert_eq!(json["pool"]["size"], 1 << 20);
    assert_eq!(json["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn checking_changes_nothing() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let before = fs::read(dir.path().join("p")).unwrap();
    cairn(dir.path(), "check p");
    cairn(dir.path(), "info p");
    assert!(before == fs::read(dir.path().join("p")).unwrap());
}

#[test]
fn a_pool_that_was_not_closed_is_recovered_on_demand_only() {
    let dir = temp();
    drop(pool(dir.path()));
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(run.failure().1, "cairn check --recover p");
    assert_eq!(cairn(dir.path(), "check --recover p").code, 0);
    assert_eq!(cairn(dir.path(), "check p").code, 0, "closed cleanly by the recovery");
}

#[test]
fn a_damaged_header_is_found() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let path = dir.path().join("p");
    let mut bytes = fs::read(&path).unwrap();
    // One bit in each of the two copies, behind magic and version.
    for at in [100, bytes_of_slot() + 100] {
        bytes[at] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("damaged: ") && run.out.contains("next: "), "{run:?}");
    let json = cairn(dir.path(), "check p --json");
    assert_eq!(json.code, 1);
    assert_eq!(json.json()["sound"], false);
    assert_eq!(cairn(dir.path(), "info p").code, 1);
}

/// The second copy of the header begins where the magic bytes stand again.
fn bytes_of_slot() -> usize {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let bytes = fs::read(dir.path().join("p")).unwrap();
    let magic = &bytes[..8];
    8 + bytes[8..].windows(8).position(|window| window == magic).unwrap()
}

#[test]
fn a_truncated_pool_is_found() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let file = fs::OpenOptions::new().write(true).open(dir.path().join("p")).unwrap();
    file.set_len(512 << 10).unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("truncated: 524288 bytes of 1048576"), "{run:?}");
}
