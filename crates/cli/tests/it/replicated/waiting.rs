//! What a machine waits for, it says; and it ends when it is told to.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testnet::Certificate;

use super::cluster::{Cluster, Proc};
use super::groups::Group;
use crate::etcd::{Etcd, How};
use crate::eventually;

#[expect(clippy::disallowed_methods, reason = "a test that waits for other processes")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_machine_that_waits_for_etcd_says_so_and_ends_when_it_is_told_to() {
    let cluster = Cluster::new(0, None, 0, "");
    // One that refuses connections, and one that takes them and says nothing.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for (number, etcd) in ["127.0.0.1:1".to_owned(), deaf.local_addr().unwrap().to_string()].iter().enumerate() {
        let line = format!(
            "serve store --log log --etcd http://{etcd} --prefix /cairn/shop --redis 127.0.0.1:0 --listen 127.0.0.1:0 --lease 300 --secret-file secret"
        );
        let path = cluster.path(&format!("waits{number}"));
        let out = std::fs::File::create(&path).unwrap();
        let mut proc = Proc(cluster.command(&line).stderr(out).spawn().unwrap());
        let said = || std::fs::read_to_string(&path).unwrap();
        eventually("it says what it waits for", || said().contains("cairn: waiting for etcd at http://127.0.0.1:"));
        let began = now();
        proc.signal(Signal::TERM);
        assert_eq!(proc.wait(), 0, "{}", said());
        // An attempt has a third of the lease.
        assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
        assert!(!said().contains("error: ") && said().contains("cairn: stopped"), "{}", said());
    }
}

#[test]
fn a_certificate_that_others_do_not_accept_is_named_while_there_is_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = |name: &str| {
        let root = Certificate::root(dir.path(), &format!("{name}-root")).unwrap();
        let own = root.sign(dir.path(), name, "IP:127.0.0.1").unwrap();
        format!("--cert {} --key {} --ca {}", own.chain.display(), own.key.display(), root.chain.display())
    };
    let (ours, other) = (certificate("ours"), certificate("other"));
    let mut group = Group::with(Etcd::start_with(1, How::default()), "");
    for (at, trust) in [&ours, &ours, &other].into_iter().enumerate() {
        group.start_with(at, trust);
    }
    let says = |group: &Group, at: usize, words: &[&str]| {
        let said = group.said(at);
        let waits = |line: &str| {
            line.starts_with("cairn: waiting: there is no log yet") && words.iter().all(|word| line.contains(word))
        };
        said.lines().any(waits)
    };
    eventually("a machine names the one with another certificate", || {
        says(&group, 0, &["m2 does not answer", "certificate"])
    });
    eventually("that one names the others", || {
        says(&group, 2, &["m0 does not answer", "m1 does not answer", "certificate"])
    });
    assert!(!group.said(0).contains("m1 does not answer: TLS"), "{}", group.said(0));
    group.end(2);
    eventually("who is missing is counted", || says(&group, 0, &["2 of 3 machines are announced"]));
    assert_eq!(group.end(0), 0);
}

#[test]
fn what_a_file_says_has_the_bounds_of_the_flags() {
    let dir = tempfile::tempdir().unwrap();
    for (number, line) in
        ["machines = 1", "machines = 99", "lease = 0", "lease = 100000", "threads = 0"].iter().enumerate()
    {
        let path = dir.path().join(format!("{number}.toml"));
        std::fs::write(&path, format!("store = 'store'\n{line}\n")).unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_cairn"))
            .args(["serve", "--config"])
            .arg(&path)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("line 2: ") && said.contains(" is not in "), "{line}: {said}");
    }
}
