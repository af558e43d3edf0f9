//! Values that are replaced by compare-and-swap.

use std::time::Duration;

use membership::Swapped;

use crate::{SHORT, connect, connect_for, eventually, member};

#[test]
fn one_of_two_replaces_a_value() {
    let etcd = crate::etcd::Etcd::start(1);
    let members = connect(&etcd);
    let (a, b) = (members.register("view", "a").unwrap(), members.register("view", "b").unwrap());
    assert_eq!(a.read().unwrap(), None);
    assert_eq!(a.swap(0, b"first".to_vec()).unwrap(), Swapped::Yes);
    assert_eq!(b.swap(0, b"other".to_vec()).unwrap(), Swapped::Changed);
    let held = b.read().unwrap().unwrap();
    assert_eq!(held.value, b"first");
    assert_eq!(b.swap(held.revision, b"second".to_vec()).unwrap(), Swapped::Yes);
    assert_eq!(a.swap(held.revision, b"third".to_vec()).unwrap(), Swapped::Changed);
    assert_eq!(a.read().unwrap().unwrap().value, b"second");

    // A later session of a machine: the earlier one changes nothing, though its value is the newest.
    let again = members.register("view", "a").unwrap();
    let held = a.read().unwrap().unwrap();
    assert_eq!(a.swap(held.revision, b"late".to_vec()).unwrap(), Swapped::Superseded);
    assert_eq!(again.swap(held.revision, b"new".to_vec()).unwrap(), Swapped::Yes);
    // A process that only looks opens no session, and supersedes none.
    let seen = members.held("view").unwrap().unwrap();
    assert_eq!((&seen.value[..], members.held("none").unwrap()), (&b"new"[..], None));
    assert_eq!(again.swap(seen.revision, b"newest".to_vec()).unwrap(), Swapped::Yes);
}

#[test]
fn an_announcement_says_until_when_it_is_there() {
    let mut etcd = crate::etcd::Etcd::start(1);
    let members = connect_for(&etcd, Duration::from_secs(1));
    let announcement = members.announce(&member("a"), SHORT).unwrap();
    let first = announcement.held_until_ns();
    eventually("it is renewed", || announcement.held_until_ns() > first);
    etcd.kill(0);
    eventually("it lapses", || announcement.check().is_err() && announcement.held_until_ns() == 0);
}
