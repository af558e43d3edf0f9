//! Logs in the format of 2026-11, left without closing them and closed, and the replicas of a replicated one, are used as they are. Names of structs and fields are part of the format: what
//! fails here is a log that can no longer be opened.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such logs by this build, and write `earlier-*.txt` into that folder.

use std::path::{Path, PathBuf};

use log::testing::{Cluster, Home};
use log::{Log, Options, check_replica};
use pmem::{DomainChoice, Pool};

use crate::fixture::earlier;

fn pool() -> pmem::Options {
    pmem::Options::new().domain(DomainChoice::Emulated)
}

fn options() -> Options {
    Options::new().bytes(16 << 10).segment_bytes(2048).idle(None).pool(pool())
}

/// The record with this number.
fn record(n: u64) -> Vec<u8> {
    vec![n as u8; n as usize * 37 % 600]
}

/// It has these records, and no others.
fn check(log: &Log, records: std::ops::Range<u64>) {
    let mut found = log.iter();
    for n in records {
        let here = found.next().unwrap().expect("a record");
        assert!(here.payload == record(n), "record {n}");
    }
    assert!(found.next().unwrap().is_none());
}

fn append(log: &Log, n: u64) {
    assert_eq!(log.append(&record(n)).unwrap().get(), n);
}

// ---- on one machine ----------------------------------------------------------------------------------------------------

/// Records 31 to 60 are left, in a log that has gone around, and has grown.
fn make(path: &Path) -> Log {
    let log = options().create(path).unwrap();
    for n in 1..=60 {
        append(&log, n);
        if n == 30 {
            log.truncate_to(log.forced()).unwrap();
            log.reclaim().unwrap();
            log.grow(4096).unwrap();
        }
    }
    log
}

fn used_as_it_is(path: &Path) {
    for n in 61..65 {
        let (log, found) = options().open(path).unwrap();
        assert_eq!((found.records, found.next.get()), (n - 31, n));
        check(&log, 31..n);
        append(&log, n);
        check(&log, 31..n + 1);
        if n % 2 == 0 { log.close().unwrap() } else { log.abandon() }
    }
}

#[test]
fn a_log_that_was_left_is_recovered_read_and_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let [path] = earlier(dir.path(), ["log-left"], |[path]| {
        let log = make(path);
        let mut record = log.reserve(100).unwrap();
        record.copy(0, &[77; 100]);
        std::mem::forget(record);
        log.abandon();
    });
    used_as_it_is(&path);
}

#[test]
fn a_log_that_was_closed_is_read_and_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let [path] = earlier(dir.path(), ["log-closed"], |[path]| make(path).close().unwrap());
    used_as_it_is(&path);
}

// ---- on several machines -------------------------------------------------------------------------------------------

fn alone(_: usize, act: &mut dyn FnMut()) {
    act();
}

fn homes(pools: &[Pool]) -> Vec<Home> {
    pools.iter().map(|pool| Home { pool: pool.clone(), region: log::NAME }).collect()
}

fn complete(cluster: &Cluster, n: u64) {
    cluster.complete(&record(n)).unwrap();
}

/// Records 1 to 20, by two leaders, and a third replica that was taken in meanwhile.
fn make_replicas(paths: &[PathBuf]) {
    let pools: Vec<Pool> = paths.iter().map(|path| pool().size(64 << 10).create(path).unwrap()).collect();
    let homes = homes(&pools);
    let mut first = Cluster::create(&options(), &homes[..2], 2, alone).unwrap();
    (1..=5).for_each(|n| complete(&first, n));
    first.force().unwrap();
    first.join(&homes[2]).unwrap();
    (6..=10).for_each(|n| complete(&first, n));
    first.force().unwrap();
    drop(first);
    let (mut second, _) = Cluster::open(&options(), &homes, 2, alone).unwrap();
    (11..=20).for_each(|n| complete(&second, n));
    second.force().unwrap();
    pools.iter().for_each(Pool::abandon);
}

#[test]
fn replicas_of_a_log_that_were_left_are_led_again() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let paths = earlier(dir.path(), ["log-copy-one", "log-copy-two", "log-copy-joined"], |paths| make_replicas(paths));
    for n in 21..25 {
        let pools: Vec<Pool> = paths.iter().map(|path| pool().open(path).unwrap()).collect();
        for pool in &pools {
            let replica = check_replica(pool, log::NAME).unwrap().expect("a replica");
            assert_eq!((replica.status.log, replica.status.quorum, replica.records), (7, Some((3, 2)), n - 1));
        }
        let mut homes = homes(&pools);
        homes.rotate_left(n as usize % 3);
        let (mut cluster, found) = Cluster::open(&options(), &homes, n, alone).unwrap();
        assert_eq!(found.records, n - 1);
        check(cluster.log(), 1..n);
        complete(&cluster, n);
        cluster.force().unwrap();
        check(cluster.log(), 1..n + 1);
        pools.iter().for_each(Pool::abandon);
    }
}
