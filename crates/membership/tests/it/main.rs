//! Members of logs, with real etcds that the tests start, stop and kill.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know for tests")]

mod access;
mod copies;
mod election;
mod etcd;
mod log_ins;
mod outages;
mod partitions;
mod register;
mod worker;

use std::time::Duration;

use membership::{Member, Members};

/// Much longer than anything takes.
const LIMIT: Duration = Duration::from_secs(60);
/// Where nothing is to expire.
const LONG: Duration = Duration::from_secs(30);
/// Where something is.
const SHORT: Duration = Duration::from_secs(2);

fn connect(etcd: &etcd::Etcd) -> Members {
    connect_for(etcd, Duration::from_secs(10))
}

fn connect_for(etcd: &etcd::Etcd, timeout: Duration) -> Members {
    Members::connect(&etcd.endpoints(), "/cairn/test", timeout).unwrap()
}

fn member(name: &str) -> Member {
    Member::new(name, format!("{name}.example:7000"))
}

/// Looks again and again until it is so.
#[expect(clippy::disallowed_methods, reason = "a test that waits for other processes")]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + LIMIT;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "not in {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
