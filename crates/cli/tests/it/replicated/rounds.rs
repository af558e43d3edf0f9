//! Copies and leaders are killed, stopped and cut off while a leader appends; an operator takes the log over. `CAIRN_SEED` repeats a run, `CAIRN_ROUNDS` makes it longer.

use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::process::Signal;
use testnet::Net;

use super::cluster::{Appender, Cluster, Told};

/// Where the leader is, beyond the hosts of the copies; and where the one that takes over is.
const LEADER: usize = 3;
const OTHER: usize = 4;
const SHUT_OUT: &[&str] = &["another leader", "nothing more becomes durable"];

/// What is done to a log that is being written.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KillCopy,
    StopCopy,
    KillLeader,
    KillBoth,
    StopLeader,
    /// None: two lead, and one of them does not know it yet.
    Takeover,
    CutCopy,
    MuteCopy,
    DeafCopy,
    CutLeader,
    MuteLeader,
    DeafLeader,
    /// With one of the copies.
    CutLeaderAndCopy,
}

use Fault::*;

struct Rounds {
    cluster: Cluster,
    random: Xoshiro256PlusPlus,
    ended: Vec<Told>,
}

impl Rounds {
    fn new(net: Option<Net>) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let seed =
            number("CAIRN_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 8 | u64::from(net.is_some()));
        println!("CAIRN_SEED={seed}");
        let cluster = Cluster::new(3, net.map(Arc::new), 0, "");
        let line = format!("log create --bytes 4M --segment 64K --write-quorum 2 {}", cluster.copies());
        cluster.done(LEADER, &line);
        Self { cluster, random: Xoshiro256PlusPlus::seed_from_u64(seed), ended: Vec::new() }
    }

    fn below(&mut self, limit: u64) -> usize {
        (self.random.next_u64() % limit) as usize
    }

    /// Each fault at least once, in any order.
    fn play(mut self, faults: &[Fault]) {
        let more = std::env::var("CAIRN_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        for _ in 0..more {
            let mut left = faults.to_vec();
            while !left.is_empty() {
                let fault = left.swap_remove(self.below(left.len() as u64));
                self.round(fault);
            }
        }
        self.cluster.check(OTHER, &self.cluster.copies(), &self.ended);
    }

    /// Takes the log over; the number of the first record that is not there yet.
    fn promote(&self) -> u64 {
        let run = self.cluster.done(OTHER, &format!("log promote --json {}", self.cluster.copies()));
        run.json()["next"].as_u64().unwrap()
    }

    fn cut(&self, from: usize, to: usize) {
        self.cluster.net.as_ref().unwrap().cut_one_way(from, to).unwrap();
    }

    fn cut_off(&self, one: usize, others: &[usize]) {
        for other in others {
            self.cut(one, *other);
            self.cut(*other, one);
        }
    }

    fn heal(&self) {
        if let Some(net) = &self.cluster.net {
            net.heal().unwrap();
        }
    }

    fn round(&mut self, fault: Fault) {
        let (copy, early) = (self.below(3), self.below(60));
        println!("{fault:?}, copy {copy}, after {early}");
        let name = format!("r{}", self.ended.len());
        let words = self.cluster.copies();
        let mut leader = self.cluster.append(LEADER, &name, &words);
        leader.await_more(1 + early);
        let told = self.befall(fault, copy, leader);
        self.heal();
        self.ended.push(told);
    }

    /// Does it to a leader that appends, which has ended when this returns.
    fn befall(&mut self, fault: Fault, copy: usize, mut leader: Appender) -> Told {
        match fault {
            KillCopy => {
                self.cluster.replica(copy).kill();
                leader.await_more(40);
                self.cluster.start(copy);
                leader.await_more(10);
                leader.kill()
            }
            StopCopy => {
                self.cluster.replica(copy).signal(Signal::STOP);
                leader.await_more(40);
                self.cluster.replica(copy).signal(Signal::CONT);
                leader.await_more(10);
                leader.kill()
            }
            KillLeader => leader.kill(),
            KillBoth => {
                self.cluster.replica(copy).kill();
                let told = leader.kill();
                if self.below(2) == 0 {
                    self.promote();
                }
                self.cluster.start(copy);
                told
            }
            StopLeader => {
                leader.proc.signal(Signal::STOP);
                let next = self.promote();
                leader.proc.signal(Signal::CONT);
                leader.end().was_shut_out(next, SHUT_OUT)
            }
            Takeover => {
                let next = self.promote();
                leader.end().was_shut_out(next, SHUT_OUT)
            }
            CutCopy | MuteCopy | DeafCopy => {
                if !matches!(fault, DeafCopy) {
                    self.cut(copy, LEADER);
                }
                if !matches!(fault, MuteCopy) {
                    self.cut(LEADER, copy);
                }
                leader.await_more(40);
                self.heal();
                leader.await_more(10);
                leader.kill()
            }
            CutLeader | MuteLeader | DeafLeader | CutLeaderAndCopy => {
                let spared = matches!(fault, CutLeaderAndCopy).then_some(copy);
                for other in (0..LEADER).filter(|other| Some(*other) != spared) {
                    if !matches!(fault, DeafLeader) {
                        self.cut(LEADER, other);
                    }
                    if !matches!(fault, MuteLeader) {
                        self.cut(other, LEADER);
                    }
                }
                if matches!(fault, CutLeaderAndCopy) {
                    let others: Vec<usize> = (0..=OTHER).filter(|host| ![copy, LEADER].contains(host)).collect();
                    self.cut_off(copy, &others);
                }
                let next = self.promote();
                self.heal();
                leader.end().was_shut_out(next, SHUT_OUT)
            }
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_and_stops() {
    Rounds::new(None).play(&[KillCopy, StopCopy, KillLeader, KillBoth, KillBoth, StopLeader, Takeover]);
}

#[test]
fn nothing_acknowledged_is_lost_by_a_broken_network() {
    let Some(net) = Net::or_say_why(OTHER + 1) else { return };
    Rounds::new(Some(net)).play(&[
        CutCopy,
        MuteCopy,
        DeafCopy,
        CutLeader,
        MuteLeader,
        DeafLeader,
        CutLeaderAndCopy,
        KillBoth,
    ]);
}
