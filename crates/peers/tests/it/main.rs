//! RocksDB with a Cairn log as its write-ahead log: the test of `integrations/rocksdb`, a program in C++ that kills databases.

#![cfg(feature = "rocksdb")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Beside this test: cargo builds all kinds of the C library before it.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn run(place: &Path, kills: &str) {
    let secret = log::fabric::Secret::new(b"what all of them know").unwrap();
    let trust = log::fabric::Options { secret: Some(secret), ..Default::default() };
    let dir = tempfile::tempdir_in(place).unwrap();
    let serve = |name: &str| log::Replica::serve(dir.path().join(name), "127.0.0.1:0", trust.clone()).unwrap();
    let (copy, another) = (serve("copy"), serve("another"));
    let output = Command::new("make")
        .arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/rocksdb"))
        .arg(format!("CAIRN={}", library().display()))
        .arg(format!("OUT={}/rocksdb", env!("CARGO_TARGET_TMPDIR")))
        .arg(format!("DIR={}", place.display()))
        .arg(format!("KILLS={kills}"))
        .arg(format!("COPY={} {}", copy.address().unwrap(), another.address().unwrap()))
        .arg("test")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{said}");
}

/// In memory, then on a disk. CAIRN_KILLS is how often each of seven databases is killed.
#[test]
fn nothing_acknowledged_is_lost_whatever_is_killed() {
    let kills = std::env::var("CAIRN_KILLS").unwrap_or_else(|_| "3".into());
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        run(memory, &kills);
    }
    run(Path::new(env!("CARGO_TARGET_TMPDIR")), &kills);
}
