//! Members and etcds on hosts of their own, cut off from each other.

use std::sync::Arc;

use membership::{Error, Members, Why};
use testnet::Net;

use crate::etcd::Etcd;
use crate::{LIMIT, LONG, SHORT, connect_for, eventually, member};

/// Three etcds on the first hosts, two members on the others.
struct Hosts {
    one: Members,
    other: Members,
    etcd: Etcd,
    net: Arc<Net>,
}

const ETCDS: usize = 3;
const ONE: usize = 3;
const OTHER: usize = 4;

fn hosts() -> Option<Hosts> {
    let net = Arc::new(Net::or_say_why(ETCDS + 2)?);
    let etcd = Etcd::start_on(&net, ETCDS);
    // The thread that talks to etcd stays on the host where it was started.
    let on = |host| net.host(host).inside(|| connect_for(&etcd, SHORT)).unwrap();
    Some(Hosts { one: on(ONE), other: on(OTHER), etcd, net })
}

/// The one leads and `cut` cuts it off: only when it knows is the other elected. Healed, both are heard again.
fn is_succeeded_when_it_knows(cut: impl Fn(&Hosts)) {
    let Some(hosts) = hosts() else { return };
    let first = hosts.one.campaign(&member("a"), SHORT, LIMIT).unwrap();
    let announcement = hosts.one.announce(&member("a"), SHORT).unwrap();
    cut(&hosts);
    let second = hosts.other.campaign(&member("b"), LONG, LIMIT).unwrap();
    assert!(!first.is_held());
    assert_eq!(first.lost(), Why::Expired);
    assert!(second.term() > first.term());
    let error = hosts.one.leader().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");

    hosts.net.heal().unwrap();
    eventually("the one hears of the other", || {
        hosts.one.leader().is_ok_and(|leader| leader.is_some_and(|leader| leader.term == second.term()))
    });
    eventually("the one is announced again", || announcement.check().is_ok());
    let term = second.term();
    second.resign().unwrap();
    assert!(hosts.one.campaign(&member("a"), SHORT, LIMIT).unwrap().term() > term);
}

#[test]
fn a_leader_on_an_isolated_host() {
    is_succeeded_when_it_knows(|hosts| hosts.net.isolate(ONE).unwrap());
}

#[test]
fn a_leader_that_hears_and_is_not_heard() {
    is_succeeded_when_it_knows(|hosts| (0..ETCDS).for_each(|etcd| hosts.net.cut_one_way(ONE, etcd).unwrap()));
}

/// The etcd that led goes on answering keep-alives until it notices.
#[test]
fn a_leader_on_the_side_of_the_etcd_that_led() {
    is_succeeded_when_it_knows(|hosts| {
        let led = hosts.etcd.leader();
        for here in [led, ONE] {
            for there in (0..ETCDS).filter(|etcd| *etcd != led).chain([OTHER]) {
                hosts.net.cut(here, there).unwrap();
            }
        }
    });
}

#[test]
fn a_leader_on_the_side_of_most_etcds_stays() {
    let Some(hosts) = hosts() else { return };
    let leadership = hosts.one.campaign(&member("a"), LONG, LIMIT).unwrap();
    hosts.net.isolate(hosts.etcd.leader()).unwrap();
    eventually("etcd answers again", || {
        hosts.one.leader().is_ok_and(|leader| leader.is_some_and(|leader| leader.term == leadership.term()))
    });
    leadership.check().unwrap();
    let error = hosts.other.campaign(&member("b"), LONG, SHORT).unwrap_err();
    assert!(error.is_retry(), "{error}");
    leadership.resign().unwrap();
}
