//! What a snapshot shows is what was committed up to its timestamp: every read is held against all commits afterwards, on few keys in short segments, whose places are soon used again.
//!
//! Transactions of threads meet as it comes. Those that one thread has open at once meet as a seed says: what a step that is left out does wrong is noticed each time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kv::{Durability, Isolation, Keys, Options, Result, Step, Store, Transaction};

const KEYS: u64 = 20;
const THREADS: u64 = 6;
/// Transactions that are open at once in one thread.
const OPEN: usize = 5;

type Value = Option<u64>;

/// What was committed and read: keys, timestamps, values.
#[derive(Default)]
struct Told {
    commits: Vec<(u64, u64, Value)>,
    reads: Vec<(u64, u64, Value)>,
}

impl Told {
    /// The first read that is not of the last commit up to its timestamp.
    fn wrong(mut self) -> Option<String> {
        self.commits.sort_unstable();
        let commits = &self.commits;
        self.reads.iter().find_map(|&(key, at, found)| {
            let behind = commits.partition_point(|(of, ts, _)| (*of, *ts) <= (key, at));
            let last = behind.checked_sub(1).map(|last| commits[last]).filter(|(of, ..)| *of == key);
            let around = &commits[behind.saturating_sub(3)..(behind + 3).min(commits.len())];
            (found != last.and_then(|(.., value)| value))
                .then(|| format!("key {key} at {at} is {found:?}, among {around:?}"))
        })
    }
}

struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

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

/// Where transactions meet.
#[derive(Clone, Copy)]
struct Shape {
    /// Keys that all but one in `cold` operations are about.
    hot: u64,
    cold: u64,
    /// Values have different lengths.
    lengths: bool,
}

const WIDE: Shape = Shape { hot: 3, cold: 2, lengths: true };
/// Nearly all records are of one key and length, so that a place is soon again one of the same sort.
const NARROW: Shape = Shape { hot: 1, cold: 20, lengths: false };

/// A transaction and what it has written.
struct Open<'s> {
    tx: Transaction<'s>,
    own: BTreeMap<u64, Value>,
    only_reads: bool,
}

impl<'s> Open<'s> {
    fn begin(store: &'s Store, rng: &mut Rng) -> Self {
        let level = if rng.below(4) == 0 { Isolation::Serializable } else { Isolation::Snapshot };
        Self { tx: store.begin(level).unwrap(), own: BTreeMap::new(), only_reads: rng.below(3) == 0 }
    }

    /// Reads, scans, puts or deletes.
    fn act(&mut self, shape: Shape, rng: &mut Rng, next: &mut u64, told: &mut Told) -> Result<()> {
        let Self { tx, own, only_reads } = self;
        let key = if rng.below(shape.cold) == 0 { rng.below(KEYS) } else { rng.below(shape.hot) };
        let at = tx.snapshot().get();
        match rng.below(8) {
            0..3 => {
                let found = tx.get(name(key))?.map(number);
                if !own.contains_key(&key) {
                    told.reads.push((key, at, found));
                }
            }
            3 => {
                let mut seen = BTreeMap::new();
                for pair in tx.scan(Keys::all()) {
                    let (key, value) = pair?;
                    seen.insert(String::from_utf8(key.to_vec()).unwrap(), number(value));
                }
                let others = (0..KEYS).filter(|key| !own.contains_key(key));
                told.reads.extend(others.map(|key| (key, at, seen.get(&name(key)).copied())));
            }
            _ if *only_reads => {}
            4..6 => {
                *next += 1;
                let more = if shape.lengths { 40 * rng.below(3) as usize } else { 0 };
                tx.put(name(key), [&next.to_le_bytes()[..], &[0; 80][..more]].concat())?;
                own.insert(key, Some(*next));
            }
            _ => {
                if tx.delete(name(key))? {
                    own.insert(key, None);
                }
            }
        }
        Ok(())
    }

    fn commit(self, told: &mut Told) -> Result<()> {
        let ts = self.tx.commit()?.get();
        told.commits.extend(self.own.into_iter().map(|(key, value)| (key, ts, value)));
        Ok(())
    }
}

fn small(options: Options) -> Options {
    options.segment_bytes(4 << 10).checkpoint_bytes(16 << 10).transactions(64)
}

// ---- threads ------------------------------------------------------------------------------------------------------

/// True if there was no conflict.
fn is_done(result: Result<()>) -> bool {
    result.map_err(|error| assert!(error.is_conflict(), "{error}")).is_ok()
}

fn every_read_is_exact(options: Options) {
    let dir = crate::memory();
    let store = small(options).create(dir.path().join("store")).unwrap();
    let left = AtomicUsize::new(6_000);
    let work = |thread: u64| {
        let (mut rng, mut next, mut told) = (Rng::new(thread), thread << 40, Told::default());
        while left.load(Relaxed) > 0 {
            let mut open = Open::begin(&store, &mut rng);
            let goes_on = (0..1 + rng.below(5)).all(|_| {
                if rng.below(2) == 0 {
                    std::thread::yield_now();
                }
                is_done(open.act(WIDE, &mut rng, &mut next, &mut told))
            });
            if goes_on && is_done(open.commit(&mut told)) {
                let _ = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
            }
        }
        told
    };
    let mut all = Told::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        for thread in threads {
            let Told { commits, reads } = thread.join().unwrap();
            all.commits.extend(commits);
            all.reads.extend(reads);
        }
    });
    assert_eq!(all.wrong(), None);
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

// ---- one thread ---------------------------------------------------------------------------------------------------

/// What is wrong with the reads of transactions that are open at once, in an order drawn from a seed, with checkpoints in between.
fn driven(seed: u64, shape: Shape, options: Options) -> Option<String> {
    let dir = crate::memory();
    let store = small(options).background(false).create(dir.path().join("store")).unwrap();
    let (mut rng, mut next, mut told) = (Rng::new(seed + 1), 0, Told::default());
    let mut all: [Option<Open<'_>>; OPEN] = Default::default();
    for _ in 0..60_000 {
        let open = &mut all[rng.below(OPEN as u64) as usize];
        let mut one = open.take().unwrap_or_else(|| Open::begin(&store, &mut rng));
        let result = match rng.below(4) {
            0 => one.commit(&mut told),
            _ => one.act(shape, &mut rng, &mut next, &mut told).map(|()| *open = Some(one)),
        };
        if let Err(error) = result
            && !error.is_conflict()
        {
            return Some(error.to_string());
        }
        if rng.below(400) == 0
            && let Err(error) = store.checkpoint()
        {
            return Some(error.to_string());
        }
    }
    drop(all);
    told.wrong()
}

#[test]
fn in_an_order_that_is_drawn() {
    for seed in 0..8 {
        let shape = if seed < 4 { WIDE } else { NARROW };
        assert_eq!(driven(seed, shape, Options::new().group_commit(seed % 2 == 1)), None, "seed {seed}");
    }
}

#[test]
fn each_step_that_is_left_out_is_noticed() {
    for step in [Step::KeepTombstones, Step::KnowTombstones, Step::AwaitReaders] {
        let noticed = (0..16).any(|seed| driven(seed, NARROW, Options::new().without(step)).is_some());
        assert!(noticed, "without {step:?} nobody noticed");
    }
}
