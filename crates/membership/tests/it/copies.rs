//! Where copies are.

use membership::Error;
use rustix::process::Signal;

use crate::etcd::Etcd;
use crate::worker::Worker;
use crate::{LONG, SHORT, connect, eventually, member};

#[test]
fn copies_are_seen_from_their_announcement_to_its_end() {
    let etcd = Etcd::start(1);
    let (one, other) = (connect(&etcd), connect(&etcd));
    assert_eq!(one.copies().unwrap(), []);
    let b = one.announce(&member("b"), LONG).unwrap();
    let a = other.announce(&member("a"), LONG).unwrap();
    assert_eq!(one.copies().unwrap(), [member("a"), member("b")]);
    a.check().unwrap();
    drop(a);
    eventually("a is gone", || one.copies().unwrap() == [member("b")]);

    // What was to be taken back is taken back before the connection is.
    let third = connect(&etcd);
    let c = third.announce(&member("c"), LONG).unwrap();
    drop((c, third));
    assert_eq!(one.copies().unwrap(), [member("b")]);
    drop(b);
}

#[test]
fn a_copy_whose_process_is_killed_is_gone_after_a_while() {
    let etcd = Etcd::start(1);
    let members = connect(&etcd);
    let worker = Worker::start(&etcd, "a", SHORT);
    assert_eq!(members.copies().unwrap(), [member("a")]);
    worker.signal(Signal::KILL);
    eventually("a is gone", || members.copies().unwrap().is_empty());
}

#[test]
fn of_two_announcements_of_one_name_the_later_counts_and_the_earlier_is_told() {
    let etcd = Etcd::start(1);
    let (one, other) = (connect(&etcd), connect(&etcd));
    let mut moved = member("a");
    let earlier = one.announce(&moved, SHORT).unwrap();
    moved.address = "elsewhere:1".to_owned();
    let later = other.announce(&moved, LONG).unwrap();
    eventually("the earlier is told", || matches!(earlier.check(), Err(Error::Replaced { .. })));
    assert_eq!(one.copies().unwrap(), [moved]);
    drop(earlier);
    drop(one);
    assert_eq!(other.copies().unwrap().len(), 1, "its end takes nothing away from the later");
    later.check().unwrap();
}

#[test]
fn an_announcement_is_made_again_after_an_outage() {
    let etcd = Etcd::start(1);
    let members = connect(&etcd);
    let announcement = members.announce(&member("a"), SHORT).unwrap();
    etcd.pause(0);
    eventually("it knows", || matches!(announcement.check(), Err(Error::Unreachable { .. })));
    etcd.resume(0);
    eventually("it is there again", || announcement.check().is_ok() && members.copies().unwrap() == [member("a")]);
}

#[test]
fn a_member_says_what_keeps_it_from_doing_its_part_and_that_nothing_does() {
    let etcd = Etcd::start(1);
    let members = connect(&etcd);
    let full = member("a").in_trouble(Some("full: no space left on /data"));
    let announcement = members.announce(&member("a"), SHORT).unwrap();
    announcement.tell(full.trouble.as_deref()).unwrap();
    let is_told = || members.copies().unwrap().as_slice() == std::slice::from_ref(&full);
    assert!(is_told());
    // It stays through an outage that costs the lease.
    etcd.pause(0);
    eventually("it knows", || matches!(announcement.check(), Err(Error::Unreachable { .. })));
    etcd.resume(0);
    eventually("it is there again", || announcement.check().is_ok() && is_told());
    announcement.tell(None).unwrap();
    assert_eq!(members.copies().unwrap(), [member("a")]);

    // One that was replaced changes nothing of the other.
    let other = connect(&etcd);
    let later = other.announce(&member("a"), LONG).unwrap();
    announcement.tell(Some("full")).unwrap();
    assert_eq!(other.copies().unwrap(), [member("a")]);
    later.check().unwrap();
}

#[test]
fn a_successor_is_named_and_forgotten() {
    let etcd = Etcd::start(1);
    let (one, other) = (connect(&etcd), connect(&etcd));
    assert_eq!(other.successor().unwrap(), None);
    one.expect_successor("b", LONG).unwrap();
    assert_eq!(other.successor().unwrap().as_deref(), Some("b"));
    // Another one was named since it was looked.
    other.expect_any("a").unwrap();
    assert_eq!(one.successor().unwrap().as_deref(), Some("b"));
    other.expect_any("b").unwrap();
    assert_eq!(one.successor().unwrap(), None);
    other.expect_any("b").unwrap();
    let keys = etcd.ctl(&["get", "/cairn/test/", "--prefix", "--keys-only"]);
    assert!(!keys.contains("successor"), "a key without a lease stays: {keys}");
    one.expect_successor("c", SHORT).unwrap();
    eventually("its lease is over", || other.successor().unwrap().is_none());
    assert!(matches!(one.expect_successor("a/b", LONG), Err(Error::Argument { .. })));
}

#[test]
fn what_is_no_announcement_is_refused() {
    let etcd = Etcd::start(1);
    etcd.ctl(&["put", "/cairn/test/copies/x", "something else"]);
    let error = connect(&etcd).copies().unwrap_err();
    assert!(matches!(&error, Error::ForeignValue { key, .. } if key == "/cairn/test/copies/x"), "{error}");
    assert!(!error.is_retry());
}
