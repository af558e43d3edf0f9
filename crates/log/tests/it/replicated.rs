//! A replicated log over the network: made, led, lost, taken over.

use std::path::PathBuf;
use std::time::Duration;

use log::{Error, Log, Options, Replica, ReplicaHealth, Replicas, fabric};
use pmem::DomainChoice;

/// How replicas are reached, and what they are on: a device writes into memory, and never into a file.
#[derive(Clone, Copy)]
struct Over(&'static str, DomainChoice);

macro_rules! over {
    ($module:ident, $over:expr; $($test:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $test() {
                    super::$test($over);
                }
            )*
        }
    };
}

macro_rules! tests {
    ($($test:ident)*) => {
        over!(tcp, Over("tcp", DomainChoice::Auto); $($test)*);
        #[cfg(feature = "libfabric")]
        over!(libfabric, Over("libfabric:tcp", DomainChoice::Emulated); $($test)*);
        #[cfg(feature = "libfabric")]
        over!(libfabric_by_software, Over("libfabric:tcp", DomainChoice::File); $($test)*);
    };
}

tests!(
    what_was_appended_is_on_all_replicas
    threads_share_forces
    space_is_used_again_and_replicas_know_it
    a_log_goes_on_without_some_and_never_without_a_quorum
    a_new_leader_shuts_the_old_one_out
    an_old_leader_that_does_nothing_is_told_who_leads
    a_replica_is_not_opened_as_a_log_of_its_own
    who_does_not_know_the_secret_gets_nothing
    a_log_is_made_of_new_replicas_alone
    replicas_come_back_while_the_log_is_used
    a_new_replica_takes_the_place_of_one_that_is_lost
    a_replica_that_cannot_be_spared_is_not_removed_and_nothing_is_changed
    a_log_that_needs_all_its_replicas_is_opened_with_a_new_one_for_one_that_is_lost
    who_looks_learns_how_a_replica_is_doing_and_disturbs_nobody
    a_replica_that_does_not_count_makes_no_quorum
    a_replica_of_another_log_is_in_nobodys_way
    the_child_of_a_fork_lets_a_log_go_that_its_parent_leads
);

struct Cluster {
    dir: tempfile::TempDir,
    trust: fabric::Options,
    pool: pmem::Options,
    served: Vec<Option<Replica>>,
    addresses: Vec<String>,
}

impl Cluster {
    fn new(Over(transport, domain): Over, count: usize) -> Self {
        let secret = fabric::Secret::new(b"what all of them know").expect("long enough");
        let transport = transport.parse().expect("a transport");
        let trust = fabric::Options { secret: Some(secret), transport, ..Default::default() };
        let (dir, pool) = (tempfile::tempdir().expect("a folder"), pmem::Options::new().domain(domain));
        let mut this = Self { dir, trust, pool, served: Vec::new(), addresses: Vec::new() };
        for at in 0..count {
            this.served.push(None);
            this.addresses.push("127.0.0.1:0".into());
            this.start(at);
        }
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&mut self, at: usize) {
        let path = self.path(&at.to_string());
        let replica = Replica::serve_with(&self.pool, path, &self.addresses[at], self.trust.clone());
        let replica = replica.expect("serves");
        self.addresses[at] = replica.address().expect("an address").to_string();
        self.served[at] = Some(replica);
    }

    fn stop(&mut self, at: usize) {
        drop(self.served[at].take());
    }

    fn replicas(&self, local: Option<&str>, quorum: u32) -> Replicas {
        let replicas = Replicas::new().write_quorum(quorum).trust(self.trust.clone()).timeout(Duration::from_secs(5));
        let replicas = self.addresses.iter().fold(replicas, |replicas, address| replicas.at(address));
        match local {
            Some(name) => replicas.local(self.path(name)),
            None => replicas,
        }
    }
}

fn options() -> Options {
    Options::new().bytes(64 << 10).segment_bytes(4096).idle(None)
}

fn read(log: &Log) -> Vec<String> {
    let mut records = log.iter();
    let mut all = Vec::new();
    while let Some(record) = records.next().expect("reads") {
        all.push(String::from_utf8(record.payload.to_vec()).expect("text"));
    }
    all
}

fn what_was_appended_is_on_all_replicas(over: Over) {
    for local in [Some("own"), None] {
        let cluster = Cluster::new(over, 2);
        let log = options().create_replicated(&cluster.replicas(local, 2)).expect("made");
        for n in 0..100 {
            log.append(format!("record {n}").as_bytes()).expect("appended");
        }
        assert_eq!(log.forced().get(), 100);
        log.close().expect("closed");
        let (log, found) = options().open_replicated(&cluster.replicas(local, 2)).expect("opened");
        assert_eq!(found.records, 100);
        assert_eq!(read(&log), (0..100).map(|n| format!("record {n}")).collect::<Vec<_>>());
        for replica in cluster.served.iter().flatten() {
            assert_eq!(replica.status().expect("a replica").next, found.next);
        }
    }
}

/// The threads that hear the replicas, and let them come back, are the parent's: a child that waited for their end would wait for ever.
fn the_child_of_a_fork_lets_a_log_go_that_its_parent_leads(over: Over) {
    for local in [Some("own"), None] {
        let cluster = Cluster::new(over, 2);
        let mut log = Some(options().create_replicated(&cluster.replicas(local, 2)).expect("made"));
        log.as_ref().expect("open").append(b"before").expect("appended");
        assert_eq!(crate::raw::fork(30, || drop(log.take())), 0, "the child ends by itself");
        let log = log.expect("the parent's");
        assert_eq!(log.append(b"after").expect("appended").get(), 2);
        log.close().expect("closed");
    }
}

fn threads_share_forces(over: Over) {
    let cluster = Cluster::new(over, 2);
    let log = options().create_replicated(&cluster.replicas(None, 2)).expect("made");
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let log = &log;
            threads.spawn(move || {
                for n in 0..200 {
                    log.append(format!("{thread} {n}").as_bytes()).expect("appended");
                    if n % 50 == 0 {
                        log.truncate_to(log.forced()).expect("discarded");
                    }
                }
            });
        }
    });
    assert_eq!(log.forced().get(), 800);
    log.close().expect("closed");
}

fn space_is_used_again_and_replicas_know_it(over: Over) {
    let cluster = Cluster::new(over, 2);
    let log = options().create_replicated(&cluster.replicas(Some("own"), 2)).expect("made");
    for n in 0..1000 {
        let lsn = log.append(format!("{n:0200}").as_bytes()).expect("appended");
        log.truncate_to(lsn).expect("discarded");
    }
    log.append(b"the last").expect("appended");
    let head = log.stats().head;
    assert!(log.stats().reclaims > 2);
    log.abandon();
    let (log, found) = options().open_replicated(&cluster.replicas(None, 2)).expect("opened without the leader's own");
    assert!(found.head <= head);
    assert_eq!(read(&log).last().map(String::as_str), Some("the last"));
}

fn a_log_goes_on_without_some_and_never_without_a_quorum(over: Over) {
    let mut cluster = Cluster::new(over, 3);
    let log = options().create_replicated(&cluster.replicas(None, 2)).expect("made");
    log.append(b"three").expect("appended");
    cluster.stop(1);
    log.append(b"two").expect("appended");
    cluster.stop(2);
    while log.replicas().iter().filter(|(_, state, _)| *state == ReplicaHealth::Live).count() > 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = log.append(b"one").expect_err("one is not two");
    assert!(matches!(error, Error::QuorumLost { live: 1, needed: 2 }), "{error}");
    assert!(log.append(b"still one").is_err(), "nothing later reports success");
    assert_eq!(read(&log), ["three", "two"]);
    log.abandon();

    let error = options().open_replicated(&cluster.replicas(None, 2)).expect_err("one of three cannot know");
    assert!(matches!(error, Error::QuorumUnavailable { .. }), "{error}");
    cluster.start(2);
    let (log, _) = options().open_replicated(&cluster.replicas(None, 2)).expect("opened");
    let all = read(&log);
    assert_eq!(all[..2], ["three", "two"], "what was acknowledged; what was not may be there");
    log.append(b"four").expect("appended");
    log.abandon();
    cluster.stop(0);
    cluster.start(1);
    let (log, _) = options().open_replicated(&cluster.replicas(None, 2)).expect("opened");
    assert_eq!(read(&log).last().map(String::as_str), Some("four"), "of those that were repaired");
}

fn a_new_leader_shuts_the_old_one_out(over: Over) {
    let cluster = Cluster::new(over, 3);
    let old = options().create_replicated(&cluster.replicas(None, 2)).expect("made");
    old.append(b"of the old one").expect("appended");
    let (new, _) = options().open_replicated(&cluster.replicas(None, 2)).expect("opened");
    let error = old.append(b"too late").expect_err("shut out");
    assert!(matches!(error, Error::Fenced { .. } | Error::QuorumLost { .. }), "{error}");
    new.append(b"of the new one").expect("appended");
    assert_eq!(read(&new), ["of the old one", "of the new one"]);
    assert!(old.check_leading().is_err());
}

/// Though its connections may end with its rights.
fn an_old_leader_that_does_nothing_is_told_who_leads(over: Over) {
    let cluster = Cluster::new(over, 3);
    let old = options().create_replicated(&cluster.replicas(None, 2)).expect("made");
    old.append(b"of the old one").expect("appended");
    let (new, _) = options().open_replicated(&cluster.replicas(None, 2).elected(7, 0)).expect("opened");
    let told = || matches!(old.check_leading(), Err(Error::Fenced { owner: 7, .. }));
    let waited = (0..4000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        told()
    });
    assert!(waited, "{:?}", old.check_leading());
    new.append(b"of the new one").expect("appended");
}

fn a_replica_is_not_opened_as_a_log_of_its_own(over: Over) {
    let mut cluster = Cluster::new(over, 1);
    drop(options().create_replicated(&cluster.replicas(Some("own"), 2)).expect("made"));
    cluster.stop(0);
    for name in ["own", "0"] {
        let error = options().open(cluster.path(name)).expect_err("others have it too");
        assert!(matches!(error, Error::IsReplica { .. }), "{error}");
    }
}

fn who_does_not_know_the_secret_gets_nothing(over: Over) {
    let cluster = Cluster::new(over, 1);
    drop(options().create_replicated(&cluster.replicas(None, 1)).expect("made"));
    let wrong = fabric::Secret::new(b"what somebody guessed").expect("long enough");
    let trust = fabric::Options { secret: Some(wrong), ..cluster.trust.clone() };
    let error = options().open_replicated(&cluster.replicas(None, 1).trust(trust)).expect_err("a stranger");
    assert!(matches!(error, Error::QuorumUnavailable { .. }), "{error}");
}

fn a_log_is_made_of_new_replicas_alone(over: Over) {
    let cluster = Cluster::new(over, 2);
    drop(options().create_replicated(&cluster.replicas(None, 2)).expect("made"));
    let error = options().create_replicated(&cluster.replicas(None, 2)).expect_err("there is one");
    assert!(matches!(error, Error::QuorumUnavailable { .. }), "{error}");
}

fn replicas_come_back_while_the_log_is_used(over: Over) {
    let mut cluster = Cluster::new(over, 2);
    let log = options().create_replicated(&cluster.replicas(Some("own"), 2)).expect("made");
    let live = || log.replicas().iter().filter(|(_, state, _)| *state == ReplicaHealth::Live).count();
    log.append(b"one").expect("appended");
    cluster.stop(0);
    log.append(b"two").expect("appended by two of three");
    cluster.start(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for n in 0..200 {
                log.append(format!("{n}").as_bytes()).expect("appended");
            }
        });
        log.join(&cluster.addresses[0], &cluster.trust).expect("joined");
    });
    assert_eq!(live(), 2, "{:?}", log.replicas());
    // Again, though it is there: the connection before is given up, and nothing else.
    log.join(&cluster.addresses[0], &cluster.trust).expect("joined once more");
    log.append(b"three").expect("appended");
    cluster.stop(1);
    log.append(b"four").expect("appended with the one that came back");
    log.abandon();
    let (log, _) = options().open_replicated(&cluster.replicas(Some("own"), 2)).expect("opened");
    assert_eq!(read(&log).last().map(String::as_str), Some("four"));
}

fn a_new_replica_takes_the_place_of_one_that_is_lost(over: Over) {
    let mut cluster = Cluster::new(over, 2);
    let log = options().create_replicated(&cluster.replicas(Some("own"), 2)).expect("made");
    log.append(b"one").expect("appended");
    let lost = cluster.served[0].as_ref().and_then(Replica::status).expect("a replica").id;
    cluster.stop(0);
    std::fs::remove_file(cluster.path("0")).expect("removed");
    cluster.start(0);
    log.join(&cluster.addresses[0], &cluster.trust).expect("joined");
    log.remove(lost).expect("removed");
    assert!(
        log.replicas().iter().all(|(id, state, _)| *id != lost && *state == ReplicaHealth::Live),
        "{:?}",
        log.replicas()
    );
    log.append(b"two").expect("appended");
    log.abandon();
    // Without the leader's own: the new one and the other are a quorum of three.
    let (log, _) = options().open_replicated(&cluster.replicas(None, 2)).expect("opened");
    assert_eq!(read(&log), ["one", "two"]);
}

fn a_replica_that_cannot_be_spared_is_not_removed_and_nothing_is_changed(over: Over) {
    let mut cluster = Cluster::new(over, 3);
    let log = options().create_replicated(&cluster.replicas(None, 2)).expect("made");
    log.append(b"one").expect("appended");
    let id = |at: usize| cluster.served[at].as_ref().and_then(Replica::status).expect("a replica").id;
    let (second, third) = (id(1), id(2));
    cluster.stop(2);
    while log.replicas().iter().any(|(id, state, _)| *id == third && *state == ReplicaHealth::Live) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = log.remove(second).expect_err("of the two that would be left one is dead");
    let Error::QuorumUnavailable { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(*missing, [third]);
    log.append(b"two").expect("nothing was changed");
    log.abandon();
    let (log, _) = options().open_replicated(&cluster.replicas(None, 2)).expect("two of three");
    assert_eq!((read(&log), log.members().0.len()), (vec!["one".to_owned(), "two".to_owned()], 3));
    log.remove(third).expect("the dead one can be spared");
    log.append(b"three").expect("appended");
}

fn a_log_that_needs_all_its_replicas_is_opened_with_a_new_one_for_one_that_is_lost(over: Over) {
    let mut cluster = Cluster::new(over, 1);
    let replicas = |cluster: &Cluster| cluster.replicas(Some("own"), 2);
    let id = |cluster: &Cluster| cluster.served[0].as_ref().and_then(Replica::status).expect("a replica").id;
    let renew = |cluster: &mut Cluster| {
        cluster.stop(0);
        std::fs::remove_file(cluster.path("0")).expect("removed");
        cluster.start(0);
    };
    let log = options().create_replicated(&replicas(&cluster)).expect("made");
    log.append(b"one").expect("appended");
    log.abandon();
    let first = id(&cluster);
    let wrong = options().open_replicated(&replicas(&cluster).lost(first));
    assert!(matches!(&wrong, Err(Error::Replica { why, .. }) if why.contains("is there")), "{wrong:?}");

    renew(&mut cluster);
    let Err(Error::QuorumUnavailable { missing, .. }) = options().open_replicated(&replicas(&cluster)) else {
        panic!("opened without one of two")
    };
    assert_eq!(missing, [first], "who is missing is told");
    let (log, found) = options().open_replicated(&replicas(&cluster).lost(first)).expect("opened");
    assert_eq!((found.records, log.members().1), (1, 2), "each record is on two replicas, as before");
    log.append(b"two").expect("appended");
    log.abandon();
    // Said again, it changes nothing.
    let second = id(&cluster);
    drop(options().open_replicated(&replicas(&cluster).lost(first)).expect("opened"));
    assert_eq!(id(&cluster), second);

    // The one that is here is lost, too. What a leader keeps in memory is no replica.
    let (log, _) = options().open_replicated(&replicas(&cluster)).expect("opened");
    let mine = log.members().0.into_iter().find(|id| *id != second).expect("one of two");
    log.abandon();
    std::fs::remove_file(cluster.path("own")).expect("removed");
    let nobody = options().open_replicated(&cluster.replicas(None, 2).lost(mine));
    assert!(matches!(nobody, Err(Error::QuorumUnavailable { .. })), "{nobody:?}");
    let (log, _) = options().open_replicated(&replicas(&cluster).lost(mine)).expect("opened");
    log.append(b"three").expect("appended");
    log.abandon();
    let (log, _) = options().open_replicated(&replicas(&cluster)).expect("opened");
    assert_eq!(read(&log), ["one", "two", "three"]);

    // One that is new alone is not the log.
    log.abandon();
    let second = id(&cluster);
    renew(&mut cluster);
    let nobody = options().open_replicated(&cluster.replicas(None, 2).lost(second));
    assert!(matches!(nobody, Err(Error::QuorumUnavailable { .. })), "{nobody:?}");
}

fn who_looks_learns_how_a_replica_is_doing_and_disturbs_nobody(over: Over) {
    let mut cluster = Cluster::new(over, 2);
    let look = |cluster: &Cluster, at: usize| log::look(&cluster.addresses[at], &cluster.trust, Duration::from_secs(5));
    assert!(look(&cluster, 0).expect("it answers").is_none(), "of no log yet");
    let log = options().create_replicated(&cluster.replicas(None, 1)).expect("made");
    log.append(b"one").expect("appended");
    // One has it; the other one is heard a little later.
    while !log.replicas().iter().all(|replica| replica.2.get() == 1) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = look(&cluster, 0).expect("it answers").expect("of a log");
    assert_eq!(said.quorum, Some((2, 1)));
    assert!(said.current && said.epoch == said.promised, "{said:?}");
    let mine = log.replicas().into_iter().find(|(id, ..)| *id == said.id).expect("it is one of them");
    assert_eq!((said.next.get(), mine.1), (mine.2.get() + 1, ReplicaHealth::Live));
    log.append(b"two").expect("nobody was disturbed");
    log.close().expect("closed");

    cluster.stop(0);
    assert!(matches!(look(&cluster, 0), Err(Error::Fabric(_))));
    cluster.start(0);
    let again = look(&cluster, 0).expect("it answers").expect("of a log");
    assert!(again.id == said.id && !again.current && again.next == again.head, "{again:?}");
    let wrong = fabric::Secret::new(b"what somebody guessed").expect("long enough");
    let trust = fabric::Options { secret: Some(wrong), ..cluster.trust.clone() };
    assert!(matches!(log::look(&cluster.addresses[1], &trust, Duration::from_secs(5)), Err(Error::Fabric(_))));
}

/// At an address that was another's: with the secret of both.
fn a_replica_of_another_log_is_in_nobodys_way(over: Over) {
    let (cluster, other) = (Cluster::new(over, 2), Cluster::new(over, 1));
    let log = options().create_replicated(&cluster.replicas(Some("own"), 2)).expect("made");
    log.append(b"ours").expect("acknowledged");
    drop(log);
    drop(options().create_replicated(&other.replicas(Some("own"), 2)).expect("made"));
    let both = cluster.replicas(Some("own"), 2).at(&other.addresses[0]);
    let (log, _) = options().open_replicated(&both).expect("its own replicas are a quorum");
    assert_eq!(read(&log), ["ours"]);
    log.append(b"more").expect("acknowledged");
    drop(log);
    // A leader that has no replica of its own does not know which of them is meant.
    let refused = options().open_replicated(&cluster.replicas(None, 2).at(&other.addresses[0]));
    assert!(matches!(refused, Err(Error::Replica { why, .. }) if why.contains("of log")));
}

/// A leader's image of the log, served as if it were one of the replicas.
fn a_replica_that_does_not_count_makes_no_quorum(over: Over) {
    let mut cluster = Cluster::new(over, 3);
    drop(options().create_replicated(&cluster.replicas(None, 2)).expect("made"));
    drop(options().open_replicated(&cluster.replicas(Some("image"), 2)).expect("opened with an image of its own"));
    let stranger = Replica::serve(cluster.path("image"), "127.0.0.1:0", cluster.trust.clone()).expect("serves");
    let replicas = cluster.replicas(None, 2).at(&stranger.address().expect("an address").to_string());
    let (log, _) = options().open_replicated(&replicas).expect("opened");
    log.append(b"three").expect("appended");
    let of_members: Vec<u64> = cluster.served.iter().flatten().filter_map(|r| Some(r.status()?.id)).collect();
    let mut led: Vec<u64> = log.replicas().into_iter().map(|(id, ..)| id).collect();
    led.sort_by_key(|id| of_members.iter().position(|of| of == id));
    assert_eq!(led, of_members, "the replicas that count, by their ids");
    cluster.stop(1);
    cluster.stop(2);
    let error = log.append(b"one").expect_err("a replica and a stranger are not two");
    assert!(matches!(error, Error::QuorumLost { live: 1, needed: 2 }), "{error}");
}
