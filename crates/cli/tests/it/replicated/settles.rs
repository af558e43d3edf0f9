//! Connections of a group that settle for less than its write quorum.

use rustix::process::Signal;

use super::groups::{Group, MACHINES};
use crate::witness::Connection;

/// Rounds in which the leader may lose its machines before it has answered, on one that is busy with other things: they are given up after two seconds.
const ROUNDS: usize = 10;

/// While no other machine goes on, this one answers who settles for it; who does not waits; and nobody is shown what is not committed.
#[test]
fn who_settles_for_the_leader_waits_for_no_other_machine() {
    let mut group = Group::new();
    (0..MACHINES).for_each(|at| group.start_with(at, "--least-durability bounded"));
    let all: Vec<usize> = (0..MACHINES).collect();
    for level in ["local", "bounded"] {
        let is_answered = (0..ROUNDS).any(|round| {
            let leader = group.leader(&all);
            group.await_all(leader);
            let connect = || Connection::to(&format!("127.0.0.1:{}", group.ports[leader].0)).unwrap();
            let (mut settles, mut other) = (connect(), connect());
            let chosen = settles.ask(&format!("CLIENT DURABILITY {level}"));
            if !chosen.is_ok_and(|answer| answer == "+OK") {
                return false;
            }
            let others = || (0..MACHINES).filter(|at| *at != leader);
            let key = format!("{level}{round}");
            others().for_each(|at| group.halt(at));
            let answer = settles.ask(&format!("SET {key} there"));
            let seen = other.ask(&format!("GET {key}"));
            others().for_each(|at| group.signal(at, Signal::CONT));
            assert!(
                !seen.as_ref().is_ok_and(|seen| seen == "there"),
                "it is not committed, and another client sees it"
            );
            // If it leads on, it is committed a moment later: its own next request waits for that.
            let own = settles.ask(&format!("GET {key}"));
            let answered = answer.as_ref().is_ok_and(|answer| answer == "+OK");
            if answered && let Ok(own) = &own {
                assert!(own == "there" || own.starts_with('-'), "{own}");
            }
            answered && own.is_ok_and(|own| own == "there")
        });
        assert!(is_answered, "{level}: never");
    }
    (0..MACHINES).for_each(|at| assert_eq!(group.end(at), 0, "{}", group.said(at)));
}
