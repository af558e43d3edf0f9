//! Space: a store that is full, versions kept for a reader, keys overwritten again and again; and syncs of a file on a disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Barrier;

use kv::{Error, Keys, Options, Stats, Store};
use pmem::{Domain, DomainChoice};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// From 10 bytes to 100 KB, each doubling as likely as the others.
    fn any_len(&mut self) -> usize {
        let low = 10 << self.below(13);
        (low + self.below(low)).min(100_000) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let seed = self.next();
        (0..len as u64).map(|at| (seed >> (at % 8 * 8)) as u8 ^ at as u8).collect()
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// Bytes of segments in use.
fn used(stats: &Stats) -> u64 {
    (stats.segments - stats.free_segments) * stats.segment_bytes
}

// ---- full -----------------------------------------------------------------------------------------------------

const SEGMENT: u64 = 64 << 10;
const MOST: u64 = 16 << 20;

fn small(background: bool) -> Options {
    let pool = pmem::Options::new().max_size(MOST);
    Options::new().segment_bytes(SEGMENT).background(background).pool(pool)
}

/// What is there is what the model says, each way to look.
fn check(store: &Store, model: &Model, when: &str) {
    let snapshot = store.snapshot().unwrap();
    let mut found = snapshot.scan(Keys::all());
    for (key, value) in model {
        let pair = found.next().map(Result::unwrap);
        assert!(pair == Some((key, value)), "{when}: {} is not what the scan finds", key.escape_ascii());
    }
    assert!(found.next().is_none(), "{when}: more than the model has");
    for (key, value) in model.iter().step_by(7) {
        assert!(store.get(key).unwrap().as_ref() == Some(value), "{when}: {}", key.escape_ascii());
    }
}

/// Checks, opens again, checks.
fn check_twice(store: Store, path: &Path, options: &Options, model: &Model, closed: bool, when: &str) -> Store {
    check(&store, model, when);
    if closed {
        store.close().unwrap_or_else(|error| panic!("{when}: closing: {error}"));
    } else {
        store.abandon();
    }
    let store = options.open(path).unwrap_or_else(|error| panic!("{when}: opening: {error}"));
    check(&store, model, &format!("{when}, opened again, closed {closed}"));
    store
}

/// Puts until nothing goes in any more.
fn fill(store: &Store, model: &mut Model, random: &mut Random, len: &impl Fn(&mut Random) -> usize) {
    let mut refused = 0;
    while refused < 20 {
        // Some are there already.
        let key = format!("key{:06}", random.below(200_000)).into_bytes();
        let longest = len(random);
        // Smaller ones when it becomes tight.
        let value = random.bytes(if refused > 10 { 10 } else { longest });
        match store.put(&key, &value) {
            Ok(had) => {
                assert_eq!(had, model.insert(key, value).is_some());
                refused = 0;
            }
            Err(Error::Full { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
}

fn delete_all(store: &Store, model: &mut Model, random: &mut Random) {
    let mut keys: Vec<_> = std::mem::take(model).into_keys().collect();
    random.shuffle(&mut keys);
    let count = keys.len();
    for (at, key) in keys.iter().enumerate() {
        let deleted = store.delete(key);
        assert!(deleted.as_ref().is_ok_and(|had| *had), "{at} of {count}: {deleted:?}, {:?}", store.stats());
    }
}

/// Rounds of filling and emptying; each ends where it began.
fn full_again_and_again(background: bool, seed: u64, len: impl Fn(&mut Random) -> usize) {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let options = small(background);
    let mut store = options.create(&path).unwrap();
    let (mut model, mut random) = (Model::new(), Random(seed));
    let mut first = None;
    for round in 0..4 {
        let closed = round % 2 == 0;
        let when = |what: &str| format!("{what} in round {round} of seed {seed}");
        fill(&store, &mut model, &mut random, &len);
        let live = store.stats().live_bytes;
        let least = *first.get_or_insert(live);
        assert!(live + MOST / 4 >= least, "{}: {live} bytes are live, {least} at first", when("full"));
        store = check_twice(store, &path, &options, &model, closed, &when("full"));
        delete_all(&store, &mut model, &mut random);
        check(&store, &model, &when("deleted"));
        // The second no longer names what the first freed; the tombstones go with the next.
        (0..3).for_each(|_| store.checkpoint().unwrap());
        // The store's own thread may look at it just now, and be off its processor.
        for _ in 0..2000 {
            if !background || store.stats().live_bytes == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            store.checkpoint().unwrap();
        }
        let stats = store.stats();
        assert_eq!((stats.entries, stats.live_bytes), (0, 0), "{}: {stats:?}", when("deleted"));
        assert!(used(&stats) <= 24 * SEGMENT, "{}: {stats:?}", when("deleted"));
        store = check_twice(store, &path, &options, &model, !closed, &when("deleted"));
        fill_half(&store, &mut model, &mut random, &len);
        store = check_twice(store, &path, &options, &model, closed, &when("put again"));
    }
}

/// Half of what there is room for, each put accepted.
fn fill_half(store: &Store, model: &mut Model, random: &mut Random, len: &impl Fn(&mut Random) -> usize) {
    let mut bytes = 0;
    while bytes < MOST / 2 {
        let key = format!("key{:06}", random.below(200_000)).into_bytes();
        let value_len = len(random);
        let value = random.bytes(value_len);
        bytes += (64 + value.len()) as u64;
        store.put(&key, &value).unwrap_or_else(|error| panic!("{error}, {:?}", store.stats()));
        model.insert(key, value);
    }
}

#[test]
fn a_full_store_reads_deletes_and_recovers() {
    for seed in 0..3 {
        full_again_and_again(seed % 2 == 1, seed, Random::any_len);
    }
}

#[test]
fn a_store_full_of_small_values_can_be_emptied() {
    full_again_and_again(false, 7, |random| 10 + random.below(100) as usize);
}

#[test]
fn a_store_full_of_large_values_can_be_emptied() {
    full_again_and_again(false, 8, |random| 40_000 + random.below(60_000) as usize);
}

// ---- a reader, and overwriting --------------------------------------------------------------------------------

const KEYS: u64 = 10_000;

fn name(n: u64) -> Vec<u8> {
    format!("user{n:020}").into_bytes()
}

fn value(n: u64, round: u64) -> [u8; 100] {
    std::array::from_fn(|at| (n * 31 + round * 7 + at as u64) as u8)
}

/// What records of all keys take.
const LIVE: u64 = KEYS * (40u64 + 24 + 100).next_multiple_of(16);

#[test]
fn versions_kept_for_a_reader_go_with_it() {
    let dir = crate::memory();
    let store =
        Options::new().segment_bytes(SEGMENT).checkpoint_bytes(4 << 20).create(dir.path().join("store")).unwrap();
    store.load((0..KEYS).map(|n| (name(n), value(n, 0)))).unwrap();
    store.checkpoint().unwrap();
    let before = store.stats();
    let reader = store.snapshot().unwrap();
    let rounds = 20;
    for round in 1..=rounds {
        std::thread::scope(|threads| {
            for thread in 0..2 {
                let store = &store;
                threads.spawn(move || {
                    (thread..KEYS).step_by(2).for_each(|n| assert!(store.put(&name(n), &value(n, round)).unwrap()));
                });
            }
            let mut found = reader.scan(Keys::all());
            for n in 0..KEYS {
                assert_eq!(found.next().unwrap().unwrap(), (&name(n)[..], &value(n, 0)[..]), "in round {round}");
            }
            assert!(found.next().is_none());
        });
    }
    store.checkpoint().unwrap();
    let held = store.stats();
    // And what has moved for its scans, before it kept much.
    let copies =
        held.live_bytes.checked_sub(LIVE * (rounds + 1)).expect("all that is newer than the reader waits for it");
    assert!(copies <= LIVE, "{held:?}");
    drop(reader);
    (0..8).for_each(|_| store.checkpoint().unwrap());
    let after = store.stats();
    assert_eq!(after.live_bytes, LIVE, "{after:?}");
    let more = used(&after).saturating_sub(used(&before));
    assert!(more <= 4 << 20, "{} bytes of segments, {} before", used(&after), used(&before));
    assert!(after.file_bytes <= held.file_bytes / 2, "{} bytes, {} with the reader", after.file_bytes, held.file_bytes);
    let snapshot = store.snapshot().unwrap();
    assert!((0..KEYS).all(|n| snapshot.get(&name(n)).unwrap() == Some(&value(n, rounds)[..])));
}

#[test]
fn overwriting_a_million_times_stays_within_a_constant() {
    let dir = crate::memory();
    let store = Options::new().create(dir.path().join("store")).unwrap();
    let mut random = Random(3);
    let (mut file, mut segments) = (0, 0);
    store.load((0..KEYS).map(|n| (name(n), value(n, 0)))).unwrap();
    for round in 0..100 {
        for _ in 0..10_000 {
            let n = random.below(KEYS);
            store.put(&name(n), &value(n, round)).unwrap();
        }
        let stats = store.stats();
        (file, segments) = (stats.file_bytes.max(file), used(&stats).max(segments));
    }
    // What is moved by one is freed by the next but one.
    for left in (0..12).rev() {
        store.checkpoint().unwrap();
        let live = store.stats().live_bytes;
        assert!(live == LIVE || left > 0, "{live} bytes live, of {LIVE}");
    }
    let stats = store.stats();
    println!("live {LIVE}, file at most {file}, used segments at most {segments}, in the end {stats:?}");
    // 176 MB of records were written, none of which is missed when nothing is freed.
    assert!(file <= (48 << 20) + 4 * LIVE, "{file} bytes at most");
    assert!(segments <= (40 << 20) + 4 * LIVE, "{segments} bytes of segments at most");
    assert!(used(&stats) <= (12 << 20) + 4 * LIVE, "{stats:?}");
    assert!(stats.index_segments <= 2, "{stats:?}");
}

/// Less room to spare makes a smaller store, for which more is moved.
#[test]
fn what_is_spared_is_paid_for_by_moving() {
    let of = |spare: u32| {
        let dir = crate::memory();
        let options =
            Options::new().segment_bytes(SEGMENT).checkpoint_bytes(512 << 10).background(false).spare_percent(spare);
        let store = options.create(dir.path().join("store")).unwrap();
        let mut random = Random(5);
        let (mut most, mut model) = (0, Model::new());
        for n in 0..60_000 {
            let (key, value) = (name(random.below(10_000)), value(n, 7));
            store.put(&key, &value).unwrap();
            model.insert(key, value.to_vec());
            if n > 30_000 && n % 500 == 0 {
                most = used(&store.stats()).max(most);
            }
        }
        check(&store, &model, &format!("{spare} to spare"));
        (most, store.stats().moved)
    };
    let (tight, normal, wide) = (of(25), of(100), of(200));
    assert!(tight.0 < normal.0 && normal.0 < wide.0 && tight.0 * 3 < wide.0 * 2, "{tight:?}, {normal:?}, {wide:?}");
    assert!(tight.1 > normal.1 && normal.1 > wide.1 && tight.1 > 4 * wide.1, "{tight:?}, {normal:?}, {wide:?}");
}

// ---- syncs ----------------------------------------------------------------------------------------------------

/// In a file; checkpoints come when they are asked for.
fn on_disk(dir: &tempfile::TempDir) -> Store {
    let pool = pmem::Options::new().domain(DomainChoice::File).size(64 << 20);
    let store = Options::new().background(false).pool(pool).create(dir.path().join("store")).unwrap();
    assert_eq!(store.effective_durability(), Domain::File);
    store
}

#[test]
fn a_commit_is_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(&dir);
    let mut random = Random(5);
    store.put(b"begins a segment", b"").unwrap();
    for writes in [1, 1, 10, 100] {
        let mut batch = kv::Batch::new();
        (0..writes).for_each(|n| {
            batch.put(&name(n), &random.bytes(1000));
        });
        let commits = 20;
        let before = store.stats().pool.syncs;
        (0..commits).for_each(|_| store.write(&batch).unwrap());
        assert_eq!(store.stats().pool.syncs - before, commits, "for {writes} writes each");
        assert_eq!(store.get(&name(0)).unwrap().map(|value| value.len()), Some(1000));
    }
    let before = store.stats().pool.syncs;
    store.checkpoint().unwrap();
    assert_eq!(store.stats().pool.syncs - before, 3, "of a checkpoint");
}

#[test]
fn commits_share_syncs() {
    const THREADS: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let store = on_disk(&dir);
    let mut shared = false;
    // On a device that is done at once they rarely meet.
    for round in 0..50 {
        if shared {
            break;
        }
        let (start, each) = (Barrier::new(THREADS as usize), 20);
        let before = store.stats();
        std::thread::scope(|threads| {
            for thread in 0..THREADS {
                let (store, start) = (&store, &start);
                threads.spawn(move || {
                    start.wait();
                    (0..each).for_each(|n| assert!(store.put(&name(thread * each + n), &value(n, round)).is_ok()));
                });
            }
        });
        let after = store.stats();
        let syncs = after.pool.syncs - before.pool.syncs;
        assert_eq!(after.commits - before.commits, THREADS * each);
        assert!(
            (each..=THREADS * each).contains(&syncs),
            "{syncs} syncs of {THREADS} threads with {each} commits each"
        );
        shared = syncs < THREADS * each;
    }
    assert!(shared, "each of many concurrent commits had a sync of its own");
}

#[test]
fn what_commits_at_the_same_time_stands_together() {
    const THREADS: u64 = 8;
    const EACH: u64 = 30;
    let (record, mut together) = (40 + 7 + 100_usize, 0);
    // On a device that is done at once they rarely meet.
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let store = on_disk(&dir);
        let key = |n: u64| format!("<{n:05}>").into_bytes();
        std::thread::scope(|threads| {
            for thread in 0..THREADS {
                let store = &store;
                let put = move |n| assert!(!store.put(&key(thread * EACH + n), &[7; 100]).unwrap());
                threads.spawn(move || (0..EACH).for_each(put));
            }
        });
        let file = std::fs::read(dir.path().join("store")).unwrap();
        let is_key = |w: &[u8]| w[0] == b'<' && w[6] == b'>' && w[1..6].iter().all(u8::is_ascii_digit);
        let places: Vec<usize> = file.windows(7).enumerate().filter(|(_, w)| is_key(w)).map(|(at, _)| at).collect();
        assert_eq!(places.len() as u64, THREADS * EACH);
        // Record after record, each group from a line on.
        for pair in places.windows(2) {
            let apart = pair[1] - pair[0];
            let joined = apart == record.next_multiple_of(16);
            together += usize::from(joined);
            assert!(
                joined || apart.is_multiple_of(16) && apart < record.next_multiple_of(16) + 64,
                "{apart} bytes apart"
            );
        }
        if together > 0 {
            return;
        }
    }
    panic!("each of many concurrent commits began a line");
}

/// Of a segment's thousands of keys some share a lock. If those stayed behind, no segment would become empty by what is moved out of it, and what was moved
/// would fill the store for good.
#[test]
fn a_store_full_of_one_write_each_can_be_emptied() {
    let dir = crate::memory();
    let pool = pmem::Options::new().max_size(64 << 20);
    let store = Options::new().background(false).pool(pool).create(dir.path().join("store")).unwrap();
    let key = |n: u64| n.to_be_bytes();
    let keys = (0..).find(|n| store.put(&key(*n), &[1; 100]).is_err()).unwrap();
    // Each takes 160 bytes; what begins a line is packed when space is short.
    assert!(keys * 160 > 45 << 20, "{keys}");
    for n in 0..keys {
        assert!(store.delete(&key(n)).unwrap(), "{n} of {keys}");
    }
    assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count(), 0);
}

/// Several threads fill it at once until each is refused, and each deletes what is its own.
#[test]
fn a_store_filled_in_groups_deletes_and_fills_again() {
    const THREADS: u64 = 4;
    let dir = crate::memory();
    let store = small(true).group_commit(true).create(dir.path().join("store")).unwrap();
    for round in 0..3 {
        // No thread deletes before all were refused: what it gave back, others would have to fill again.
        let full = Barrier::new(THREADS as usize);
        std::thread::scope(|threads| {
            for thread in 0..THREADS {
                let (store, full) = (&store, &full);
                threads.spawn(move || {
                    let (mut model, mut random) = (Model::new(), Random(round * THREADS + thread));
                    let (mut n, mut refused) = (0, 0);
                    // Small ones go in for a while when large ones do not any more.
                    while refused < 5 && n < MOST / 10 {
                        n += 1;
                        let (key, len) = (format!("{thread}:{n:07}").into_bytes(), random.below(3000));
                        let value = random.bytes(if refused > 2 { 10 } else { len as usize });
                        match store.put(&key, &value) {
                            Ok(had) => assert_eq!(had, model.insert(key, value).is_some()),
                            Err(Error::Full { .. }) => refused += 1,
                            Err(other) => panic!("{other}"),
                        }
                    }
                    full.wait();
                    assert_eq!(refused, 5);
                    for (key, value) in &model {
                        assert!(store.get(key).unwrap().as_ref() == Some(value), "{}", key.escape_ascii());
                    }
                    for key in model.keys() {
                        let deleted = (0..100_000).find_map(|_| match store.delete(key) {
                            // Others are at it, too.
                            Err(Error::Full { .. }) => None,
                            other => Some(other.unwrap()),
                        });
                        assert_eq!(deleted, Some(true), "{}", key.escape_ascii());
                    }
                });
            }
        });
        (0..3).for_each(|_| store.checkpoint().unwrap());
        assert_eq!(store.stats().live_bytes, 0, "round {round}");
    }
}
