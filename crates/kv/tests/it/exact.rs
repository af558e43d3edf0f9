//! What a snapshot shows is what was committed up to its timestamp: every read of some threads, on few keys in short segments that are soon used again, is held against all commits afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kv::{Durability, Isolation, Keys, Options, Store};

const KEYS: u64 = 20;
const THREADS: u64 = 6;

type Value = Option<u64>;

/// What a thread has committed and read: keys, timestamps, values.
#[derive(Default)]
struct Told {
    commits: Vec<(u64, u64, Value)>,
    reads: Vec<(u64, u64, Value)>,
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn name(key: u64) -> String {
    format!("key{key:02}")
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// One transaction: reads, puts, deletions and scans, then it commits, or not.
fn transaction(store: &Store, rng: &mut Rng, next: &mut u64, told: &mut Told) -> bool {
    let level = if rng.below(4) == 0 { Isolation::Serializable } else { Isolation::Snapshot };
    let mut tx = store.begin(level).unwrap();
    let at = tx.snapshot().get();
    let mut own: BTreeMap<u64, Value> = BTreeMap::new();
    let only_reads = rng.below(3) == 0;
    for _ in 0..1 + rng.below(5) {
        let key = if rng.below(2) == 0 { rng.below(3) } else { rng.below(KEYS) };
        let written = match rng.below(8) {
            0..3 => {
                if !own.contains_key(&key) {
                    told.reads.push((key, at, tx.get(name(key)).unwrap().map(number)));
                }
                Ok(())
            }
            3 => {
                let pairs = tx.scan(Keys::all()).map(Result::unwrap);
                let seen: BTreeMap<String, u64> =
                    pairs.map(|(key, value)| (String::from_utf8(key.to_vec()).unwrap(), number(value))).collect();
                let others = (0..KEYS).filter(|key| !own.contains_key(key));
                told.reads.extend(others.map(|key| (key, at, seen.get(&name(key)).copied())));
                Ok(())
            }
            _ if only_reads => Ok(()),
            4..6 => {
                *next += 1;
                let value = [&next.to_le_bytes()[..], &[0; 100][..40 * rng.below(3) as usize]].concat();
                let put = tx.put(name(key), value);
                if put.is_ok() {
                    own.insert(key, Some(*next));
                }
                put.map(|_| ())
            }
            _ => {
                let had = tx.delete(name(key));
                if let Ok(true) = had {
                    own.insert(key, None);
                }
                had.map(|_| ())
            }
        };
        if let Err(error) = written {
            assert!(error.is_conflict(), "{error}");
            return false;
        }
        if rng.below(2) == 0 {
            std::thread::yield_now();
        }
    }
    match tx.commit() {
        Ok(ts) => told.commits.extend(own.into_iter().map(|(key, value)| (key, ts.get(), value))),
        Err(error) => {
            assert!(error.is_conflict(), "{error}");
            return false;
        }
    }
    true
}

fn every_read_is_exact(options: Options) {
    let dir = crate::memory();
    let store = options
        .segment_bytes(4 << 10)
        .settle_bytes(16 << 10)
        .transactions(64)
        .create(dir.path().join("store"))
        .unwrap();
    let left = AtomicUsize::new(6_000);
    let work = |thread: u64| {
        let (mut rng, mut next) = (Rng(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), thread << 40);
        let mut told = Told::default();
        while left.load(Relaxed) > 0 {
            if transaction(&store, &mut rng, &mut next, &mut told) {
                let _ = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            }
        }
        told
    };
    let all: Vec<Told> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut commits: Vec<_> = all.iter().flat_map(|told| told.commits.iter().copied()).collect();
    commits.sort_unstable();
    for &(key, at, found) in all.iter().flat_map(|told| &told.reads) {
        let behind = commits.partition_point(|(of, ts, _)| (*of, *ts) <= (key, at));
        let last = behind.checked_sub(1).map(|last| commits[last]).filter(|(of, ..)| *of == key);
        let around = &commits[behind.saturating_sub(3)..(behind + 3).min(commits.len())];
        assert_eq!(found, last.and_then(|(.., value)| value), "key {key} at {at}, among {around:?}");
    }
    assert!(store.check(|_| ()).unwrap().is_sound());
}

#[test]
fn with_a_barrier_each() {
    every_read_is_exact(Options::new());
}

#[test]
fn in_groups() {
    every_read_is_exact(Options::new().group_commit(true));
}

#[test]
fn before_the_barrier() {
    every_read_is_exact(Options::new().durability(Durability::Bounded(50)));
}
