//! Whatever fits into a store can be taken out again: by any mix of transactions, in any order, after any restart.
//!
//! A model test: it fills a store that cannot grow with values of any size until nothing goes in any more, and empties it; both in batches of any length, by
//! threads or alone, with restarts and kills in between. No deletion may be refused, nor a transaction that takes out more than it puts in.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, Sender, channel};

use kv::{Batch, Error, Isolation, Keys, Options, Store};

type Model = BTreeMap<Vec<u8>, usize>;

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// How long values are: each doubling between the two as likely as the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths(pub(crate) u32, pub(crate) u32);

impl Lengths {
    pub(crate) fn any(self, random: &mut Random) -> usize {
        let low = 1 << (u64::from(self.0) + random.below(u64::from(self.1 - self.0 + 1)));
        (low + random.below(low)) as usize
    }
}

/// Values are told by their length and key.
pub(crate) fn value(key: &[u8], len: usize) -> Vec<u8> {
    let first = key.iter().fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    (0..len).map(|at| first.wrapping_add(at as u8)).collect()
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Full { .. })
}

/// Threads that write keys of their own again, each in a log of its own, whenever they are told.
#[derive(Clone, Copy, Debug)]
struct Beside {
    threads: usize,
    /// How often each does it, each time.
    times: u64,
}

const ALONE: Beside = Beside { threads: 0, times: 0 };

/// What one of them is told by, and what it says when it is done: the number of those that were refused.
struct Overwriter(Sender<u64>, Receiver<u64>);

fn overwritten(thread: usize) -> Vec<u8> {
    format!("again{thread:03}").into_bytes()
}

impl Beside {
    /// Runs `then` with them: what it is given has each write so often.
    fn run<R>(self, store: &Store, model: &mut Model, then: impl FnOnce(&mut Model, &dyn Fn()) -> R) -> R {
        std::thread::scope(|scope| {
            let overwriters: Vec<Overwriter> = (0..self.threads)
                .map(|thread| {
                    let (tell, told) = channel::<u64>();
                    let (done, is_done) = channel();
                    let (key, bytes) = (overwritten(thread), value(&overwritten(thread), 20));
                    scope.spawn(move || {
                        for times in told {
                            let refused = (0..times).filter(|_| match store.put(&key, &bytes) {
                                Ok(_) => false,
                                Err(error) => is_full(&error) || panic!("{error}"),
                            });
                            done.send(refused.count() as u64).unwrap();
                        }
                    });
                    Overwriter(tell, is_done)
                })
                .collect();
            let write = |times| {
                let write_again = |Overwriter(tell, is_done): &Overwriter| {
                    tell.send(times).unwrap();
                    is_done.recv().unwrap()
                };
                overwriters.iter().map(write_again).sum::<u64>()
            };
            assert_eq!(write(1), 0, "before it is full");
            model.extend((0..self.threads).map(|thread| (overwritten(thread), 20)));
            then(model, &|| assert!(write(self.times) <= self.times * self.threads as u64))
        })
    }
}

/// Puts until nothing goes in any more, not the smallest value neither.
fn fill(store: &Store, model: &mut Model, random: &mut Random, plan: &Plan, beside: &dyn Fn()) {
    let Plan { mut lengths, puts, in_order, .. } = *plan;
    let (mut refused, mut last) = (0, 0);
    while refused < 4 || lengths.1 > 0 {
        if refused >= 4 {
            lengths = Lengths(0, lengths.1 / 2);
            refused = 0;
        }
        let mut some = Batch::new();
        let mut new = Model::new();
        for _ in 0..1 + random.below(puts as u64) {
            last += 1;
            let key = format!("key{:07}", if in_order { last } else { random.below(2_000_000) }).into_bytes();
            let len = lengths.any(random);
            some.put(&key, &value(&key, len));
            new.insert(key, len);
        }
        match store.write(&some) {
            Ok(()) => {
                model.extend(new);
                refused = 0;
            }
            Err(error) if is_full(&error) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        beside();
    }
}

/// Takes some out; each way that does not put in more.
fn take(store: &Store, keys: &[Vec<u8>], way: u64, when: &str) {
    let done = match way {
        _ if keys.len() == 1 && way.is_multiple_of(2) => store.delete(&keys[0]).map(drop),
        0 | 1 => {
            let mut batch = Batch::new();
            keys.iter().for_each(|key| {
                batch.delete(key);
            });
            store.write(&batch)
        }
        2 => store.transact_at(Isolation::Serializable, |tx| keys.iter().try_for_each(|key| tx.delete(key).map(drop))),
        // As the head of a collection is written again with each element that goes.
        _ => store.transact_at(Isolation::Serializable, |tx| {
            keys.iter().try_for_each(|key| tx.delete(key).map(drop))?;
            let head = tx.get(HEAD)?.map(<[u8]>::to_vec).unwrap_or_default();
            tx.put(HEAD, &head).map(drop)
        }),
    };
    done.unwrap_or_else(|error| panic!("{when}: {} keys, way {way}: {error}; {:?}", keys.len(), store.stats()));
}

/// The same by threads, beside one whose puts are refused most of the time: what it got in it takes out, too.
fn empty_by_threads(store: &Store, keys: &[Vec<u8>], threads: usize, most: usize, seed: u64, when: &str) {
    let deleting = AtomicUsize::new(threads);
    std::thread::scope(|scope| {
        for (n, some) in keys.chunks(keys.len().div_ceil(threads)).enumerate() {
            let (deleting, mut random) = (&deleting, Random(seed ^ n as u64));
            scope.spawn(move || {
                let _done = Done(deleting);
                let mut left = some;
                while !left.is_empty() {
                    let (now, later) = left.split_at((1 + random.below(most as u64) as usize).min(left.len()));
                    take(store, now, random.below(4), when);
                    left = later;
                }
            });
        }
        let unused = threads - keys.chunks(keys.len().div_ceil(threads)).len();
        deleting.fetch_sub(unused, SeqCst);
        let mut put = Vec::new();
        for n in 0.. {
            if deleting.load(SeqCst) == 0 {
                break;
            }
            let key = format!("other{:03}", n % 100).into_bytes();
            match store.put(&key, &[1; 900]) {
                Ok(_) => put.push(key),
                Err(error) if is_full(&error) => std::thread::yield_now(),
                Err(other) => panic!("{when}: {other}"),
            }
        }
        put.iter().for_each(|key| take(store, std::slice::from_ref(key), 0, when));
    });
}

/// One thread less, also if it panics.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What is written again with whatever goes.
const HEAD: &[u8] = b"head";

fn check(store: &Store, model: &Model, when: &str) {
    let snapshot = store.snapshot().unwrap();
    let mut found = snapshot.scan(Keys::all());
    for (key, len) in model {
        let (at, bytes) =
            found.next().unwrap_or_else(|| panic!("{when}: nothing from {}", key.escape_ascii())).unwrap();
        assert_eq!(at.escape_ascii().to_string(), key.escape_ascii().to_string(), "{when}");
        assert!(bytes == value(key, *len), "{when}: {}", key.escape_ascii());
    }
    assert!(found.next().is_none(), "{when}: more than the model has");
}

/// Closes and opens it, kills it and opens it, or goes on.
fn again(store: Store, path: &Path, options: &Options, how: u64, model: &Model, when: &str) -> Store {
    let store = match how % 3 {
        0 => return store,
        1 => {
            store.close().unwrap_or_else(|error| panic!("{when}: closing: {error}"));
            options.open(path)
        }
        _ => {
            // What a killed process leaves: the file as it is.
            let image = path.with_extension("image");
            std::fs::copy(path, &image).unwrap();
            drop(store);
            std::fs::rename(&image, path).unwrap();
            options.open(path)
        }
    };
    let store = store.unwrap_or_else(|error| panic!("{when}, opened again: {error}"));
    check(&store, model, when);
    store
}

/// A store, and what is done with it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    bytes: u64,
    segment: u64,
    lengths: Lengths,
    /// Keys of one transaction, at most, on the way in and out.
    puts: usize,
    takes: usize,
    rounds: u64,
    /// New keys are behind all others: so leaves are full.
    in_order: bool,
    /// Others while it is filled.
    beside: Beside,
}

fn fill_and_empty(plan: Plan, seed: u64) {
    fill_and_empty_in(crate::memory().path(), plan, seed);
}

fn fill_and_empty_in(dir: &Path, plan: Plan, seed: u64) {
    let mut random = Random(seed);
    let path = dir.join("store");
    let pool = pmem::Options::new().max_size(plan.bytes).domain(pmem::DomainChoice::Emulated);
    let options = Options::new().segment_bytes(plan.segment).background(false).pool(pool);
    let mut store = options.create(&path).unwrap();
    let mut model = Model::new();
    let mut least = 0;
    for round in 0..plan.rounds {
        let when = |what: &str| format!("{what} in round {round} of seed {seed}, {plan:?}");
        store.put(HEAD, &value(HEAD, 33)).unwrap();
        model.insert(HEAD.to_vec(), 33);
        plan.beside.run(&store, &mut model, |model, beside| {
            fill(&store, model, &mut random, &plan, beside);
        });
        let live = store.stats().live_bytes;
        least = if round == 0 { live / 4 * 3 } else { least };
        assert!(live >= least, "{}: {live} bytes are live, {least} at least expected", when("full"));
        let how = random.next();
        store = again(store, &path, &options, how, &model, &when("full"));
        model.remove(HEAD);
        let mut keys: Vec<_> = std::mem::take(&mut model).into_keys().collect();
        if random.below(4) > 0 {
            random.shuffle(&mut keys);
        }
        let count = keys.len();
        let stop = 1 + random.below(count as u64) as usize;
        // The first plans are as they were found, with one thread.
        let threads = if seed < 100 { 1 } else { 1 << random.below(4) };
        let (mut at, mut end) = (0, stop);
        while at < count {
            let mut some = &keys[at..end];
            if threads > 1 {
                empty_by_threads(&store, some, threads, plan.takes, random.next(), &when("by threads"));
                some = &[];
            }
            while !some.is_empty() {
                let (now, later) = some.split_at((1 + random.below(plan.takes as u64) as usize).min(some.len()));
                take(&store, now, random.below(4), &when(&format!("{} of {count} taken out", end - some.len())));
                some = later;
            }
            if end < count {
                let how = random.next();
                store = reopen_unread(store, &path, &options, how, (count - end + 1) as u64, &when("half empty"));
            }
            (at, end) = (end, count);
        }
        model.insert(HEAD.to_vec(), 33);
        check(&store, &model, &when("empty"));
        let how = random.next();
        store = again(store, &path, &options, how, &model, &when("empty"));
    }
}

/// As [`again`], where only the number of keys is known.
fn reopen_unread(store: Store, path: &Path, options: &Options, how: u64, keys: u64, when: &str) -> Store {
    let store = if how.is_multiple_of(2) {
        store.close().unwrap_or_else(|error| panic!("{when}: closing: {error}"));
        options.open(path)
    } else {
        store.abandon();
        options.open(path)
    };
    let store = store.unwrap_or_else(|error| panic!("{when}, opened again: {error}"));
    assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count() as u64, keys, "{when}");
    store
}

pub(crate) const MIB: u64 = 1 << 20;

#[test]
fn what_fits_in_can_be_taken_out_in_batches_of_200() {
    let plan = Plan {
        bytes: 16 * MIB,
        segment: MIB,
        lengths: Lengths(3, 4),
        puts: 200,
        takes: 200,
        rounds: 1,
        in_order: false,
        beside: ALONE,
    };
    fill_and_empty(plan, 1);
}

#[test]
fn what_fits_in_can_be_taken_out_one_by_one_with_a_head_written_again() {
    let plan = Plan {
        bytes: 16 * MIB,
        segment: 256 << 10,
        lengths: Lengths(8, 12),
        puts: 20,
        takes: 1,
        rounds: 2,
        in_order: false,
        beside: ALONE,
    };
    fill_and_empty(plan, 2);
}

#[test]
fn what_fits_in_can_be_taken_out_by_large_transactions() {
    let plan = Plan {
        bytes: 16 * MIB,
        segment: 64 << 10,
        lengths: Lengths(0, 3),
        puts: 200,
        takes: 6000,
        rounds: 1,
        in_order: false,
        beside: ALONE,
    };
    fill_and_empty(plan, 3);
}

/// New keys, and others written again in between: what these are given room for beyond new data is not for new data.
#[test]
fn what_fits_in_beside_overwriting_can_be_taken_out() {
    for (segment, beside, seed) in [
        (64 << 10, Beside { threads: 3, times: 1 }, 4),
        (MIB, Beside { threads: 2, times: 3 }, 5),
        (MIB, Beside { threads: 3, times: 1 }, 6),
    ] {
        let plan = Plan {
            bytes: 16 * MIB,
            segment,
            lengths: Lengths(3, 3),
            puts: 100,
            takes: 1500,
            rounds: 1,
            in_order: true,
            beside,
        };
        fill_and_empty(plan, seed);
    }
}

/// Many leaves, few of which are written between two checkpoints, and one key at a time.
#[test]
fn small_values_in_order_beside_overwriting_can_be_deleted_one_by_one() {
    for (segment, threads, times, least) in [(64 << 10, 3, 1, 170_000), (MIB, 3, 1, 110_000), (MIB, 2, 3, 110_000)] {
        let dir = crate::memory();
        let path = dir.path().join("store");
        let pool = pmem::Options::new().max_size(16 * MIB).domain(pmem::DomainChoice::Emulated);
        let options = Options::new().segment_bytes(segment).background(false).pool(pool);
        let store = options.create(&path).unwrap();
        let key = |n: u64| format!("k{n:07}").into_bytes();
        let mut model = Model::new();
        Beside { threads, times }.run(&store, &mut model, |model, write| {
            let (mut n, mut refused) = (0, 0);
            while refused < 10 {
                let before = model.len();
                for _ in 0..100 {
                    n += 1;
                    match store.put(&key(n), &value(&key(n), 10)) {
                        Ok(_) => drop(model.insert(key(n), 10)),
                        Err(error) => assert!(is_full(&error), "{error}"),
                    }
                }
                write();
                refused = if model.len() == before { refused + 1 } else { 0 };
            }
        });
        let when = format!("segments of {segment} bytes, {threads} threads that write {times} times");
        assert!(model.len() > least, "{when}: {} keys", model.len());
        let store = again(store, &path, &options, threads as u64 + times, &model, &when);
        let keys: Vec<_> = model.into_keys().collect();
        for at in 0..1000 {
            take(&store, &keys[at * 37..at * 37 + 1], 0, &when);
        }
        let left: Vec<_> = keys.iter().enumerate().filter(|(at, _)| at % 37 > 0 || at / 37 >= 1000).collect();
        for some in left.chunks(1024) {
            let some: Vec<_> = some.iter().map(|(_, key)| key.to_vec()).collect();
            take(&store, &some, 1, &when);
        }
        assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count(), 0, "{when}");
    }
}

/// The same of whatever kind: small values, keys that are written again beside them, in segments of either size.
#[test]
fn whatever_fits_in_beside_overwriting_can_be_taken_out() {
    let (seeds, largest) = budget();
    let first = std::env::var("CAIRN_SPACE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    for seed in first..first + seeds.div_ceil(2) {
        let mut random = Random(!seed);
        let low = random.below(5) as u32;
        let plan = Plan {
            bytes: (16 << random.below(u64::from((largest / 16).ilog2()) + 1)) * MIB,
            segment: [64 << 10, MIB][random.below(2) as usize],
            lengths: Lengths(low, low + random.below(3) as u32),
            puts: 1 << random.below(9),
            takes: 16 << random.below(8),
            rounds: 2,
            in_order: random.below(2) == 0,
            beside: Beside { threads: 1 + random.below(4) as usize, times: 1 + random.below(4) },
        };
        println!("seed {seed}: {plan:?}");
        fill_and_empty(plan, seed);
    }
}

// ---- keys that are written again ------------------------------------------------------------------------------

fn with_room_for(bytes: u64) -> (tempfile::TempDir, Store) {
    let dir = crate::memory();
    let pool = pmem::Options::new().max_size(bytes).domain(pmem::DomainChoice::Emulated);
    let store =
        Options::new().segment_bytes(64 << 10).background(false).pool(pool).create(dir.path().join("store")).unwrap();
    (dir, store)
}

/// A snapshot keeps all that is superseded since: a writer that finds no room for that waits a while for it to end, and says which it is if it does not.
#[test]
fn who_overwrites_waits_for_a_snapshot_and_names_it() {
    let (_dir, store) = with_room_for(4 * MIB);
    let key = |n: u64| format!("key{:02}", n % 40).into_bytes();
    (0..40).for_each(|n| assert!(!store.put(&key(n), &[0; 3000]).unwrap()));
    let snapshot = store.snapshot().unwrap();
    let began = store.stats().oldest_snapshot.unwrap();
    let mut put = 0;
    #[expect(clippy::disallowed_methods, reason = "how long it waits is a matter of real time")]
    let refused = loop {
        let since = std::time::Instant::now();
        match store.put(&key(put), &[1; 3000]) {
            Ok(_) => put += 1,
            Err(error) => break (error, since.elapsed()),
        }
    };
    let (error, waited) = refused;
    assert!(put > 600, "{put} were put");
    assert!(matches!(error, Error::Full { overwrites: true, snapshot: Some(at), .. } if at == began), "{error:?}");
    assert!(error.to_string().contains(&format!("timestamp {began}")), "{error}");
    assert!(waited.as_millis() >= 100, "it waited for {waited:?}");
    // Not with a snapshot that is in no writer's way.
    drop(snapshot);
    (0..2000).for_each(|n| assert!(store.put(&key(n), &[2; 3000]).unwrap()));
    let (mut n, _none) = (0, store.snapshot().unwrap());
    let error = loop {
        n += 1;
        if let Err(error) = store.put(format!("new{n}").as_bytes(), &[3; 3000]) {
            break error;
        }
    };
    assert!(matches!(error, Error::Full { overwrites: false, snapshot: None, .. }), "{error:?}");
}

/// As often as it ends while a writer waits for it.
#[test]
fn who_overwrites_goes_on_when_the_snapshot_ends() {
    let (_dir, store) = with_room_for(4 * MIB);
    let key = |n: u64| format!("key{:02}", n % 40).into_bytes();
    (0..40).for_each(|n| assert!(!store.put(&key(n), &[0; 3000]).unwrap()));
    let mut before = 0;
    for round in 0..3 {
        let snapshot = std::cell::Cell::new(Some(store.snapshot().unwrap()));
        let (mut n, mut ended) = (0_u64, false);
        while !ended {
            n += 1;
            let mut attempts = 0;
            let done = store.transact(|tx| {
                attempts += 1;
                // It is refused, and tried again.
                if attempts == 6 {
                    drop(snapshot.take());
                    ended = true;
                }
                tx.put(&key(n), &[round; 3000]).map(drop)
            });
            done.unwrap_or_else(|error| panic!("{n} in round {round}, attempt {attempts}: {error}"));
        }
        assert!(n > 600 && n >= before, "round {round}: {n} went in beside the snapshot, {before} before");
        before = n / 2;
    }
}

/// Little is live, whatever the threads overwrite as fast as they can. None is ahead of the others by more than a round, and the store has room for all that is
/// superseded in one: so it does not matter when each of them runs.
#[test]
fn a_store_with_little_in_it_is_never_full_for_who_overwrites() {
    const THREADS: u64 = 4;
    const TOGETHER: u64 = 400;
    let (_dir, store) = with_room_for(8 * MIB);
    let key = |thread: u64, n: u64| format!("{thread}/{:02}", n % 20).into_bytes();
    (0..THREADS).for_each(|thread| (0..20).for_each(|n| assert!(!store.put(&key(thread, n), &[0; 3000]).unwrap())));
    let round = Barrier::new(THREADS as usize);
    let overwrite = |thread: u64, n: u64| {
        let done = match n % 8 {
            0 => store.transact(|tx| tx.put(&key(thread, n), &[n as u8; 3000]).map(drop)),
            _ => store.put(&key(thread, n), &[n as u8; 3000]).map(drop),
        };
        done.map_err(|error| format!("{n} of thread {thread}: {error}; {:?}", store.stats()))
    };
    let refused: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (round, overwrite) = (&round, &overwrite);
                scope.spawn(move || {
                    // A thread that is refused goes on, too, so that none waits for it in vain.
                    let rounds = (0..6000).step_by(TOGETHER as usize);
                    let refused = rounds.flat_map(|from| {
                        round.wait();
                        (from..from + TOGETHER).filter_map(|n| overwrite(thread, n).err()).next()
                    });
                    refused.collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(refused.is_empty(), "{} rounds refused: {}", refused.len(), refused[0]);
    store.checkpoint().unwrap();
    assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count() as u64, THREADS * 20);
}

/// In the environment: where files cannot grow any more, and the seed. Then this process is one for which the disk is full.
const DISK: &str = "CAIRN_KV_DISK";

/// Not a test of its own: the process that `a_full_disk_is_a_full_store` starts.
#[test]
fn on_a_full_disk() {
    let Ok(place) = std::env::var(DISK) else { return };
    let (seed, dir) = place.split_once(' ').unwrap();
    let seed = seed.parse().unwrap();
    let mut random = Random(seed);
    let low = 2 + random.below(10) as u32;
    let plan = Plan {
        bytes: 1 << 30, // it never gets there
        segment: (64 << random.below(4)) << 10,
        lengths: Lengths(low, low + random.below(6) as u32),
        puts: 1 << random.below(8),
        takes: 1 << random.below(10),
        rounds: 2,
        in_order: random.below(2) == 0,
        beside: Beside { threads: random.below(4) as usize, times: random.below(12) },
    };
    println!("seed {seed}: {plan:?}");
    fill_and_empty_in(Path::new(dir), plan, seed);
}

/// No file of the process may become longer than that: what asks for more is told what a full disk tells.
#[test]
fn a_full_disk_is_a_full_store() {
    let (seeds, largest) = budget();
    for seed in 0..seeds.div_ceil(2) {
        let dir = crate::memory();
        let mib = 16 << (seed % (u64::from((largest / 16).ilog2()) + 1));
        // The limit is told in halves of KiB or in KiB; whichever it is.
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", mib << 11);
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(script).arg(std::env::current_exe().unwrap());
        command.args(["full::on_a_full_disk", "--exact", "--nocapture", "--test-threads", "1"]);
        let ended = command.env(DISK, format!("{seed} {}", dir.path().display())).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success() && out.contains("1 passed"), "seed {seed}: {out}\n{err}");
        let len = std::fs::metadata(dir.path().join("store")).unwrap().len();
        assert!(len <= 2 * (mib << 20), "seed {seed}: {len} bytes");
    }
}

/// Fills a store with values of 100 bytes, in order of keys; returns how many.
fn fill_evenly(store: &Store) -> u64 {
    (0..).find(|n| store.put(format!("key{n:07}").as_bytes(), &[1; 100]).is_err()).unwrap()
}

/// Each takes a segment of its own, and changes leaves that a checkpoint has to write: what that needs is left to it.
#[test]
fn threads_can_take_out_what_fits_in_and_checkpoints_have_their_nodes() {
    for (segment, bytes, threads) in [(4096, 2 * MIB, 4), (4096, 2 * MIB, 8), (8192, 2 * MIB, 16), (65536, 4 * MIB, 8)]
    {
        let dir = crate::memory();
        let pool = pmem::Options::new().max_size(bytes).domain(pmem::DomainChoice::Emulated);
        let store = Options::new().segment_bytes(segment).pool(pool).create(dir.path().join("store")).unwrap();
        let mut keys: Vec<_> = (0..fill_evenly(&store)).map(|n| format!("key{n:07}").into_bytes()).collect();
        Random(threads).shuffle(&mut keys);
        let when = format!("segments of {segment} bytes, {threads} threads");
        std::thread::scope(|scope| {
            for some in keys.chunks(keys.len().div_ceil(threads as usize)) {
                let (store, when) = (&store, &when);
                scope.spawn(move || some.iter().for_each(|key| take(store, std::slice::from_ref(key), 0, when)));
            }
        });
        store.checkpoint().unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count(), 0, "{when}");
        store.close().unwrap_or_else(|error| panic!("{when}: {error}"));
    }
}

/// A put that was tried in vain says nothing about deletions.
#[test]
fn deletions_go_on_beside_puts_that_are_refused() {
    let dir = crate::memory();
    let pool = pmem::Options::new().max_size(8 * MIB).domain(pmem::DomainChoice::Emulated);
    let store =
        Options::new().segment_bytes(64 << 10).background(false).pool(pool).create(dir.path().join("store")).unwrap();
    let count = fill_evenly(&store);
    let deleting = AtomicUsize::new(1);
    std::thread::scope(|scope| {
        let putting = || {
            for n in 0.. {
                if deleting.load(SeqCst) == 0 {
                    break;
                }
                drop(store.put(format!("other{:03}", n % 100).as_bytes(), &[2; 900]));
            }
        };
        (0..2).for_each(|_| drop(scope.spawn(putting)));
        let _done = Done(&deleting);
        for n in 0..count / 4 {
            take(&store, &[format!("key{:07}", n * 7919 % count).into_bytes()], 0, "beside puts");
        }
    });
}

/// Seeds, and mebibytes of the largest store, from the environment: `make space-long` has more.
fn budget() -> (u64, u64) {
    let number =
        |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    (number("CAIRN_SPACE_SEEDS", 2), number("CAIRN_SPACE_MIB", 16))
}

#[test]
fn whatever_fits_in_can_be_taken_out() {
    let (seeds, largest) = budget();
    let first = std::env::var("CAIRN_SPACE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    for seed in first..first + seeds {
        let mut random = Random(seed);
        let low = random.below(17) as u32;
        let high = low + random.below(u64::from(21 - low)) as u32;
        let bytes = (16 << random.below(u64::from((largest / 16).ilog2()) + 1)) * MIB;
        let plan = Plan {
            bytes,
            segment: (64 << random.below(5)) << 10,
            lengths: Lengths(low.min(20), high.min(19)),
            puts: 1 << random.below(9),
            takes: 1 << random.below(12),
            rounds: 2,
            in_order: false,
            beside: ALONE,
        };
        println!("seed {seed}: {plan:?}");
        fill_and_empty(plan, seed);
    }
}
