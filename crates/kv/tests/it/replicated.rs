//! Stores on several machines, here in one process, over real sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use kv::{Durability, Error, Follower, Isolation, Options, Store};
use log::fabric::{self, Secret};
use log::{Replica, Replicas};
use proptest::prelude::*;

/// Milliseconds: much longer than anything takes.
const TIMEOUT: u32 = 60_000;

pub(crate) fn trust() -> fabric::Options {
    fabric::Options { secret: Some(Secret::new(b"what all of them know").unwrap()), ..Default::default() }
}

pub(crate) fn log_of(bytes: u64) -> log::Options {
    log::Options::new().bytes(bytes)
}

/// Machines by numbers, each with a store and a copy of the log.
pub(crate) struct Site(tempfile::TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        Self(crate::memory())
    }

    pub(crate) fn store(&self, machine: u32) -> PathBuf {
        self.0.path().join(format!("store{machine}"))
    }

    pub(crate) fn log(&self, machine: u32) -> PathBuf {
        self.0.path().join(format!("log{machine}"))
    }

    pub(crate) fn follow(&self, machine: u32) -> Follower {
        Follower::serve(self.store(machine), self.log(machine), "127.0.0.1:0", &trust()).unwrap()
    }

    /// Machine 0 and these; any two make a quorum.
    pub(crate) fn copies(&self, others: &[&Follower]) -> Replicas {
        let copies = Replicas::new().local(self.log(0)).write_quorum(2).trust(trust());
        others.iter().fold(copies, |copies, other| copies.at(&other.address()))
    }

    fn lead(&self, others: &[&Follower]) -> kv::Result<Store> {
        Options::new().replicated(&self.copies(others), &log_of(1 << 20)).open_or_create(self.store(0))
    }
}

pub(crate) fn all(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let snapshot = store.snapshot().unwrap();
    snapshot.scan(kv::Keys::all()).map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// Waits until a follower is so far; it must not fail on the way.
pub(crate) fn await_that(follower: &Follower, is_so: impl Fn() -> bool) {
    for _ in 0..TIMEOUT {
        if is_so() {
            return;
        }
        assert!(follower.wait(Duration::from_millis(1)).unwrap(), "it has stopped");
    }
    panic!("{follower:?} does not come along");
}

/// Waits until a follower has repeated so many commits.
pub(crate) fn await_commits(follower: &Follower, commits: u64) {
    await_that(follower, || follower.status().commits >= commits);
    assert_eq!(follower.status().commits, commits);
}

#[test]
fn followers_have_what_the_leader_has_and_one_of_them_takes_over() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let store = site.lead(&[&one, &two]).unwrap();
    assert_eq!(store.at_risk(), 0);
    store.put(b"apples", b"17").unwrap();
    store.put_until(b"pears", b"3", u64::MAX >> 2).unwrap();
    store.put(b"plums", b"1").unwrap();
    store.delete(b"plums").unwrap();
    store
        .transact(|tx| {
            tx.put(b"apples", b"16")?;
            tx.put(b"cherries", &[7; 5000])?;
            Ok(())
        })
        .unwrap();
    for follower in [&one, &two] {
        await_commits(follower, 5);
        assert_eq!(all(follower.store()), all(&store));
        let expires = follower.snapshot().unwrap().expires(b"pears").unwrap();
        assert_eq!(expires, Some(u64::MAX >> 2));
        assert!(matches!(follower.store().put(b"apples", b"0"), Err(Error::Follows)));
        assert!(matches!(follower.store().check_leading(), Err(Error::Follows)));
    }
    let had = all(&store);

    let copies = Replicas::new().at(&two.address()).trust(trust());
    let promoted = one.promote(&copies, &log_of(1 << 20)).unwrap();
    assert_eq!(all(&promoted), had);
    promoted.put(b"apples", b"15").unwrap();
    promoted.put(b"plums", b"2").unwrap();

    // The previous leader is fenced, and what it tries is seen nowhere.
    let refused = store.put(b"apples", b"99").unwrap_err();
    assert!(matches!(refused, Error::LogInDoubt { .. } | Error::Log(_)), "{refused}");
    assert_eq!(store.get(b"apples").unwrap().as_deref(), Some(&b"16"[..]));
    assert!(store.check_leading().is_err());
    assert!(store.put(b"apples", b"99").is_err());
    store.abandon();

    await_commits(&two, 7);
    assert_eq!(all(two.store()), all(&promoted));
    assert_eq!(promoted.get(b"apples").unwrap().as_deref(), Some(&b"15"[..]));

    // And comes back as a follower.
    let old = site.follow(0);
    promoted.join(&old.address(), &trust()).unwrap();
    promoted.put(b"figs", b"4").unwrap();
    await_commits(&old, 8);
    assert_eq!(all(old.store()), all(&promoted));
    assert_eq!(promoted.copies().iter().filter(|copy| copy.1 == log::ReplicaHealth::Live).count(), 2);
    promoted.close().unwrap();
    for follower in [old, two] {
        follower.stop().unwrap();
    }
}

#[test]
fn a_store_is_made_anew_of_its_log() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let store = site.lead(&[&one, &two]).unwrap();
    for n in 0..100_u32 {
        store.put(&n.to_be_bytes(), b"value").unwrap();
    }
    let had = all(&store);
    store.abandon();
    // With the store on media as far as it was, and without it.
    for lost in [false, true] {
        if lost {
            std::fs::remove_file(site.store(0)).unwrap();
        }
        let store = site.lead(&[&one, &two]).unwrap();
        assert_eq!(all(&store), had);
        store.close().unwrap();
    }
}

#[test]
fn a_store_is_not_opened_without_its_log() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let store = site.lead(&[&one, &two]).unwrap();
    store.put(b"apples", b"17").unwrap();
    store.close().unwrap();
    for durability in [Durability::Durable, Durability::Bounded(10)] {
        let refused = Options::new().durability(durability).open(site.store(0)).unwrap_err();
        assert!(matches!(refused, Error::IsReplicated { log } if log != 0), "{refused}");
    }
    let refused = Options::new().durability(Durability::Replicated).open(site.store(0)).unwrap_err();
    assert!(matches!(refused, Error::Option { found: 0, .. }), "{refused}");

    let read = Options::new().open_read_only(site.store(0)).unwrap();
    assert_eq!(read.get(b"apples").unwrap().as_deref(), Some(&b"17"[..]));
    read.close().unwrap();

    // Another log is not its own, and a store of its own becomes none of a log.
    let other = Site::new();
    let (three, four) = (other.follow(1), other.follow(2));
    drop(other.lead(&[&three, &four]).unwrap());
    let wrong = Options::new().replicated(&other.copies(&[&three, &four]), &log_of(1 << 20));
    let refused = wrong.open(site.store(0)).unwrap_err();
    assert!(matches!(refused, Error::OtherLog { store, log } if store != log), "{refused}");
    let plain = Store::open(other.store(9)).unwrap();
    plain.put(b"apples", b"17").unwrap();
    plain.close().unwrap();
    assert!(matches!(wrong.open(other.store(9)), Err(Error::NotReplicated)));

    // The way out, if all copies are lost.
    let saved = Options::new().salvage(true).open(site.store(0)).unwrap();
    assert_eq!(saved.get(b"apples").unwrap().as_deref(), Some(&b"17"[..]));
    saved.put(b"apples", b"16").unwrap();
}

#[test]
fn a_log_much_smaller_than_what_is_written_is_used_again_and_again() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().replicated(&site.copies(&[&one, &two]), &log_of(64 << 10));
    let store = options.create(site.store(0)).unwrap();
    std::thread::scope(|threads| {
        for thread in 0..3_u32 {
            let store = &store;
            threads.spawn(move || {
                for n in 0..600_u32 {
                    store.put(&[thread.to_be_bytes(), (n % 50).to_be_bytes()].concat(), &[n as u8; 300]).unwrap();
                }
            });
        }
    });
    await_commits(&one, 1800);
    await_commits(&two, 1800);
    assert_eq!(all(one.store()), all(&store));
    assert_eq!(all(two.store()), all(&store));
    assert!(store.copies().iter().all(|copy| copy.1 == log::ReplicaHealth::Live), "{:?}", store.copies());

    // What does not fit at all is refused, and nothing is in doubt.
    let refused = store.put(b"long", &vec![1; 100 << 10]).unwrap_err();
    assert!(matches!(refused, Error::TransactionTooLong { .. }), "{refused}");
    store.put(b"short", b"1").unwrap();
    store.close().unwrap();
    let store = options.open(site.store(0)).unwrap();
    assert_eq!(store.get(b"short").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.stats().entries, 151);
}

#[test]
fn a_follower_that_needs_what_the_log_has_no_more_says_so_and_begins_with_a_seed() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let store =
        Options::new().replicated(&site.copies(&[&one, &two]), &log_of(64 << 10)).create(site.store(0)).unwrap();
    for n in 0..1000_u32 {
        store.put(&(n % 100).to_be_bytes(), &[n as u8; 200]).unwrap();
    }
    let late = site.follow(3);
    store.join(&late.address(), &trust()).unwrap();
    store.put(b"more", b"1").unwrap();
    let failed = (0..TIMEOUT).find_map(|_| late.wait(Duration::from_millis(1)).err()).expect("it follows from nothing");
    assert!(matches!(failed, Error::Behind { has: 0, first } if first > 1), "{failed}");
    // It holds no writer up.
    for n in 0..1000_u32 {
        store.put(&(n % 100).to_be_bytes(), &[n as u8; 200]).unwrap();
    }
    drop(late);
    std::fs::remove_file(site.store(3)).unwrap();

    let seeded = store.seed(site.store(3), |_| ()).unwrap();
    assert_eq!(seeded.pairs, 101);
    store.delete(b"more").unwrap();
    let late = site.follow(3);
    store.join(&late.address(), &trust()).unwrap();
    store.put(b"again", b"1").unwrap();
    await_commits(&late, 2003);
    assert_eq!(all(late.store()), all(&store));
    assert!(matches!(Store::open(site.store(9)).unwrap().seed(site.store(8), |_| ()), Err(Error::NotReplicated)));
}

/// A log keeps its last commit, so that a store which is further back does not take the end of the log for its own.
#[test]
fn a_store_that_is_behind_an_idle_log_does_not_lead() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().replicated(&site.copies(&[&one, &two]), &log_of(64 << 10));
    let store = options.create(site.store(0)).unwrap();
    store.put(b"first", b"1").unwrap();
    await_commits(&one, 1);
    one.stop().unwrap();
    let old = std::fs::read(site.store(1)).unwrap();
    for n in 0..1000_u32 {
        store.put(&(n % 100).to_be_bytes(), &[n as u8; 200]).unwrap();
    }
    let had = all(&store);
    store.close().unwrap();
    // Twice: with what a new leader cleans up when it begins, too.
    for _ in 0..2 {
        Options::new()
            .replicated(&site.copies(&[&two]), &log_of(64 << 10))
            .open(site.store(0))
            .unwrap()
            .close()
            .unwrap();
    }

    // The machine that was away has an old store, and its copy is repaired; nothing was committed since.
    let away = Replicas::new().local(site.log(0)).at(&two.address()).write_quorum(2).trust(trust());
    std::fs::write(site.store(9), &old).unwrap();
    let refused = Options::new().replicated(&away, &log_of(64 << 10)).open(site.store(9)).unwrap_err();
    assert!(matches!(refused, Error::Behind { has: 1, first } if first > 2), "{refused}");
    // Nor does one that is made anew where the log does not begin with the first commit.
    let refused = Options::new().replicated(&away, &log_of(64 << 10)).open_or_create(site.store(8)).unwrap_err();
    assert!(matches!(refused, Error::Behind { has: 0, .. }), "{refused}");
    let store = Options::new().replicated(&away, &log_of(64 << 10)).open(site.store(0)).unwrap();
    assert_eq!(all(&store), had);
}

#[test]
fn without_a_quorum_nothing_is_committed_and_everything_read() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let store = site.lead(&[&one, &two]).unwrap();
    store.put(b"apples", b"17").unwrap();
    one.stop().unwrap();
    store.put(b"apples", b"16").unwrap(); // two are left
    two.stop().unwrap();
    let lost = store.put(b"apples", b"15").unwrap_err();
    assert!(matches!(lost, Error::LogInDoubt { .. } | Error::Log(_)), "{lost}");
    let lost = store.put(b"apples", b"14").unwrap_err();
    assert!(matches!(lost, Error::Log(_)), "{lost}");
    assert_eq!(store.get(b"apples").unwrap().as_deref(), Some(&b"16"[..]));
    store.abandon();
    // What was in doubt is decided by the next open: it is in the leader's own copy.
    let (one, two) = (site.follow(1), site.follow(2));
    let store = site.lead(&[&one, &two]).unwrap();
    let apples = store.get(b"apples").unwrap();
    assert!(matches!(apples.as_deref(), Some(b"15" | b"16")), "{apples:?}");
    store.put(b"apples", b"13").unwrap();
    let had = all(&store);
    store.abandon();
    let promoted = two.promote(&Replicas::new().at(&one.address()).trust(trust()), &log_of(1 << 20)).unwrap();
    assert_eq!(all(&promoted), had);
}

/// Nothing of it is lost: it follows again, where it did.
#[test]
fn a_follower_that_cannot_lead_follows_on() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let store = site.lead(&[&one, &two]).unwrap();
    store.put(b"apples", b"17").unwrap();
    await_commits(&one, 1);
    let (address, other) = (one.address(), two.address());
    two.stop().unwrap();
    store.put(b"apples", b"16").unwrap();
    store.abandon();

    let copies = Replicas::new().at(&other).trust(trust());
    let not = one.promote(&copies, &log_of(1 << 20)).unwrap_err();
    assert!(
        matches!(&not.error, Error::Log(error) if matches!(**error, log::Error::QuorumUnavailable { .. })),
        "{not}"
    );
    let one = not.follow().unwrap();
    assert_eq!((one.address(), one.has_failed()), (address, false));
    assert!(one.store().get(b"apples").unwrap().is_some());
    let store = site.lead(&[&one]).unwrap();
    store.put(b"pears", b"3").unwrap();
    await_that(&one, || one.store().get(b"pears").unwrap().is_some());
    assert_eq!(one.store().get(b"apples").unwrap().as_deref(), Some(&b"16"[..]));
    // The caller that elects leaders says how long no other can be elected.
    store.lead_for(Duration::from_secs(600));
    store.check_leading().unwrap();
    store.lead_for(Duration::ZERO);
    assert!(matches!(store.check_leading(), Err(Error::Log(_))));
    store.lead_for(Duration::from_secs(600));
    store.check_leading().unwrap();
    one.stop().unwrap();
}

/// What a test of quorums is for.
#[test]
fn a_commit_that_does_not_wait_for_its_quorum_is_found() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().without(kv::Step::LogFirst);
    let store = options.replicated(&site.copies(&[&one, &two]), &log_of(1 << 20)).create(site.store(0)).unwrap();
    one.stop().unwrap();
    two.stop().unwrap();
    assert!(store.put(b"apples", b"15").is_ok(), "it returns, and is on one machine");
}

#[test]
fn a_record_that_is_no_commit_is_told() {
    let site = Site::new();
    let backup = Replica::serve(site.log(1), "127.0.0.1:0", trust()).unwrap();
    let address: SocketAddr = backup.address().unwrap();
    let copies = Replicas::new().local(site.log(0)).at(&address.to_string()).trust(trust());
    let log = log_of(1 << 20).create_replicated(&copies).unwrap();
    log.append(b"debit").unwrap();
    log.close().unwrap();
    let options = Options::new().replicated(&copies, &log_of(1 << 20));
    let refused = options.open_or_create(site.store(0)).unwrap_err();
    assert!(matches!(refused, Error::NotACommit { .. }), "{refused}");
}

/// What happens between two commits.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// The leader is dropped as it stands, and opened again.
    Reopen,
    /// Another one takes over, and the leader comes back as a follower.
    Promote,
    /// A follower is dropped, and comes back.
    Away,
    /// The store's part in memory is made durable.
    Sync,
}

/// What a commit changes, and what happens then.
type Step = (Vec<(u8, Option<u8>)>, Option<Turn>);

fn turns() -> impl Strategy<Value = Vec<Step>> {
    let change = (0..12_u8, proptest::option::of(any::<u8>()));
    let turn = prop_oneof![Just(Turn::Reopen), Just(Turn::Promote), Just(Turn::Away), Just(Turn::Sync)];
    let commit = (prop::collection::vec(change, 1..4), prop::option::weighted(0.15, turn));
    prop::collection::vec(commit, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn whoever_leads_has_every_commit(commits in turns()) {
        let site = Site::new();
        let (one, two) = (site.follow(1), site.follow(2));
        // A log that is cleaned up on the way.
        let log = log_of(16 << 10);
        let first = Options::new().replicated(&site.copies(&[&one, &two]), &log).create(site.store(0)).unwrap();
        let mut store = first;
        let mut others = vec![(1, one), (2, two)];
        let mut leader = 0;
        let mut model = BTreeMap::new();
        for (changes, turn) in commits {
            store.transact(|tx| {
                for (key, value) in &changes {
                    match value {
                        Some(value) => tx.put(&[*key], &vec![*value; 1 + usize::from(*value)])?,
                        None => tx.delete(&[*key])?,
                    };
                }
                Ok(())
            }).unwrap();
            for (key, value) in changes {
                match value {
                    Some(value) => model.insert(vec![key], vec![value; 1 + usize::from(value)]),
                    None => model.remove(&vec![key]),
                };
            }
            let at = |others: &[(u32, Follower)]| {
                others.iter().fold(Replicas::new().trust(trust()), |copies, other| copies.at(&other.1.address()))
            };
            match turn {
                None => {}
                Some(Turn::Sync) => store.sync().unwrap(),
                Some(Turn::Reopen) => {
                    store.abandon();
                    let copies = at(&others).local(site.log(leader));
                    store = Options::new().replicated(&copies, &log).open(site.store(leader)).unwrap();
                }
                Some(Turn::Promote) => {
                    store.abandon();
                    let (number, follower) = others.remove(0);
                    store = follower.promote(&at(&others), &log).unwrap();
                    let old = site.follow(leader);
                    store.join(&old.address(), &trust()).unwrap();
                    others.push((leader, old));
                    leader = number;
                }
                Some(Turn::Away) => {
                    let (number, follower) = others.remove(0);
                    drop(follower);
                    let back = site.follow(number);
                    store.join(&back.address(), &trust()).unwrap();
                    others.push((number, back));
                }
            }
            prop_assert_eq!(&all(&store), &model);
        }
        store.put(b"last", b"1").unwrap();
        model.insert(b"last".to_vec(), b"1".to_vec());
        for (_, follower) in others {
            await_that(&follower, || follower.store().get(b"last").unwrap().is_some());
            prop_assert_eq!(&all(follower.store()), &model);
        }
    }
}

#[test]
fn reads_of_a_follower_are_of_one_moment() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let store = site.lead(&[&one, &two]).unwrap();
    let set = |n: u32| {
        store.transact(|tx| {
            tx.put(b"left", &n.to_be_bytes())?;
            tx.put(b"right", &n.to_be_bytes())?;
            Ok(())
        })
    };
    set(0).unwrap();
    await_commits(&one, 1);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| (1..300).try_for_each(set));
        let mut last = 0;
        while !writer.is_finished() {
            let commits = one.status().commits;
            let tx = one.store().begin(Isolation::Snapshot).unwrap();
            let (left, right) = (tx.get(b"left").unwrap().unwrap(), tx.get(b"right").unwrap().unwrap());
            assert_eq!(left, right);
            let now = u32::from_be_bytes(left.try_into().unwrap());
            assert!(now >= last, "it goes back from {last} to {now}");
            assert!(u64::from(now) + 1 >= commits, "commit {commits} is told, and {now} is there");
            last = now;
        }
        writer.join().unwrap().unwrap();
    });
}

/// What a follower shows is what readers of the leader saw at some moment: nothing of a commit without those that come before it.
#[test]
fn a_follower_shows_no_commit_without_those_before_it() {
    let gap = |step: Option<kv::Step>, often: u32| {
        let site = Site::new();
        let one = site.follow(1);
        let options = step.into_iter().fold(Options::new(), Options::without);
        let options = options.replicated(&site.copies(&[&one]), &log_of(1 << 20));
        let store = options.create(site.store(0)).unwrap();
        let found = crate::unpublished::shows_a_gap(&store, often, || {
            let snapshot = one.snapshot().unwrap();
            [b"x", b"y"].map(|key| snapshot.get(key).unwrap().unwrap_or_default().to_vec())
        });
        await_commits(&one, 4);
        assert_eq!(all(one.store()), all(&store));
        found
    };
    assert!(!gap(None, 300));
    assert!(gap(Some(kv::Step::NumbersInOrder), TIMEOUT), "commits are numbered as they come");
}

/// It learns that its store is behind when it is told to lead, and not before: it follows on, and says so.
#[test]
fn one_that_is_behind_and_is_to_lead_follows_on() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().replicated(&site.copies(&[&one, &two]), &log_of(256 << 10));
    let store = options.create(site.store(0)).unwrap();
    two.stop().unwrap();
    (0..400_u32).for_each(|n| store.put(&n.to_be_bytes(), &[7; 2000]).map(|_| ()).unwrap()); // more than the log holds
    let two = Follower::serve_holding(&Options::new(), site.store(2), site.log(2), "127.0.0.1:0", &trust()).unwrap();
    store.join(&two.address(), &trust()).unwrap();
    let failed = (0..6000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        two.has_failed()
    });
    assert!(failed, "it is not behind");
    let others = Replicas::new().at(&one.address()).trust(trust());
    let not = two.promote(&others, &log_of(256 << 10)).unwrap_err();
    assert!(matches!(not.error, Error::Behind { .. }), "{not}");
    let two = not.follow().unwrap();
    await_that_fails(&two);
    store.put(b"the leader", b"leads").unwrap();
}

/// A machine comes back that is further behind than the log, and is needed for a quorum before it has caught up: the leader waits for it, and what it gets meets the log.
#[test]
fn a_copy_that_catches_up_keeps_what_comes_meanwhile() {
    let site = Site::new();
    let (one, two) = (site.follow(1), site.follow(2));
    let options = Options::new().replicated(&site.copies(&[&one, &two]), &log_of(256 << 10));
    let store = Arc::new(options.create(site.store(0)).unwrap());
    let put =
        |from: u32, to: u32| (from..to).for_each(|n| store.put(&n.to_be_bytes(), &[7; 2000]).map(|_| ()).unwrap());
    put(0, 10);
    two.stop().unwrap();
    put(10, 400); // more than the log holds
    let two = Follower::serve_holding(&Options::new(), site.store(2), site.log(2), "127.0.0.1:0", &trust()).unwrap();
    store.join(&two.address(), &trust()).unwrap();
    let steward = kv::Steward::serve(&store, "127.0.0.1:0", &trust()).unwrap();
    let leader = steward.address().to_string();
    await_that_fails(&two);
    one.stop().unwrap();

    let done = AtomicU32::new(400);
    let two = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 400..800 {
                put(n, n + 1);
                done.store(n, Release);
            }
        });
        // Until the log is full of what the copy holds.
        let (mut before, mut same) = (0, 0);
        while same < 30 {
            std::thread::sleep(Duration::from_millis(10));
            let now = done.load(Acquire);
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        assert!(before < 700, "the copy holds nothing");
        let seed = two.fetch_seed(&leader, &|| false).unwrap();
        two.begin_with(&seed).unwrap()
    });
    await_commits(&two, 800);
    assert_eq!(all(two.store()), all(&store));
    let status = kv::leader_status(&leader, &trust()).unwrap();
    assert_eq!((status.commits, status.write_quorum, status.copies.len()), (800, 2, 2));
    assert_eq!(status.copies.iter().filter(|copy| copy.live && copy.what == two.address()).count(), 1);

    // Told to leave and to come, while the leader leads.
    let gone = status.copies.iter().find(|copy| !copy.live).unwrap().id;
    let ids: Vec<u64> = status.copies.iter().map(|copy| copy.id).chain([status.own]).collect();
    let refused = kv::ask_to_remove(&leader, &trust(), 1).unwrap_err().to_string();
    assert!(ids.iter().all(|id| refused.contains(&format!("{id:x}"))), "{refused}");
    assert!(matches!(store.remove_copy(1), Err(Error::NoSuchCopy { id: 1, copies }) if copies.len() == 3));
    kv::ask_to_remove(&leader, &trust(), gone).unwrap();
    assert!(kv::ask_to_remove(&leader, &trust(), gone).is_err(), "it is none any more");
    let three = site.follow(3);
    kv::ask_to_join(&leader, &trust(), &three.address()).unwrap();
    assert_eq!(kv::leader_status(&leader, &trust()).unwrap().copies.iter().filter(|copy| copy.live).count(), 2);
    assert!(matches!(kv::ask_to_join(&leader, &trust(), "127.0.0.1:1"), Err(Error::Log(_))));

    // It can lead with what it has.
    drop(steward);
    store.fence();
    assert!(store.put(b"late", b"").is_err());
    let promoted = two.promote(&Replicas::new().at(&three.address()).trust(trust()), &log_of(256 << 10)).unwrap();
    assert_eq!(promoted.get(&799_u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 2000][..]));
}

/// A leader that elections are held for can be asked to have another machine lead; any other says no.
#[test]
fn a_leader_is_asked_to_have_another_machine_lead() {
    let site = Site::new();
    let one = site.follow(1);
    let store = Arc::new(site.lead(&[&one]).unwrap());
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let transfer = move |to: &str| {
        seen.lock().unwrap().push(to.to_owned());
        if to == "one:7400" { Ok(()) } else { Err("no such machine is announced".to_owned()) }
    };
    let steward = kv::Steward::serve_with(&store, "127.0.0.1:0", &trust(), Box::new(transfer)).unwrap();
    let leader = steward.address().to_string();
    kv::ask_to_transfer(&leader, &trust(), "one:7400").unwrap();
    let refused = kv::ask_to_transfer(&leader, &trust(), "two:7400").unwrap_err().to_string();
    assert!(refused.contains("no such machine is announced"), "{refused}");
    assert_eq!(*asked.lock().unwrap(), ["one:7400", "two:7400"]);
    drop(steward);
    let steward = kv::Steward::serve(&store, "127.0.0.1:0", &trust()).unwrap();
    let refused = kv::ask_to_transfer(&steward.address().to_string(), &trust(), "one:7400").unwrap_err().to_string();
    assert!(refused.contains("no other machine lead on request"), "{refused}");
}

/// A change of replicas is nothing for a store that has none: it does not follow another one, either.
#[test]
fn a_store_of_its_own_has_no_replicas() {
    let site = Site::new();
    let store = Store::open(site.store(0)).unwrap();
    assert!(matches!(store.join("127.0.0.1:1", &trust()), Err(Error::NotReplicated)));
    assert!(matches!(store.remove_copy(1), Err(Error::NotReplicated)));
    assert!(matches!(store.leader_status(), Err(Error::NotReplicated)));
    store.check_leading().unwrap();
    assert_eq!((store.copies().len(), store.transaction_max()), (0, None));
}

/// Waits until a follower says that it is behind.
pub(crate) fn await_that_fails(follower: &Follower) {
    for _ in 0..TIMEOUT {
        match follower.wait(Duration::from_millis(1)) {
            Ok(_) => {}
            Err(Error::Behind { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{follower:?} is not behind");
}
