//! Leaders that etcd elects: the next one takes over when one is lost.

use std::sync::Arc;

use rustix::process::Signal;
use testnet::Net;

use super::cluster::{Cluster, Told};
use crate::etcd::Etcd;
use crate::eventually;

/// Hosts: etcd, three copies, two that may lead.
const FIRST: usize = 1;
const LEADERS: [usize; 2] = [4, 5];
/// Why a leader may say that it ends.
const LOST: &[&str] = &["leadership of term", "another leader", "nothing more becomes durable"];

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Stop,
    /// From all others.
    Cut,
    /// From etcd alone: the copies would still take what it sends.
    CutFromEtcd,
    /// It hears etcd and all others, and is not heard.
    Mute,
}

/// One leads, another waits; the one is lost, and the other leads.
fn succession(net: Option<Net>, faults: &[Fault]) {
    let net = net.map(Arc::new);
    let etcd = net.as_ref().map_or_else(|| Etcd::start(1), |net| Etcd::start_on(net, 1));
    let election = format!("--etcd {} --prefix /cairn/test --lease 2", etcd.endpoints().join(" --etcd "));
    let cluster = Cluster::new(3, net.clone(), FIRST, &election);
    let words = format!("{election} --secret-file secret --connect-within 1000 --give-up-after 500");
    cluster.done(LEADERS[0], &format!("log create --bytes 16M --segment 64K --write-quorum 2 {words}"));
    let mut ended: Vec<Told> = Vec::new();
    let start = |number: usize| {
        cluster.append(LEADERS[number % 2], &format!("e{number}"), &format!("{words} --name e{number}"))
    };
    let mut leader = start(0);
    for (number, fault) in faults.iter().enumerate() {
        println!("{fault:?}");
        leader.await_more(20);
        let mut next = start(number + 1);
        leader.await_more(20);
        assert_eq!(next.told(), 0, "it waits");
        let others = || (0..=LEADERS[1]).filter(|host| *host != LEADERS[number % 2]);
        let (here, net) = (LEADERS[number % 2], net.as_deref());
        match fault {
            Fault::Kill => leader.proc.kill(),
            Fault::Stop => leader.proc.signal(Signal::STOP),
            Fault::Cut => net.unwrap().isolate(here).unwrap(),
            Fault::CutFromEtcd => net.unwrap().cut(here, 0).unwrap(),
            Fault::Mute => others().for_each(|other| net.unwrap().cut_one_way(here, other).unwrap()),
        }
        next.await_more(20);
        // By now its successor has repaired the copies: what it tells from here on it must have had acknowledged before.
        let before = leader.told();
        if let Some(net) = net {
            net.heal().unwrap();
        }
        match fault {
            Fault::Kill => {}
            _ => leader.proc.signal(Signal::CONT),
        }
        let killed = matches!(fault, Fault::Kill);
        let told = leader.end();
        // What was on its way to standard output when it was stopped gets there: it was acknowledged in time.
        let late = usize::from(matches!(fault, Fault::Stop));
        assert!(killed || told.lsns.len() <= before + late, "{} went on", told.name);
        ended.push(if killed { told } else { told.was_shut_out(u64::MAX, LOST) });
        leader = next;
    }
    ended.push(leader.kill());
    eventually("the lease of a leader that was killed is over", || {
        cluster.run(LEADERS[1], &format!("log promote {words} --wait 5")).code == 0
    });
    cluster.check(LEADERS[1], &words, &ended);
}

#[test]
fn leaders_follow_one_another_when_they_are_killed_and_stopped() {
    succession(None, &[Fault::Kill, Fault::Stop]);
}

#[test]
fn leaders_follow_one_another_when_they_are_cut_off() {
    let Some(net) = Net::or_say_why(LEADERS[1] + 1) else { return };
    succession(Some(net), &[Fault::Cut, Fault::CutFromEtcd, Fault::Mute]);
}

#[test]
fn copies_announce_themselves_until_they_end() {
    let etcd = Etcd::start(1);
    let election = format!("--etcd {} --prefix /cairn/copies --lease 2", etcd.endpoints().join(" --etcd "));
    let mut cluster = Cluster::new(2, None, 0, &election);
    let words = format!("log replicas {election} --secret-file secret --json");
    let seen = |cluster: &Cluster| {
        let run = cluster.run(0, &words);
        if run.out.is_empty() { 0 } else { run.json().as_array().unwrap().len() }
    };
    assert_eq!(seen(&cluster), 2);
    cluster.replica(0).signal(Signal::TERM);
    assert_eq!(cluster.replica(0).wait(), 0);
    assert_eq!(seen(&cluster), 1, "it took its announcement back");
    cluster.replica(1).kill();
    eventually("the announcement of a killed copy expires", || seen(&cluster) == 0);
    let run = cluster.run(0, &words);
    assert!(run.code == 2 && run.failure().0.contains("no replica is announced below /cairn/copies"), "{run:?}");
    let run = cluster.run(0, &format!("log-replica copy9 --listen 0.0.0.0:0 --secret-file secret {election}"));
    assert!(run.code == 2 && run.failure().1.contains("--announce"), "{run:?}");
}
