//! Steps of the protocol that crashes do not ask for are left out, and each time a test notices: isolation first, then the order of a log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use conformance::keys::{Subject, checks};
use kv::{Batch, Error, Isolation, Keys, Options, Step, Store, Transaction};
use pmem::sync::switch_point;

use crate::isolation::{Own, own, small};
use crate::orders::each_order;

// ---- the suite -------------------------------------------------------------------------------------------------

/// The store as the suite knows it, without a step.
struct Without(Option<Step>);

impl Subject for Without {
    type Store = Own;

    fn fresh(&self) -> Own {
        own(without(small(), self.0))
    }

    fn fresh_scheduled(&self) -> Own {
        own(without(small().background(false), self.0))
    }
}

fn without(options: Options, step: Option<Step>) -> Options {
    step.into_iter().fold(options, Options::without)
}

fn passes(step: Option<Step>, group: &str, name: &str) -> bool {
    let checks = checks();
    let check = checks.iter().find(|check| (check.group, check.name) == (group, name)).unwrap();
    catch_unwind(AssertUnwindSafe(|| check.run(&Arc::new(Without(step))))).is_ok()
}

/// Scripts, and schedules that are drawn from a seed: the same each time.
#[test]
fn the_suite_misses_each_step_of_isolation() {
    let found_by: &[(Step, &[(&str, &str)])] = &[
        (Step::Announce, &[("schedules", "two_validators"), ("schedules", "two_phantoms"), ("schedules", "random")]),
        (
            Step::AwaitPreparing,
            &[("schedules", "two_validators"), ("schedules", "two_phantoms"), ("schedules", "random")],
        ),
        (Step::Validate, &[("hermitage", "g2_item"), ("hermitage", "g2"), ("predicates", "absent_keys")]),
        (Step::ValidateScans, &[("hermitage", "g2"), ("predicates", "between"), ("predicates", "after_splits")]),
    ];
    for (step, checks) in found_by {
        for (group, name) in *checks {
            assert!(passes(None, group, name), "{group}: {name}");
            assert!(!passes(Some(*step), group, name), "without {step:?} nobody noticed in {group}: {name}");
        }
    }
}

// ---- two validators --------------------------------------------------------------------------------------------

/// How a transaction looks whether the other one's key is set.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// The key has a value that says no.
    Get,
    /// It was never there. All these keys make leaves split, too.
    Miss,
    /// A scan of its range.
    Scan,
}

const LOOKS: [Look; 3] = [Look::Get, Look::Miss, Look::Scan];

impl Look {
    fn is_set(self, tx: &Transaction<'_>, key: &[u8]) -> kv::Result<bool> {
        match self {
            Self::Get | Self::Miss => Ok(tx.get(key)? == Some(b"1")),
            Self::Scan => {
                let end = [key, b"~"].concat();
                let mut found = tx.scan(Keys::from(key).until(&end));
                found.try_fold(false, |set, pair| Ok(set || pair?.1 == b"1"))
            }
        }
    }

    /// Two keys.
    fn keys(self, round: usize) -> [Vec<u8>; 2] {
        ["a", "z"].map(|name| match self {
            Self::Miss => format!("{name}{:05}", round * 7919 % 65536).into_bytes(),
            Self::Get | Self::Scan => name.into(),
        })
    }

    /// The same, not set.
    fn fresh_keys(self, store: &Store, round: usize) -> [Vec<u8>; 2] {
        let keys = self.keys(round);
        for key in &keys {
            match self {
                Self::Get => store.put(key, b"0").unwrap(),
                Self::Miss => false,
                Self::Scan => store.delete(key).unwrap(),
            };
        }
        keys
    }
}

/// Without checkpoints; the two keys in one leaf, or in leaves of their own.
fn store(step: Option<Step>, far: bool) -> Own {
    let own = own(without(Options::new().background(false), step));
    for n in 0..if far { 500 } else { 1 } {
        own.store.put(format!("m{n:03}").as_bytes(), b"").unwrap();
    }
    own
}

/// Sets its own key unless the other one is set.
fn set_if_alone(tx: &mut Transaction<'_>, look: Look, [own, other]: [&[u8]; 2], meet: &dyn Fn()) -> kv::Result<()> {
    let set = look.is_set(tx, other)?;
    meet();
    if !set {
        tx.put(own, b"1")?;
    }
    Ok(())
}

/// Tries it once.
fn once(store: &Store, f: impl FnOnce(&mut Transaction<'_>) -> kv::Result<()>) {
    let attempt = || {
        let mut tx = store.begin(Isolation::Serializable)?;
        f(&mut tx)?;
        tx.commit()
    };
    match attempt() {
        Ok(_) | Err(Error::Conflict { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn one_is_set(store: &Store, keys: &[Vec<u8>]) -> bool {
    keys.iter().filter(|key| store.get(key).unwrap().as_deref() == Some(b"1")).count() == 1
}

/// Each look, with the keys together and apart.
fn cases() -> impl Iterator<Item = (Look, bool)> {
    LOOKS.into_iter().flat_map(|look| [(look, false), (look, true)])
}

/// Runs two transactions in each order; returns how many it took until not exactly one key was set, `None` if that is never so.
fn miss_each_other(
    own: &Own,
    look: Look,
    run: impl Fn(&Store, &dyn Fn(&mut Transaction<'_>) -> kv::Result<()>) + Sync,
) -> Option<usize> {
    let (store, mut round, mut wrong) = (&own.store, 0, false);
    let orders = each_order(PREEMPTIONS, |order| {
        let keys = look.fresh_keys(store, round);
        round += 1;
        let thread = |own: usize| {
            let (run, keys) = (&run, [&keys[own][..], &keys[1 - own]]);
            move || run(store, &|tx| set_if_alone(tx, look, keys, &switch_point))
        };
        order.run([&thread(0), &thread(1)]);
        wrong = !one_is_set(store, &keys);
        !wrong
    });
    assert!(wrong || orders > 500, "{orders} orders");
    wrong.then_some(orders)
}

const PREEMPTIONS: usize = 4;

#[test]
fn two_validators_do_not_both_miss_each_other() {
    for (look, far) in cases() {
        let found = |step| miss_each_other(&store(step, far), look, |store, f| once(store, f));
        assert_eq!(found(None), None, "{look:?}");
        for step in [Step::Announce, Step::AwaitPreparing, Step::Validate] {
            assert!(found(Some(step)).is_some(), "{look:?} without {step:?}");
        }
        let by_scans = found(Some(Step::ValidateScans)).is_some();
        assert_eq!(by_scans, matches!(look, Look::Scan), "{look:?}");
    }
}

/// A transaction that meets a conflict tries again with locks, and waits for them.
#[test]
fn two_who_insist_do_not_miss_each_other_either() {
    for (look, far) in cases() {
        let found = miss_each_other(&store(None, far), look, |store, f| store.transact(|tx| f(tx)).unwrap());
        assert_eq!(found, None, "{look:?}");
    }
}

/// Keys of a full leaf of the index.
const LEAF: usize = 64;

/// A leaf that is full splits while a transaction is about to commit to what moves: one order after the other, each on a store of its own.
#[test]
fn a_split_does_not_hide_who_prepares() {
    for look in [Look::Get, Look::Scan] {
        let orders = each_order(PREEMPTIONS - 1, |order| {
            let own = own(Options::new().background(false).segment_bytes(16 << 10).transactions(16));
            let store = &own.store;
            let keys = look.keys(0);
            let mut full = Batch::new();
            for n in keys.len()..LEAF {
                full.put(format!("m{n}").as_bytes(), b"");
            }
            keys.iter().fold(&mut full, |full, key| full.put(key, b"0"));
            store.write(&full).unwrap();
            let set_if_alone = |me: usize| {
                once(store, |tx| set_if_alone(tx, look, [&keys[me], &keys[1 - me]], &|| ()));
            };
            let split = || {
                store.put(b"m", b"").unwrap();
                set_if_alone(0);
            };
            order.run([&|| set_if_alone(1), &split]);
            assert!(one_is_set(store, &keys), "{look:?}");
            true
        });
        assert!(orders > 500, "{orders} orders");
    }
}

/// The same race on real processors, which stop at no switch point; returns how often not exactly one key was set.
fn race(step: Option<Step>, look: Look, far: bool, rounds: usize) -> usize {
    let own = store(step, far);
    let (store, arrived) = (&own.store, &AtomicUsize::new(0));
    // Three times a round both go on at the same moment.
    let meet = |times: usize| {
        arrived.fetch_add(1, SeqCst);
        let mut tries = 0;
        while arrived.load(SeqCst) < 2 * times {
            tries += 1;
            assert!(tries < 100_000_000, "the other one is gone");
            if tries < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    };
    let thread = |me: usize| {
        move || {
            let mut wrong = 0;
            for round in 0..rounds {
                if me == 0 {
                    look.fresh_keys(store, round);
                }
                meet(3 * round + 1);
                let keys = look.keys(round);
                let (own, other) = (&keys[me], &keys[1 - me]);
                once(store, |tx| set_if_alone(tx, look, [own, other], &|| meet(3 * round + 2)));
                meet(3 * round + 3);
                wrong += usize::from(me == 0 && !one_is_set(store, &keys));
            }
            wrong
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(thread(1));
        thread(0)()
    })
}

#[test]
fn two_validators_race() {
    for (look, far) in cases() {
        assert_eq!(race(None, look, far, 3000), 0, "{look:?}");
        // Both have read before either commits, so this does not hang on luck.
        assert_eq!(race(Some(Step::Validate), look, far, 100), 100, "{look:?}");
    }
}

// ---- a reader ----------------------------------------------------------------------------------------------------

/// One sets both keys, the other one looks at them, twice; returns whether what it saw was ever not one state.
fn reader_sees_half(step: Option<Step>, level: Isolation, first: usize, look: Look, far: bool) -> bool {
    let own = store(step, far);
    let (store, mut round, mut half) = (&own.store, 0, false);
    let orders = each_order(PREEMPTIONS, |order| {
        let keys = &look.fresh_keys(store, round);
        round += 1;
        let write = || {
            store.transact(|tx| keys.iter().try_for_each(|key| tx.put(key, b"1").map(drop))).unwrap();
            true
        };
        let read = || {
            let tx = store.begin(level).unwrap();
            let seen = [first, 1 - first, 0, 1].map(|key| {
                switch_point();
                look.is_set(&tx, &keys[key]).unwrap()
            });
            seen == [seen[0]; 4]
        };
        let [_, one_state] = order.run([&write, &read]);
        half = !one_state;
        !half
    });
    assert!(half || orders > 500, "{orders} orders");
    half
}

#[test]
fn a_reader_does_not_skip_who_prepares() {
    for (look, far) in cases() {
        for (level, first) in [(Isolation::Snapshot, 0), (Isolation::Serializable, 1)] {
            assert!(!reader_sees_half(None, level, first, look, far), "{level}: {look:?}");
            for step in [Step::Announce, Step::AwaitPreparing] {
                assert!(reader_sees_half(Some(step), level, first, look, far), "{level}: {look:?} without {step:?}");
            }
        }
    }
}

// ---- a put by itself ---------------------------------------------------------------------------------------------

/// One that the first put has begun a segment for, so that the next goes its own way. Two keys of which a leaf keeps the same.
fn alike(step: Option<Step>) -> (Own, [Vec<u8>; 2]) {
    let own = own(without(small().background(false), step));
    let tag = |key: &[u8]| xxhash_rust::xxh3::xxh3_64(key) >> 50;
    let first = b"key".to_vec();
    let others = (0_u32..).map(|n| n.to_be_bytes().to_vec());
    let second = others.into_iter().find(|other| tag(other) == tag(&first)).unwrap();
    own.store.put(&first, b"1").unwrap();
    (own, [first, second])
}

#[test]
fn a_put_does_not_take_another_key_for_its_own() {
    let lost = |step| {
        let (own, [first, second]) = alike(step);
        let had = own.store.put(&second, &[2; 300]).unwrap();
        had || own.store.get(&first).unwrap().as_deref() != Some(b"1")
    };
    assert!(!lost(None));
    assert!(lost(Some(Step::CompareKeys)));
}

/// A key of eight bytes with the same hash as this one of four to seven: XXH3 mixes up to eight bytes by steps that go backwards, too.
fn of_same_hash(key: &[u8]) -> [u8; 8] {
    const PRIME: u64 = 0x9fb2_1c65_1e98_df25;
    let hash = xxhash_rust::xxh3::xxh3_64;
    let back = |mut h: u64| {
        let inverse = (0..6).fold(PRIME, |x, _| x.wrapping_mul(2_u64.wrapping_sub(PRIME.wrapping_mul(x))));
        h ^= h >> 28 ^ h >> 56;
        h = h.wrapping_mul(inverse);
        h ^= (h >> 35) + 8;
        h = h.wrapping_mul(inverse);
        // To the power of 64 it is nothing at all.
        (0..63).fold(h, |h, _| h ^ h.rotate_left(49) ^ h.rotate_left(24))
    };
    // The hash of zeros tells what is mixed in first.
    let found = (back(hash(key)) ^ back(hash(&[0; 8]))).rotate_left(32).to_le_bytes();
    assert_eq!(hash(&found), hash(key));
    found
}

/// Of two keys with one hash in two leaves each is found, whichever was asked for ahead.
#[test]
fn a_key_is_not_missed_where_another_one_of_its_hash_was() {
    let misses = |step| {
        let own = own(without(small().background(false), step));
        let store = &own.store;
        let pairs = (0..200_u32).map(|n| [&[7][..], &n.to_le_bytes()].concat()).map(|key| (of_same_hash(&key), key));
        let (far, near) = pairs.into_iter().find(|(far, _)| far[0] > 0x80).unwrap();
        for n in 0..=255 {
            store.put(&[n, n], b"").unwrap();
        }
        store.put(&near, b"near").unwrap();
        store.put(&far, b"far").unwrap();
        let mut tx = store.begin(Isolation::Serializable).unwrap();
        tx.prefetch(&[&near[..]]);
        let found = tx.get(&far).unwrap() == Some(b"far") && tx.get(&near).unwrap() == Some(b"near");
        // A put looks for what it supersedes.
        let had = tx.put(&far, b"2").unwrap() && tx.put(&near, b"2").unwrap();
        tx.commit().unwrap();
        !(found && had)
    };
    assert!(!misses(None));
    assert!(misses(Some(Step::LookTwice)));
}

/// One key is put and deleted in turn, so that places of tombstones are tombstones' again. While upkeep is kept from some of them by a transaction that has the
/// key, their places are given away; the one that is there then is in sight of a snapshot.
fn a_snapshot_loses_its_key(step: Option<Step>, seed: u64) -> bool {
    let own = own(without(small().segment_bytes(4 << 10).checkpoint_bytes(1 << 20).background(false), step));
    let (store, mut lost) = (&own.store, false);
    let (put, delete) = (|| store.put(b"key", b"value").unwrap(), || store.delete(b"key").unwrap());
    for round in 0..4 {
        for turn in 0..30 {
            for _ in 0..30 + (seed + turn) % 7 {
                put();
                delete();
            }
            let mut holder = store.begin(Isolation::Snapshot).unwrap();
            holder.put(b"key", b"not committed").unwrap();
            store.checkpoint().unwrap();
        }
        for _ in 0..seed + round {
            put();
            delete();
        }
        put();
        let snapshot = store.snapshot().unwrap();
        delete();
        store.checkpoint().unwrap();
        lost |= snapshot.get(b"key").unwrap().is_none();
    }
    lost
}

#[test]
fn a_tombstone_at_the_place_of_an_earlier_one_stays_while_somebody_reads_behind_it() {
    for seed in 0..8 {
        assert!(!a_snapshot_loses_its_key(None, seed), "seed {seed}");
    }
    assert!((0..8).any(|seed| a_snapshot_loses_its_key(Some(Step::KnowTombstones), seed)));
}

/// What it gives up, since the key was another one, is nowhere, if the program ends then.
#[test]
fn a_put_that_is_given_up_leaves_no_record() {
    let leaves = |step| {
        let (own, [first, second]) = alike(step);
        let dir = crate::memory();
        let (at, copy) = (own.store.pool().path().to_owned(), dir.path().join("copy"));
        let to = copy.clone();
        // The first time it is about to be stored it is alone; the next time it is a transaction.
        kv::at_next_commit(move || {
            kv::at_next_commit(move || {
                std::fs::copy(at, to).unwrap();
            });
        });
        assert!(!own.store.put(&second, &[2; 300]).unwrap());
        let copy = small().background(false).open(&copy).unwrap();
        assert_eq!(copy.get(&first).unwrap().unwrap(), b"1");
        copy.get(&second).unwrap().is_some()
    };
    assert!(!leaves(None));
    assert!(leaves(Some(Step::ChecksumLast)));
}

/// A reader that looks twice beside it finds the same.
fn looks_differ(step: Option<Step>) -> bool {
    let own = own(without(small().background(false), step));
    let (store, mut round, mut differ) = (&own.store, 0_u32, false);
    let orders = each_order(PREEMPTIONS - 1, |order| {
        round += 1;
        let put = || {
            // The first one of a thread begins a segment.
            store.put(b"before", b"").unwrap();
            store.put(b"key", &round.to_be_bytes()).unwrap();
            true
        };
        let look = || {
            let tx = store.begin(Isolation::Snapshot).unwrap();
            let found = [(); 2].map(|()| {
                switch_point();
                tx.get(b"key").unwrap().map(<[u8]>::to_vec)
            });
            found[0] == found[1]
        };
        let [_, same] = order.run([&put, &look]);
        differ = !same;
        same
    });
    assert!(differ || orders > 100, "{orders} orders");
    differ
}

#[test]
fn a_reader_does_not_skip_who_puts_alone() {
    assert!(!looks_differ(None));
    for step in [Step::Announce, Step::AwaitPreparing] {
        assert!(looks_differ(Some(step)), "{step:?}");
    }
}

// ---- the order of a log ------------------------------------------------------------------------------------------

/// Of three transactions in a row the second goes bad. The third is whole, and it proves that the second was durable.
#[test]
fn a_log_without_links_forgets_in_silence() {
    for bytes in [20, 2000] {
        let dir = crate::memory();
        let path = dir.path().join("store");
        let options = || Options::new().segment_bytes(4096).background(false);
        let store = options().create(&path).unwrap();
        let value = |n: u8| vec![n; bytes];
        for n in 1..=3 {
            store.put(&[n], &value(n)).unwrap();
        }
        store.abandon(); // not checkpointed
        let mut image = std::fs::read(&path).unwrap();
        let second = image.windows(bytes).position(|window| window == value(2)).unwrap();
        image[second] ^= 1;
        std::fs::write(&path, &image).unwrap();
        assert!(matches!(options().open(&path), Err(Error::Lost { .. })));
        let store = options().without(Step::Links).open(&path).unwrap();
        let there = [1, 2, 3].map(|n| store.get(&[n]).unwrap().is_some());
        assert_eq!(there, [true, false, true]);
    }
}

// ---- what a crash leaves of a segment --------------------------------------------------------------------------

/// A torn transaction that recovery did not show must not come back when the words it lacked are written again at its place, by the writer that has the segment
/// then.
fn comes_back(step: Option<Step>) -> bool {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let options = || without(Options::new().segment_bytes(64 << 10).background(false), step);
    {
        let store = options().create(&path).unwrap();
        store.put(b"before", b"1").unwrap();
        store.abandon();
    }
    // After a crash, in a segment of its own.
    let store = options().open(&path).unwrap();
    let value = b"in the file its text is found, and sixteen of these bytes have not arrived";
    store.put(b"torn", value).unwrap();
    store.abandon();
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(value.len()).position(|window| window == value).unwrap() + 20;
    let write = |bytes: &[u8]| {
        std::os::unix::fs::FileExt::write_all_at(
            &std::fs::File::options().write(true).open(&path).unwrap(),
            bytes,
            at as u64,
        )
    };
    write(&[0; 16]).unwrap();
    let store = options().open(&path).unwrap();
    assert_eq!(store.get(b"torn").unwrap(), None);
    assert!(store.get(b"before").unwrap().is_some());
    store.abandon();
    // The same words, of another transaction that was torn, and whose segment the table does not name yet.
    write(&bytes[at..at + 16]).unwrap();
    let store = options().open(&path).unwrap();
    store.get(b"torn").unwrap().is_some()
}

#[test]
fn what_a_crash_left_of_a_segment_is_not_completed_by_another() {
    assert!(!comes_back(None));
    assert!(comes_back(Some(Step::ClearLeftovers)));
}

/// Whether a log goes on over a torn record once the store was closed and opened again: a part of that could pass for a part of the next.
fn is_overwritten(step: Option<Step>) -> bool {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let options = || without(Options::new().segment_bytes(64 << 10).background(false), step);
    let store = options().create(&path).unwrap();
    store.put(b"before", b"1").unwrap();
    let value = b"in the file its text is found";
    store.put(b"torn", value).unwrap();
    store.abandon();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
    bytes[at + 20] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    options().open(&path).unwrap().close().unwrap();
    let store = options().open(&path).unwrap();
    assert_eq!(store.get(b"torn").unwrap(), None);
    store.put(b"next", &[7; 29]).unwrap();
    std::fs::read(&path).unwrap()[at..at + 20] != value[..20]
}

#[test]
fn a_log_does_not_go_on_over_a_torn_record_after_a_close_either() {
    assert!(!is_overwritten(None));
    assert!(is_overwritten(Some(Step::FreshSegments)));
}

// ---- groups ----------------------------------------------------------------------------------------------------

/// A commit in a group beside a checkpoint, then the program stops: says in which order the commit is lost, if in any.
fn lost_behind_a_mark(step: Option<Step>) -> Option<usize> {
    let mut lost = false;
    let orders = each_order(2, |order| {
        let options = without(small().segment_bytes(4096).background(false).group_commit(true), step);
        let dir = crate::memory();
        let path = dir.path().join("store");
        let store = options.create(&path).unwrap();
        order.run([&|| store.checkpoint().unwrap(), &|| assert!(!store.put(b"key", b"value").unwrap())]);
        store.abandon();
        lost = options.open(&path).unwrap().get(b"key").unwrap().is_none();
        !lost
    });
    assert!(lost || orders > 500, "{orders} orders");
    lost.then_some(orders)
}

#[test]
fn no_mark_passes_who_waits_for_a_group() {
    assert_eq!(lost_behind_a_mark(None), None);
    assert!(lost_behind_a_mark(Some(Step::GroupsMarkFirst)).is_some());
}

/// Commits in a group in every order beside one who looks at the feed; what was told in all, or none if it was all.
fn lost_by_a_feed(step: Option<Step>) -> Option<usize> {
    let mut lost = None;
    each_order(PREEMPTIONS - 1, |order| {
        // Making a store is most of the work of an order.
        let own = own(without(small().segment_bytes(4096).background(false).group_commit(true), step));
        let store = &own.store;
        let changes = std::sync::Mutex::new(store.changes().unwrap());
        let look = || {
            let mut changes = changes.lock().unwrap();
            std::iter::from_fn(|| changes.next().unwrap()).count()
        };
        let put = || {
            store.put(b"key", b"").unwrap();
            0
        };
        let told = order.run([&put, &look]).iter().sum::<usize>() + look();
        lost = (told != 1).then_some(told);
        lost.is_none()
    });
    lost
}

#[test]
fn a_feed_tells_what_a_group_has_committed() {
    assert_eq!(lost_by_a_feed(None), None);
    assert!(lost_by_a_feed(Some(Step::FeedGroupsLast)).is_some());
}

/// Splits a leaf in every order beside a checkpoint, then the program stops; whether all keys are there, in all orders.
fn all_there_behind_a_split(step: Option<Step>) -> bool {
    let key = |n: u8| [b'k', n];
    let mut all = true;
    each_order(2, |order| {
        let options = without(small().segment_bytes(4096).background(false), step);
        let dir = crate::memory();
        let path = dir.path().join("store");
        let store = options.create(&path).unwrap();
        // Two leaves, of which the second is full.
        (0..124).for_each(|n| assert!(!store.put(&key(n), b"").unwrap()));
        store.checkpoint().unwrap();
        assert!(!store.delete(&key(150)).unwrap() && store.put(&key(123), b"it has changed").unwrap());
        order.run([&|| store.checkpoint().unwrap(), &|| assert!(!store.put(&key(200), b"").unwrap())]);
        store.abandon();
        all = options.open(&path).is_ok_and(|store| {
            let is_there = |n| store.get(&key(n)).is_ok_and(|value| value.is_some());
            (0..124).chain([200]).all(is_there) && store.check(|_| ()).is_ok_and(|checked| checked.is_sound())
        });
        all
    });
    all
}

#[test]
fn a_checkpoint_follows_a_leaf_that_is_split() {
    assert!(all_there_behind_a_split(None));
    assert!(!all_there_behind_a_split(Some(Step::LookAgain)));
}
