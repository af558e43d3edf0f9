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
        .timeout(Duration::from_secs(3))
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

/// A copy that was made before the last start lacks what that one did, whether the machine is still a member or not.
#[test]
fn an_older_copy_of_the_file_is_refused() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (path, old) = (dir.path().join("r"), dir.path().join("old"));
    assert_eq!(change(&start(&etcd, &path).unwrap(), 1), 0);
    std::fs::copy(&path, &old).unwrap();
    assert_eq!(change(&start(&etcd, &path).unwrap(), 2), 1);
    let newest = dir.path().join("newest");
    std::fs::rename(&path, &newest).unwrap();
    std::fs::copy(&old, &path).unwrap();
    for _ in 0..2 {
        let refused = start(&etcd, &path).unwrap_err();
        assert!(matches!(refused, Failure::OldCopy { found: 1, known: 2, .. }), "{refused}");
    }
    std::fs::rename(&newest, &path).unwrap();
    assert_eq!(change(&start(&etcd, &path).unwrap(), 3), 2);
}

/// What a file says of a start that was killed before it was noted at etcd.
fn killed_start(path: &Path, bits: u64) {
    let (mut medium, _) = Medium::open(path).unwrap();
    let number = medium.starts().unwrap() >> 32;
    medium.set_starts((number + 1) << 32 | bits).unwrap();
}

/// It is the newest all the same, however often that happens.
#[test]
fn a_start_that_ended_before_it_was_noted_is_no_older_copy() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let path = dir.path().join("r");
    assert_eq!(change(&start(&etcd, &path).unwrap(), 1), 0);
    for before in 1..4 {
        killed_start(&path, before);
        assert_eq!(change(&start(&etcd, &path).unwrap(), before + 1), before);
    }
}

/// A file and its copy have both been started, one behind the other, and the number of one of the two starts was noted.
#[test]
fn of_a_file_and_its_copy_the_one_that_did_something_is_the_newest() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (path, copy) = (dir.path().join("r"), dir.path().join("copy"));
    assert_eq!(change(&start(&etcd, &path).unwrap(), 1), 0);
    std::fs::copy(&path, &copy).unwrap();
    killed_start(&path, 7);
    assert_eq!(change(&start(&etcd, &copy).unwrap(), 2), 1);
    let refused = start(&etcd, &path).unwrap_err();
    assert!(matches!(refused, Failure::OldCopy { found: 2, known: 2, .. }), "{refused}");
    // Whatever comes between: it has no number that the other one has not.
    assert_eq!(change(&start(&etcd, &copy).unwrap(), 3), 2);
    assert!(matches!(start(&etcd, &path), Err(Failure::OldCopy { .. })));
}

/// A copy of the file of a process that runs, and a start that fails for another reason, cost the file nothing.
#[test]
fn a_start_that_cannot_be_counts_for_nothing() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (path, copy) = (dir.path().join("r"), dir.path().join("copy"));
    let process = start(&etcd, &path).unwrap();
    assert_eq!(change(&process, 1), 0);
    std::fs::copy(&path, &copy).unwrap();
    assert!(matches!(start(&etcd, &copy), Err(Failure::Runs { machine: 1, .. })));
    process.check().unwrap();
    drop(process);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let elsewhere = Options::new(1, &address, &[etcd.endpoint()], "/cairn/files").anyone().sizes(SIZES);
    for file in [&copy, &path] {
        let refused = Process::start(file, &elsewhere).unwrap_err();
        assert!(matches!(refused, Failure::Network(_)), "{refused}");
    }
    assert_eq!(change(&start(&etcd, &path).unwrap(), 2), 1);
}

/// The first file of a machine has the same incarnation in all chains. Here one was counted, and not made.
#[test]
fn a_file_of_another_chain_is_not_taken_for_one_that_was_not_noted() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let path = dir.path().join("r");
    assert_eq!(change(&start(&etcd, &path).unwrap(), 1), 0);
    let nodes = Members::connect(&[etcd.endpoint()], "/cairn/other/nodes", Duration::from_secs(5)).unwrap();
    nodes.register("files-1", "1").unwrap().swap(0, br#"{"files":1,"pool":null}"#.to_vec()).unwrap();
    let other = Options::new(1, "127.0.0.1:0", &[etcd.endpoint()], "/cairn/other").anyone().first_members(&[1]);
    let refused = Process::start(&path, &other.sizes(SIZES)).unwrap_err();
    assert!(matches!(refused, Failure::OtherChain { .. }), "{refused}");
    assert_eq!(change(&start(&etcd, &path).unwrap(), 2), 1);
}

/// A path that is wrong, or a directory that is not mounted, does not cost the file that is right.
#[test]
fn a_member_makes_no_new_file_by_mistake() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (path, wrong) = (dir.path().join("r"), dir.path().join("wrong"));
    let process = start(&etcd, &path).unwrap();
    assert_eq!(change(&process, 1), 0);
    // While one of the machine runs, and when none does.
    assert!(matches!(start(&etcd, &wrong), Err(Failure::NoFile { machine: 1, .. })));
    let told = Process::start(&wrong, &options(&etcd, 1).new_file());
    assert!(matches!(told, Err(Failure::LastFile { machine: 1, .. })));
    assert_eq!(change(&process, 2), 1);
    process.check().unwrap();
    drop(process);
    assert!(matches!(start(&etcd, &wrong), Err(Failure::NoFile { machine: 1, .. })));
    assert!(!wrong.exists());
    assert_eq!(change(&start(&etcd, &path).unwrap(), 3), 2);
}

/// A machine that is told that the file is lost makes a new one; the one before counts no more.
#[test]
fn a_new_file_is_made_when_it_is_said() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (path, new) = (dir.path().join("r"), dir.path().join("new"));
    let options = options(&etcd, 1).first_members(&[1, 2]);
    let process = Process::start(&path, &options).unwrap();
    let told = Process::start(&new, &options.clone().new_file());
    assert!(matches!(told, Err(Failure::Runs { machine: 1, .. })) && !new.exists());
    drop(process);
    drop(Process::start(&new, &options.clone().new_file()).unwrap());
    assert!(matches!(Process::start(&path, &options), Err(Failure::OtherChain { .. })));
}

/// What it has acknowledged is nowhere else.
#[test]
fn the_file_of_the_only_member_is_not_given_up() {
    let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (path, new) = (dir.path().join("r"), dir.path().join("new"));
    assert_eq!(change(&start(&etcd, &path).unwrap(), 1), 0);
    let refused = Process::start(&new, &options(&etcd, 1).new_file()).unwrap_err();
    assert!(matches!(refused, Failure::LastFile { machine: 1, .. }) && !new.exists(), "{refused}");
    assert_eq!(change(&start(&etcd, &path).unwrap(), 2), 1);
}
