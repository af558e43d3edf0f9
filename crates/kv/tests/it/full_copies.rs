//! Whatever a leader finds room for, a follower of the same size does, too: it repeats what was committed, however full its leader was, and is empty when that is.
//!
//! Threads fill a store that cannot grow, delete, overwrite and fill it again; both followers have the same in the end, and one of them leads on.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use kv::{Batch, Error, Follower, Options};

use crate::full::{Lengths, MIB, Random, value};
use crate::replicated::{Site, all, await_commits, await_that, await_that_fails, log_of, trust};

/// Much longer than anything takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Values are shorter than a segment by so many powers of two.
const LENGTHS: u32 = 4;

#[derive(Clone, Copy, Debug)]
struct Plan {
    bytes: u64,
    segment: u64,
    log: u64,
    lengths: Lengths,
    threads: u64,
    /// Keys of each thread.
    keys: u64,
    /// Changes of a batch, at most.
    together: u64,
    /// Of the batches that follow a refusal, how many only delete.
    deletes: u64,
    batches: u64,
}

impl Plan {
    fn of(random: &mut Random) -> Self {
        let segment = (64 << random.below(3)) << 10;
        // Longer values leave room at the ends of segments that is not for others.
        let longest = u64::ilog2(segment) - LENGTHS;
        let low = random.below(u64::from(longest)) as u32;
        let high = low + random.below(u64::from(longest - low)) as u32;
        // A batch is one record of the log, and shorter than its segments.
        let together = 1 << random.below(u64::from(16 - high).min(6));
        Self {
            bytes: (4 << random.below(3)) * MIB,
            segment,
            log: (1 << random.below(2)) * MIB,
            lengths: Lengths(low, high),
            threads: 1 + random.below(4),
            keys: 1 << (8 + random.below(9)),
            together,
            deletes: 1 + random.below(20),
            batches: 4000,
        }
    }

    fn options(&self) -> Options {
        let pool = pmem::Options::new().max_size(self.bytes).domain(pmem::DomainChoice::Emulated);
        Options::new().segment_bytes(self.segment).pool(pool)
    }
}

/// Returns how often a batch was refused.
fn churn(store: &kv::Store, plan: &Plan, thread: u64, random: &mut Random) -> u64 {
    let (mut refused, mut deletes) = (0, 0);
    for _ in 0..plan.batches {
        let mut batch = Batch::new();
        for _ in 0..1 + random.below(plan.together) {
            let key = (thread << 32 | random.below(plan.keys)).to_be_bytes();
            if deletes > 0 {
                batch.delete(&key);
            } else {
                batch.put(&key, &value(&key, plan.lengths.any(random)));
            }
        }
        deletes -= deletes.min(1);
        match store.write(&batch) {
            Ok(()) => {}
            Err(Error::Full { .. }) => (refused, deletes) = (refused + 1, plan.deletes),
            Err(other) => panic!("{other}"),
        }
    }
    refused
}

fn fill_and_follow(seed: u64) {
    let mut random = Random::new(seed);
    let plan = Plan::of(&mut random);
    println!("seed {seed}: {plan:?}");
    let site = Site::new();
    let follow = |machine| {
        Follower::serve_holding(&plan.options(), site.store(machine), site.log(machine), "127.0.0.1:0", &trust())
            .unwrap()
    };
    let (one, two) = (follow(1), follow(2));
    let copies = site.copies(&[&one, &two]).timeout(TIMEOUT);
    let log = log_of(plan.log).when_full(log::WhenFull::Wait(TIMEOUT));
    let store = plan.options().replicated(&copies, &log).create(site.store(0)).unwrap();
    let (refused, begin) = (AtomicU64::new(0), Barrier::new(plan.threads as usize));
    std::thread::scope(|threads| {
        for thread in 0..plan.threads {
            let (store, plan, refused, begin) = (&store, &plan, &refused, &begin);
            let mut random = Random::new(seed << 8 | thread);
            threads.spawn(move || {
                begin.wait();
                refused.fetch_add(churn(store, plan, thread, &mut random), Relaxed);
            });
        }
    });
    let commits = store.stats().commits;
    println!("{} refused of {commits}, {:?}", refused.into_inner(), store.stats());
    for follower in [&one, &two] {
        while follower.status().commits < commits {
            if let Err(error) = follower.wait(Duration::from_millis(1)) {
                panic!("{error:?} at {} of {commits}; {:?}", follower.status().commits, follower.store().stats());
            }
        }
        await_commits(follower, commits);
        assert_eq!(all(follower.store()), all(&store));
    }
    let had = all(&store);
    store.abandon();
    let promoted = one.promote(&beside(&two), &log_of(plan.log)).unwrap();
    assert_eq!(all(&promoted), had);
    for key in had.keys() {
        promoted.delete(key).unwrap();
    }
    await_commits(&two, commits + had.len() as u64);
    assert!(all(two.store()).is_empty());
}

/// The other copies, for one that leads.
fn beside(other: &Follower) -> log::Replicas {
    log::Replicas::new().at(&other.address()).trust(trust())
}

#[test]
fn a_follower_finds_room_for_what_its_leader_found_room_for() {
    let number =
        |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    let first = number("CAIRN_SPACE_SEED", 105);
    (first..first + number("CAIRN_SPACE_SEEDS", 2)).for_each(fill_and_follow);
}

#[test]
fn a_follower_without_room_waits_for_it() {
    let site = Site::new();
    let pool = pmem::Options::new().max_size(MIB).domain(pmem::DomainChoice::Emulated);
    let options = Options::new().segment_bytes(16 << 10).pool(pool);
    let one = Follower::serve_holding(&options, site.store(1), site.log(1), "127.0.0.1:0", &trust()).unwrap();
    let copies = site.copies(&[&one]).timeout(TIMEOUT);
    let store = options.replicated(&copies, &log_of(MIB / 4)).create(site.store(0)).unwrap();
    let put = |n: u32| {
        store.put(&(n % 100).to_be_bytes(), &[n as u8; 1000]).unwrap();
    };
    (0..100).for_each(put);
    await_commits(&one, 100);
    let first = all(&store);
    // A reader of the follower keeps all that is overwritten.
    let snapshot = one.snapshot().unwrap();
    let full = (100..2000).find(|n| {
        put(*n);
        await_that(&one, || one.status().full || one.status().commits + 50 > u64::from(*n));
        one.status().full
    });
    let commits = u64::from(full.expect("more was kept than there is room for")) + 1;
    assert!(one.wait(Duration::from_millis(1500)).unwrap() && one.status().full && one.status().commits < commits);
    let seen = snapshot.scan(kv::Keys::all()).map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap());
    assert_eq!(seen.collect::<std::collections::BTreeMap<_, _>>(), first);
    drop(snapshot);
    await_commits(&one, commits);
    assert_eq!(all(one.store()), all(&store));
    await_that(&one, || !one.status().full);
    // It ends while it waits, and that is no failure.
    let snapshot = one.snapshot().unwrap();
    let full = (100..2000).find(|n| {
        put(*n);
        await_that(&one, || one.status().full || one.status().commits + 50 > commits + u64::from(*n) - 100);
        one.status().full
    });
    assert!(full.is_some());
    drop(snapshot);
    one.stop().unwrap();
}

/// While a replica joins, what it lacks stays in the log, which may be full for longer than a commit is tried, 5 s. For a minute.
fn when_the_log_has_room<T>(mut change: impl FnMut() -> kv::Result<T>) -> T {
    let mut refused = 0;
    loop {
        match change() {
            Err(Error::LogFull { .. }) if refused < 12 => refused += 1,
            other => return other.unwrap(),
        }
    }
}

/// Its leader has given it up meanwhile, and the log has gone on: room for the next commit would not do any more.
#[test]
fn a_follower_without_room_is_given_up_and_begins_with_a_seed() {
    let site = Site::new();
    let of = |bytes| {
        let pool = pmem::Options::new().max_size(bytes).domain(pmem::DomainChoice::Emulated);
        Options::new().segment_bytes(16 << 10).pool(pool)
    };
    let follow = |machine, bytes| {
        let (store, log) = (site.store(machine), site.log(machine));
        Follower::serve_holding(&of(bytes), store, log, "127.0.0.1:0", &trust()).unwrap()
    };
    let (one, small) = (follow(1, 8 * MIB), follow(2, 2 * MIB));
    // The leader waits for `small` so long, and gives up `one`, without which nothing is committed, no sooner.
    let copies = site.copies(&[&one, &small]).timeout(Duration::from_secs(8));
    let store = Arc::new(of(8 * MIB).replicated(&copies, &log_of(MIB / 4)).create(site.store(0)).unwrap());
    let put = |n: u32| {
        when_the_log_has_room(|| store.put(&n.to_be_bytes(), &[7; 1000]));
    };
    let why_full = (0..4000).find_map(|n| {
        put(n);
        await_that(&small, || small.why_full().is_some() || small.status().commits + 50 > u64::from(n));
        Some((n, small.why_full()?))
    });
    let (count, why) = why_full.expect("4 MB fit into 2 MiB");
    assert!(why.contains("may not grow beyond 2097152 bytes"), "{why}");

    // Twice what the log holds: the leader gives it up. It is taken in again by itself, and learns what it lacks. There is room for all that is left.
    (count + 1..count + 500).for_each(put);
    for n in 100..count + 500_u32 {
        when_the_log_has_room(|| store.delete(&n.to_be_bytes()));
    }
    await_that_fails(&small);
    assert!(small.has_failed() && !small.status().full && small.why_full().is_none());

    let steward = kv::Steward::serve(&store, "127.0.0.1:0", &trust()).unwrap();
    let seed = small.fetch_seed(&steward.address().to_string(), &|| false).unwrap();
    let small = small.begin_with(&seed).unwrap();
    when_the_log_has_room(|| store.put(b"again", b"1"));
    await_that(&small, || small.store().get(b"again").unwrap().is_some());
    assert_eq!(all(small.store()), all(&store));
    assert!(small.why_full().is_none());
    let is_live = |copy: &kv::CopyStatus| copy.live && copy.what == small.address();
    await_that(&small, || store.leader_status().unwrap().copies.iter().any(is_live));
}

/// The log is longer than the store may be.
#[test]
fn a_small_store_has_a_log_as_long_as_it_is() {
    let site = Site::new();
    let pool = pmem::Options::new().max_size(4 * MIB).domain(pmem::DomainChoice::Emulated);
    let options = Options::new().segment_bytes(64 << 10).pool(pool);
    let one = Follower::serve_with(&options, site.store(1), site.log(1), "127.0.0.1:0", &trust()).unwrap();
    let two = Follower::serve_with(&options, site.store(2), site.log(2), "127.0.0.1:0", &trust()).unwrap();
    let store = one.found(&beside(&two), &log_of(8 * MIB)).unwrap();
    store.put(b"apples", b"17").unwrap();
    await_commits(&two, 1);
}
