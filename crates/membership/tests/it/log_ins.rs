//! Log-ins that take etcd longer than a request may: by the cost of its hash, thousands of rounds, whatever the machine.

use std::time::{Duration, Instant};

use membership::{Access, Error, Members, Seen, Why};

use crate::access::ask_for_users;
use crate::etcd::{Etcd, How};
use crate::{LIMIT, LONG, SHORT, eventually, member};

/// Of a call; a request has half of it.
const WAIT: Duration = Duration::from_millis(150);
/// No log-in is given up sooner.
const LOG_IN: Duration = Duration::from_secs(5);

/// A log-in takes it twice as long as it usually does: a tenth of a second or more.
fn slow() -> Etcd {
    let etcd = Etcd::start_with(1, How { options: vec!["--bcrypt-cost".into(), "11".into()], tls: None });
    ask_for_users(&etcd);
    etcd
}

fn reached(etcd: &Etcd) -> Members {
    let access = Access::new(&etcd.endpoints()).user("cairn", "secret");
    let members = Members::prepare(access, "/cairn/test", WAIT).unwrap();
    eventually("etcd lets it in", || members.reach(|| false).unwrap_or_else(|error| panic_unless_retry(&error)));
    members
}

fn panic_unless_retry(error: &Error) -> bool {
    assert!(error.is_retry(), "{error}");
    false
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for other processes")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_token_that_has_ended_costs_one_log_in_however_long_it_takes_and_however_many_wait() {
    let mut etcd = slow();
    let members = reached(&etcd);
    let mut watch = members.watch_leader();
    let leadership = members.campaign(&member("a"), LONG, LIMIT).unwrap();
    etcd.kill(0);
    assert!(members.leader().is_err());
    etcd.restart(0);
    // All tokens end by this; while etcd asks for none, no request needs one.
    etcd.ctl_as("root:top", &["auth", "disable"]);
    let (before, began) = (etcd.log_ins(0), now());
    etcd.ctl(&["auth", "enable"]);
    // Each of these asks by itself, all the while, as do those that keep the lease and follow the leader.
    std::thread::scope(|scope| {
        let ask = || eventually("it is answered", || members.copies().is_ok());
        (0..4).for_each(|_| drop(scope.spawn(ask)));
    });
    let most = 1 + began.elapsed().as_secs() / LOG_IN.as_secs();
    let log_ins = etcd.log_ins(0) - before;
    assert!((1..=most).contains(&log_ins), "{log_ins} log-ins, not {most}");
    assert!(leadership.is_held());
    eventually("who follows hears of it", || matches!(watch.next(LIMIT), Ok(Seen::Leader(_))));
}

#[test]
fn who_is_not_answered_in_time_stays_logged_in() {
    let etcd = slow();
    let members = reached(&etcd);
    let before = etcd.log_ins(0);
    for _ in 0..3 {
        etcd.pause(0);
        // Its threads do not stop at one moment.
        eventually("it is not answered", || matches!(members.leader(), Err(Error::Unreachable { .. })));
        etcd.resume(0);
        eventually("it is answered", || members.leader().is_ok());
    }
    assert_eq!(etcd.log_ins(0), before, "no log-in but the first");
}

#[test]
fn a_password_that_is_not_good_is_not_tried_without_pause() {
    let etcd = Etcd::start(1);
    ask_for_users(&etcd);
    let before = etcd.log_ins(0);
    let access = Access::new(&etcd.endpoints()).user("cairn", "wrong");
    let members = Members::prepare(access, "/cairn/test", WAIT).unwrap();
    let began = now();
    let refused = || matches!(members.reach(|| false), Err(Error::Refused { .. }));
    eventually("it is refused", refused);
    eventually("it is tried again", || refused() && etcd.log_ins(0) > before + 5);
    // Half of each pause at least.
    assert!(began.elapsed() > Duration::from_millis(50 + 100 + 200 + 400 + 800), "{:?}", began.elapsed());
}

#[test]
fn who_waits_for_etcd_may_stop() {
    // An address where nothing answers, whatever is sent.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", deaf.local_addr().unwrap());
    let members = Members::prepare(&[endpoint], "/p", LIMIT).unwrap();
    let began = now();
    assert!(!members.reach(|| true).unwrap());
    drop(members);
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
}

#[test]
fn who_loses_a_right_is_told_which_way_the_lease_was_lost() {
    let etcd = Etcd::start(1);
    ask_for_users(&etcd);
    let access = Access::new(&etcd.endpoints()).user("cairn", "secret");
    let members = Members::connect(access, "/cairn/test", LONG).unwrap();
    let leadership = members.campaign(&member("a"), SHORT, LIMIT).unwrap();
    etcd.ctl_as("root:top", &["role", "revoke-permission", "cairn", "/cairn/", "--prefix=true"]);
    assert_eq!(leadership.lost(), Why::Expired);
    let error = leadership.check().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }) && error.to_string().contains("permission denied"), "{error}");
    assert!(leadership.reason().unwrap().contains("permission denied"));
}
