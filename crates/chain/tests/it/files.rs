//! Which file a machine takes part with, and what becomes of starts that end in the middle.

use std::path::Path;
use std::time::{Duration, Instant};

use chain::process::{Failure, Options, Process};
use chain::{Medium, ReplicaId, Sizes};
use membership::Members;
use tx::{Engine, Isolation::Strict, Transaction as _, Typed as _};

use crate::etcd::Etcd;

const SIZES: Sizes = Sizes { capacity: 1 << 20, queue: 1 << 20 };

fn options(etcd: &Etcd, machine: u32) -> Options {
    Options::new(machine, "127.0.0.1:0", &[etcd.endpoint()], "/cairn/files")
        .anyone()
        .first_members(&[1])
        .ttl(Duration::from_secs(1))
        .tick(Duration::from_millis(20))
        .patience(Duration::from_secs(3))
        .sizes(SIZES)
}

fn start(etcd: &Etcd, path: &Path) -> Result<Process, Failure> {
    Process::start(path, &options(etcd, 1))
}

/// Much longer than anything takes.
#[expect(clippy::disallowed_methods, reason = "a test that waits for leases")]
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// It leads, and changes the root; what was there before.
fn change(process: &Process, to: u64) -> u64 {
    eventually(|| {
        let change: tx::Result<u64> = process.node().transact(Strict, |tx| {
            let root = tx.write(tx.root_cell())?;
            Ok(std::mem::replace(&mut root[0], to))
        });
        change.ok()
    })
}

/// The file could not be made: a disk that is full, or a directory that is not there. When there is room the chain begins.
#[test]
fn a_first_start_that_fails_is_begun_again() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let path = dir.path().join("later").join("r");
    for _ in 0..2 {
        assert!(matches!(start(&etcd, &path), Err(Failure::Replica(_))));
    }
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let process = start(&etcd, &path).unwrap();
    assert_eq!(change(&process, 1), 0);
    drop(process);
    assert_eq!(change(&start(&etcd, &path).unwrap(), 2), 1);
}

/// Killed behind each step: the count at etcd, the file, the note of its pool.
#[test]
fn a_first_start_that_ends_between_two_steps_is_begun_again() {
    for (step, made) in [("counted", false), ("made", true)] {
        let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
        let path = dir.path().join("r");
        let nodes = Members::connect(&[etcd.endpoint()], "/cairn/files/nodes", Duration::from_secs(5)).unwrap();
        let files = nodes.register("files-1", "1").unwrap();
        files.swap(0, br#"{"files":1,"pool":null}"#.to_vec()).unwrap();
        if made {
            Medium::create(&path, ReplicaId { machine: 1, incarnation: 0 }, true, SIZES).unwrap();
        }
        let process = start(&etcd, &path).unwrap();
        assert_eq!(change(&process, 1), 0, "{step}");
    }
}
