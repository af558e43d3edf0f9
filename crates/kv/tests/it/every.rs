//! Every operation beside every other: transactions that are open at once, and operations of the store between their steps, on few keys and in an order drawn from a seed,
//! against a model that says beforehand what each of them finds, and whether it meets a conflict. Which operations met on one key is counted, and none may be left out.

mod between;
mod list;
mod model;
mod step;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use kv::{Batch, Changes, Durability, Error, Isolation, Keys, Options, Step, Store, Table, Timestamp, Transaction};
use pmem::DomainChoice;

use self::list::OPS;
use self::model::{Change, FUTURE, Key, Model, Open, PAST, Range, Seed, keys};

/// Which operations met: by places in the list, the lower one first.
type Met = BTreeSet<(usize, usize)>;

struct Run<'m> {
    seed: Seed,
    model: Model,
    met: &'m mut Met,
    /// Of each key, which actor did what with it lately.
    lately: BTreeMap<Key, VecDeque<(usize, u64)>>,
    actors: u64,
    steps: u64,
    dir: PathBuf,
    table: Table<(u32, u32), [u8]>,
    copies: u64,
    /// It is kept as small as it can be: less would be found with more.
    options: Options,
}

/// So many others are remembered for each key.
const LATELY: usize = 32;
const KEYS: u32 = 5;

/// As a key of the table.
fn of(n: u32) -> (u32, u32) {
    (n / 2, n % 2)
}

impl Run<'_> {
    fn note(&mut self, op: &str, actor: u64, keys: &[Key]) {
        let op = OPS.iter().position(|name| *name == op).unwrap_or_else(|| panic!("{op} is not in the list"));
        for key in keys {
            let lately = self.lately.entry(key.clone()).or_default();
            for (other, _) in lately.iter().filter(|(_, other)| *other != actor) {
                self.met.insert((op.min(*other), op.max(*other)));
            }
            lately.push_back((op, actor));
            if lately.len() > LATELY {
                lately.pop_front();
            }
        }
    }

    fn key(&mut self) -> ((u32, u32), Key) {
        let n = of(self.seed.below(KEYS as usize) as u32);
        (n, self.table.raw_key(&n))
    }

    fn all_keys(&self) -> Vec<Key> {
        (0..KEYS).map(|n| self.table.raw_key(&of(n))).collect()
    }

    fn range(&mut self) -> (std::ops::Range<(u32, u32)>, Range) {
        let (a, b) = (self.seed.below(KEYS as usize + 1) as u32, self.seed.below(KEYS as usize + 1) as u32);
        let (a, b) = (a.min(b), a.max(b).max(a.min(b) + 1));
        let (a, b) = (of(a), of(b));
        (a..b, (self.table.raw_key(&a), self.table.raw_key(&b)))
    }

    /// The keys with the same first part.
    fn like(&self, n: (u32, u32)) -> Range {
        (self.table.raw_key(&(n.0, 0)), self.table.raw_key(&(n.0 + 1, 0)))
    }

    fn within(&self, range: &Range) -> Vec<Key> {
        self.all_keys().into_iter().filter(|key| *key >= range.0 && *key < range.1).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        self.steps += 1;
        let len = [8, 8, 40, 700][self.seed.below(4)];
        self.steps.to_le_bytes().iter().copied().cycle().take(len).collect()
    }

    fn expires(&mut self) -> u64 {
        [PAST, FUTURE][self.seed.below(2)]
    }

    fn actor(&mut self) -> u64 {
        self.actors += 1;
        self.actors
    }

    fn begin<'s>(&mut self, store: &'s Store) -> Open<'s> {
        let level = Isolation::ALL[self.seed.below(3)];
        let only_reads = self.seed.below(4) == 0;
        let tx = (!only_reads).then(|| store.begin(level).unwrap());
        let snapshot = only_reads.then(|| store.snapshot().unwrap());
        let began = tx.as_ref().map(Transaction::snapshot).or_else(|| snapshot.as_ref().map(kv::Snapshot::timestamp));
        let level = tx.as_ref().map_or(Isolation::Snapshot, Transaction::isolation);
        Open {
            tx,
            snapshot,
            actor: self.actor(),
            level,
            began: began.unwrap(),
            state: self.model.state.clone(),
            since: self.model.commits,
            own: Change::new(),
            reads: BTreeSet::new(),
            scans: Vec::new(),
            locked: BTreeSet::new(),
            over: false,
        }
    }

    /// Transactions and operations, until all have ended.
    fn round(&mut self, store: &Store, steps: usize) {
        let mut open: Vec<Open<'_>> = Vec::new();
        let mut feed = Some(store.changes().unwrap());
        self.model.untold.clear();
        for _ in 0..steps {
            if open.len() < 3 && self.seed.below(3) > 0 {
                open.push(self.begin(store));
            }
            if !open.is_empty() && self.seed.below(3) > 0 {
                let at = self.seed.below(open.len());
                let one = open.swap_remove(at);
                let others = open.iter().flat_map(|other| other.locked.iter().cloned()).collect();
                open.extend(self.step(one, &others));
            } else {
                self.between(store, &mut open, &mut feed);
            }
        }
        for one in open {
            self.end(one, "Transaction::abort");
        }
        self.told(feed.as_mut().unwrap());
        self.agree(store);
    }

    fn agree(&self, store: &Store) {
        let snapshot = store.snapshot().unwrap();
        let all = pairs(snapshot.scan(Keys::all())).unwrap();
        let right = self.model.state.iter().filter(|(_, value)| value.is_live());
        assert_eq!(all, right.map(|(key, value)| (key.clone(), value.bytes.clone())).collect::<Vec<_>>());
    }

    /// What the feed tells is what was committed, commit by commit.
    fn told(&mut self, feed: &mut Changes<'_>) {
        let mut told: Vec<(Timestamp, Change)> = Vec::new();
        while let Some(changed) = feed.next().unwrap() {
            if told.last().is_none_or(|(at, _)| *at != changed.at) {
                assert!(told.last().is_none_or(|(at, _)| *at < changed.at));
                told.push((changed.at, Change::new()));
            }
            let value = changed.value.map(|value| (value, changed.expires));
            assert!(told.last_mut().unwrap().1.insert(changed.key, value).is_none(), "a key twice in one commit");
        }
        assert_eq!(
            told.into_iter().map(|(_, change)| change).collect::<VecDeque<_>>(),
            std::mem::take(&mut self.model.untold)
        );
    }
}

fn pairs(scan: kv::Scan<'_>) -> kv::Result<Vec<(Key, Vec<u8>)>> {
    scan.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// One store, some rounds.
fn run(seed: u64, rounds: usize, step: Option<Step>, met: &mut Met) {
    let dir = crate::memory();
    // In short segments places of versions are soon used again.
    let segment = if seed % 8 < 4 { 64 << 10 } else { 4 << 10 };
    let options = Options::new().segment_bytes(segment).checkpoint_bytes(64 << 10).background(false).transactions(8);
    let file = || pmem::Options::new().domain(DomainChoice::File);
    let options = match seed % 4 {
        0 => options,
        1 => options.pool(file()),
        2 => options.pool(file()).group_commit(false),
        _ => options.durability(Durability::Bounded(3)),
    };
    let options = step.into_iter().fold(options, Options::without);
    let mut store = options.create(dir.path().join("store")).unwrap();
    let mut run = Run {
        seed: Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        model: Model::default(),
        met,
        lately: BTreeMap::new(),
        actors: 0,
        steps: 0,
        dir: dir.path().to_owned(),
        table: Table::new("t").unwrap(),
        copies: 0,
        options,
    };
    // Before anybody is in conflict over what the first put stores as well.
    store.put(b"\0types\0t", "(u32, u32) -> bytes").unwrap();
    run.model.commit(&Change::from([(b"\0types\0t".to_vec(), Some((b"(u32, u32) -> bytes".to_vec(), None)))]));
    for _ in 0..rounds {
        let steps = 20 + run.seed.below(60);
        run.round(&store, steps);
        store = run.reopen(store);
    }
    store.close().unwrap();
}

/// `CAIRN_EVERY` gives more seeds than are tried as a rule.
#[test]
fn every_operation_beside_every_other() {
    let seeds = std::env::var("CAIRN_EVERY").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(24);
    let mut met = Met::new();
    for seed in 0..seeds {
        println!("seed {seed}");
        run(seed, 40, None, &mut met);
    }
    let all = |a: usize| (a..OPS.len()).map(move |b| (a, b));
    let unmet: Vec<_> = (0..OPS.len()).flat_map(all).filter(|pair| !met.contains(pair)).collect();
    let names: Vec<_> = unmet.iter().map(|(a, b)| (OPS[*a], OPS[*b])).collect();
    println!("{} pairs of operations met on one key", met.len());
    assert!(names.is_empty(), "{} pairs of operations never met on one key: {names:?}", names.len());
}

#[test]
fn the_generator_misses_each_step_that_is_left_out() {
    for step in [Step::Validate, Step::ValidateScans, Step::KeepTombstones] {
        let notices = |seed| catch_unwind(AssertUnwindSafe(|| run(seed, 40, Some(step), &mut Met::new()))).is_err();
        assert!((0..12).any(notices), "without {step:?} nobody noticed");
    }
}
