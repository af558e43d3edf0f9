//! Tests: leaders and replicas of this build and of the one before, over real connections; and of builds that have no wire version in common.

use std::path::Path;
use std::time::Duration;

use pmem::DomainChoice;

use crate::replicate::wire::{NEWEST, OLDEST, Versions};
use crate::replicate::{Replica, ReplicaHealth};
use crate::{Log, Options, Replicas};

const TIMEOUT: Duration = Duration::from_secs(20);
const NOW: Versions = Versions { oldest: OLDEST, newest: NEWEST };

fn trust() -> fabric::Options {
    fabric::Options { anyone: true, ..Default::default() }
}

fn serve(path: &Path, address: &str, speaks: Versions) -> Replica {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    Replica::start(&pool, path, address, trust(), false, speaks).expect("served")
}

fn replicas(of: &[Replica], speaks: Versions) -> Replicas {
    let named = of.iter().fold(Replicas::new(), |named, replica| named.at(&at(replica)));
    named.trust(trust()).write_quorum(2).speaking(speaks)
}

fn at(replica: &Replica) -> String {
    replica.address().expect("an address").to_string()
}

fn options() -> Options {
    Options::new().bytes(64 << 10).idle(None)
}

/// What a log has, of which each record says which it is.
fn numbers(log: &Log) -> Vec<u8> {
    let (mut found, mut records) = (Vec::new(), log.iter());
    while let Some(record) = records.next().expect("whole") {
        found.push(record.payload[0]);
    }
    found
}

#[expect(clippy::disallowed_methods, reason = "a bound in real time")]
fn await_live(log: &Log, id: u64) {
    let began = std::time::Instant::now();
    while !log.replicas().iter().any(|(of, state, _)| *of == id && *state == ReplicaHealth::Live) {
        assert!(began.elapsed() < TIMEOUT, "it does not come back: {:?}", log.replicas());
        std::thread::yield_now();
    }
}

/// A log is led by a program of each version in turn, over replicas of both, of which one is given up, started again as the other version, and comes back; a new one joins.
fn led_by_both(first: Versions, second: Versions) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |n: usize| dir.path().join(n.to_string());
    let mut served: Vec<Replica> =
        [first, second].into_iter().enumerate().map(|(n, speaks)| serve(&path(n), "127.0.0.1:0", speaks)).collect();
    let log = options().create_replicated(&replicas(&served, first)).expect("made");
    log.append(&[0; 40]).expect("appended");
    served.push(serve(&path(2), "127.0.0.1:0", second));
    log.join(&at(&served[2]), &trust()).expect("joined");
    log.append(&[1; 40]).expect("appended");
    log.abandon();

    let (log, _) = options().open_replicated(&replicas(&served, second)).expect("taken over");
    assert_eq!(numbers(&log), [0, 1]);
    log.append(&[2; 40]).expect("appended");
    let last = served.pop().expect("three");
    let (address, id) = (at(&last), last.status().expect("of a log").id);
    last.stop().expect("closed");
    log.append(&[3; 40]).expect("by the two that are left");
    served.push(serve(&path(2), &address, first));
    log.expect_at(&address);
    await_live(&log, id);
    log.append(&[4; 40]).expect("appended");
    let mut told: Vec<u32> = log.wire_versions().into_iter().map(|(_, version)| version).collect();
    // A leader of the build before knows of none but its own.
    let known = |speaks: Versions| if second == NOW { speaks.newest } else { OLDEST };
    let mut wanted = [first, second, first].map(known);
    told.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(told, wanted);
    log.abandon();

    let (log, _) = options().open_replicated(&replicas(&served, first)).expect("taken over");
    assert_eq!(numbers(&log), [0, 1, 2, 3, 4]);
}

#[test]
fn machines_of_this_build_and_of_the_one_before_lead_each_other() {
    led_by_both(Versions::BEFORE, NOW);
    led_by_both(NOW, Versions::BEFORE);
}

#[test]
fn machines_of_one_build_lead_each_other() {
    led_by_both(Versions::BEFORE, Versions::BEFORE);
    led_by_both(NOW, NOW);
}

/// A machine that was not upgraded yet is not lost, and nothing else takes its place.
#[test]
fn a_replica_without_a_version_in_common_says_which_program_to_upgrade() {
    let dir = tempfile::tempdir().expect("a folder");
    for (speaks, which) in
        [(Versions { oldest: 6, newest: 7 }, "the program that asks it"), (Versions { oldest: 2, newest: 3 }, "it")]
    {
        let replica = serve(&dir.path().join(which), "127.0.0.1:0", speaks);
        let address = at(&replica);
        let why = &format!("it speaks wire versions {speaks}, not {NOW}: upgrade {which}");
        let wanted = format!("{address}: {why}");
        let named = Replicas::new().at(&address).at("127.0.0.1:1").trust(trust());
        let said = options().open_replicated(&named).expect_err("it takes no part").to_string();
        assert!(said.contains(&wanted) && !said.contains("take the places"), "{said}");
        assert!(said.contains("127.0.0.1:1: "), "one that is not reached is named, too: {said}");
        let said =
            options().create_replicated(&Replicas::new().at(&address).trust(trust())).expect_err("it takes no part");
        assert!(said.to_string().contains("upgrade"), "{said}");
        let said = crate::look(&address, &trust(), TIMEOUT).expect_err("it does not say what it is").to_string();
        assert!(said.contains(why), "{said}");
        let other = serve(&dir.path().join(format!("{which}, beside")), "127.0.0.1:0", NOW);
        let log = options().create_replicated(&Replicas::new().at(&at(&other)).trust(trust())).expect("made");
        let said = log.join(&address, &trust()).expect_err("it does not join").to_string();
        assert!(said.contains(&address) && said.contains(why), "{said}");
    }
}
