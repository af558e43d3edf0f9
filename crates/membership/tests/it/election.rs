//! One leader at a time, which knows when it is no longer one, and terms that rise.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use membership::{Error, Leader, Seen, Why};
use rustix::process::Signal;

use crate::etcd::Etcd;
use crate::worker::Worker;
use crate::{LIMIT, LONG, SHORT, connect, eventually, member};

#[test]
fn one_of_many_leads_at_a_time() {
    let etcd = Etcd::start(1);
    let holders = AtomicUsize::new(0);
    let terms = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let (etcd, holders, terms) = (&etcd, &holders, &terms);
            scope.spawn(move || {
                let members = connect(etcd);
                for _ in 0..5 {
                    let leadership = members.campaign(&member(name), LONG, LIMIT).unwrap();
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                    assert!(leadership.is_held());
                    terms.lock().push(leadership.term());
                    let leader = Leader { member: member(name), term: leadership.term() };
                    assert_eq!(members.leader().unwrap(), Some(leader));
                    holders.fetch_sub(1, Ordering::SeqCst);
                    leadership.resign().unwrap();
                }
            });
        }
    });
    let terms = terms.into_inner();
    assert_eq!(terms.len(), 20);
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    assert_eq!(connect(&etcd).leader().unwrap(), None);
}

#[test]
fn who_is_not_elected_is_told_and_keeps_nobody_out() {
    let etcd = Etcd::start(1);
    let (one, other) = (connect(&etcd), connect(&etcd));
    let first = one.campaign(&member("a"), LONG, LIMIT).unwrap();
    let error = other.campaign(&member("b"), LONG, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, Error::NotElected { taken: true, .. }), "{error}");
    assert!(error.is_retry());
    let term = first.term();
    drop(first);
    let second = other.campaign(&member("b"), LONG, LIMIT).unwrap();
    assert!(second.term() > term);
    assert_eq!(etcd.ctl(&["lease", "list", "-w", "fields"]).matches("\"ID\"").count(), 1, "the second one's lease");
}

#[test]
fn followers_see_leaders_come_and_go() {
    let etcd = Etcd::start(1);
    let members = connect(&etcd);
    let mut watch = connect(&etcd).watch_leader();
    assert_eq!(watch.next(LIMIT).unwrap(), Seen::Vacant);
    assert_eq!(watch.next(Duration::from_millis(10)).unwrap(), Seen::Unchanged);
    for name in ["a", "b"] {
        let leadership = members.campaign(&member(name), LONG, LIMIT).unwrap();
        let leader = Leader { member: member(name), term: leadership.term() };
        assert_eq!(watch.next(LIMIT).unwrap(), Seen::Leader(leader));
        leadership.resign().unwrap();
        assert_eq!(watch.next(LIMIT).unwrap(), Seen::Vacant);
    }
}

#[test]
fn a_leader_that_is_killed_is_succeeded() {
    let etcd = Etcd::start(1);
    let mut first = Worker::start(&etcd, "a", SHORT);
    let earlier = first.elected();
    let mut second = Worker::start(&etcd, "b", SHORT);
    first.signal(Signal::KILL);
    assert!(second.elected() > earlier);
    let leader = connect(&etcd).leader().unwrap().map(|leader| leader.member);
    assert_eq!(leader, Some(member("b")));
}

#[test]
fn a_leader_that_was_stopped_knows_at_its_first_look() {
    let etcd = Etcd::start(1);
    let mut first = Worker::start(&etcd, "a", SHORT);
    let earlier = first.elected();
    first.signal(Signal::STOP);
    let later = connect(&etcd).campaign(&member("b"), LONG, LIMIT).unwrap();
    assert!(later.term() > earlier);
    first.ask();
    first.signal(Signal::CONT);
    assert!(!first.held());
    assert!(later.is_held());
}

#[test]
fn a_leader_is_kept_for_longer_than_its_lease() {
    let etcd = Etcd::start(1);
    let leadership = connect(&etcd).campaign(&member("a"), Duration::from_secs(4), LIMIT).unwrap();
    assert_eq!(leadership.lost_within(Duration::from_secs(6)), None);
    leadership.resign().unwrap();
}

#[test]
fn a_leader_whose_key_an_operator_deletes_has_lost() {
    let etcd = Etcd::start(1);
    let leadership = connect(&etcd).campaign(&member("a"), SHORT, LIMIT).unwrap();
    etcd.ctl(&["del", "/cairn/test/leader"]);
    assert_eq!(leadership.lost(), Why::Gone);
    assert!(!leadership.is_held());
    let error = leadership.resign().unwrap_err();
    assert!(matches!(error, Error::Lost { why: Why::Gone, .. }), "{error}");
}

#[test]
fn a_tenure_outlives_its_leadership_and_says_so() {
    let etcd = Etcd::start(1);
    let leadership = connect(&etcd).campaign(&member("a"), LONG, LIMIT).unwrap();
    let tenure = leadership.tenure();
    assert!(tenure.is_held());
    drop(leadership);
    eventually("the tenure is over", || !tenure.is_held());
    assert_eq!(tenure.lost(), Why::Resigned);
}
