//! etcd is killed, stopped, wiped, or never there.

use std::time::Duration;

use membership::{Error, Members, Seen, Why};

use crate::etcd::Etcd;
use crate::{LIMIT, LONG, SHORT, connect, connect_for, eventually, member};

#[test]
fn a_leader_that_etcd_cannot_hear_has_lost_before_another_is_elected() {
    let etcd = Etcd::start(1);
    let (one, other) = (connect(&etcd), connect_for(&etcd, SHORT));
    let first = one.campaign(&member("a"), SHORT, LIMIT).unwrap();
    let mut watch = other.watch_leader();
    assert!(matches!(watch.next(LIMIT), Ok(Seen::Leader(_))));
    etcd.pause(0);
    assert_eq!(first.lost(), Why::Expired);
    let unheard = other.campaign(&member("b"), LONG, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(unheard, Error::Unreachable { .. }) && unheard.is_retry(), "{unheard}");
    assert!(matches!(watch.next(LIMIT), Err(Error::Unreachable { .. })));
    etcd.resume(0);
    let second = other.campaign(&member("b"), LONG, LIMIT).unwrap();
    assert!(second.term() > first.term());
    assert!(!first.is_held());
    eventually(
        "the follower hears again",
        || matches!(watch.next(LIMIT), Ok(Seen::Leader(leader)) if leader.term == second.term()),
    );
}

#[test]
fn leadership_outlasts_a_short_outage() {
    let mut etcd = Etcd::start(1);
    let members = connect(&etcd);
    let leadership = members.campaign(&member("a"), LONG, LIMIT).unwrap();
    let held_until_then = members.announce(&member("a"), LONG).unwrap();
    etcd.kill(0);
    etcd.restart(0);
    assert_eq!(members.leader().unwrap().map(|leader| leader.term), Some(leadership.term()));
    leadership.check().unwrap();
    held_until_then.check().unwrap();
    let term = leadership.term();
    leadership.resign().unwrap();
    assert!(members.campaign(&member("a"), LONG, LIMIT).unwrap().term() > term);
}

#[test]
fn after_a_long_outage_terms_go_on_rising() {
    let mut etcd = Etcd::start(1);
    let members = connect(&etcd);
    let first = members.campaign(&member("a"), SHORT, LIMIT).unwrap();
    etcd.kill(0);
    assert_eq!(first.lost(), Why::Expired);
    etcd.restart(0);
    let second = members.campaign(&member("a"), SHORT, LIMIT).unwrap();
    assert!(second.term() > first.term());
}

#[test]
fn of_three_etcds_one_may_be_killed() {
    let mut etcd = Etcd::start(3);
    let members = connect(&etcd);
    let mut last = 0;
    let kept = members.announce(&member("a"), LONG).unwrap();
    for _ in 0..2 {
        let leadership = members.campaign(&member("a"), LONG, LIMIT).unwrap();
        let leader = etcd.leader();
        etcd.kill(leader);
        assert_eq!(members.leader().unwrap().map(|leader| leader.term), Some(leadership.term()));
        leadership.check().unwrap();
        assert!(leadership.term() > last);
        last = leadership.term();
        leadership.resign().unwrap();
        assert!(members.campaign(&member("b"), LONG, LIMIT).unwrap().term() > last);
        etcd.restart(leader);
    }
    assert_eq!(members.copies().unwrap(), [member("a")]);
    kept.check().unwrap();
}

#[test]
fn of_three_etcds_two_must_be_there() {
    let mut etcd = Etcd::start(3);
    let members = connect(&etcd);
    let first = members.campaign(&member("a"), SHORT, LIMIT).unwrap();
    etcd.kill(0);
    etcd.kill(1);
    assert_eq!(first.lost(), Why::Expired);
    let error = members.campaign(&member("a"), SHORT, Duration::from_millis(500)).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    etcd.restart(0);
    assert!(members.campaign(&member("a"), SHORT, LIMIT).unwrap().term() > first.term());
}

#[test]
fn an_etcd_that_is_not_there_is_an_error_to_retry() {
    let error = Members::connect(&["http://127.0.0.1:1"], "/p", Duration::from_millis(300)).unwrap_err();
    assert!(error.is_retry(), "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    // An address where nothing answers, whatever is sent.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", deaf.local_addr().unwrap());
    let error = Members::connect(&[endpoint], "/p", Duration::from_millis(300)).unwrap_err();
    assert!(error.is_retry(), "{error}");
}

#[test]
fn an_address_that_is_none_is_an_error_of_configuration() {
    let error = Members::connect(&["http://no address"], "/p", Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, Error::Unusable { .. }), "{error}");
}

#[test]
fn etcds_of_two_clusters_are_refused() {
    let (mut one, other) = (Etcd::start(1), Etcd::start(1));
    let endpoints = [one.endpoints(), other.endpoints()].concat();
    let members = Members::connect(&endpoints, "/cairn/test", Duration::from_secs(10)).unwrap();
    let leadership = members.campaign(&member("a"), SHORT, LIMIT).unwrap();
    one.kill(0);
    let error = members.leader().unwrap_err();
    assert!(matches!(error, Error::OtherCluster { .. }), "{error}");
    assert!(!error.is_retry());
    assert!(leadership.lost_within(LIMIT).is_some());
}

#[test]
fn an_etcd_that_has_lost_its_history_is_refused() {
    let mut etcd = Etcd::start(1);
    let members = connect(&etcd);
    let leadership = members.campaign(&member("a"), 6 * SHORT, LIMIT).unwrap();
    etcd.kill(0);
    etcd.wipe(0);
    etcd.restart(0);
    let error = members.leader().unwrap_err();
    assert!(matches!(error, Error::HistoryLost { .. }), "{error}");
    assert_eq!(leadership.lost_within(LIMIT), Some(Why::Gone));
}
