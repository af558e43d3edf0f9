//! Every operation beside every other: transactions that are open at once, and operations of the store between their steps, on few keys and in an order drawn from a seed,
//! against a model that says beforehand what each of them finds, and whether it meets a conflict. Which operations met on one key is counted, and none may be left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use kv::{Batch, Changes, Durability, Error, Isolation, Keys, Options, Step, Store, Table, Timestamp, Transaction};
use pmem::DomainChoice;

/// What is drawn from, by the names of the API.
const OPS: &[&str] = &[
    "Transaction::get",
    "Transaction::prefetch",
    "Transaction::scan",
    "Transaction::put",
    "Transaction::put_until",
    "Transaction::delete",
    "Transaction::delete_range",
    "Transaction::expires",
    "Transaction::version",
    "Transaction::commit",
    "Transaction::commit_async",
    "Transaction::abort",
    "drop",
    "Scan::expires",
    "Snapshot::get",
    "Snapshot::scan",
    "Snapshot::expires",
    "Snapshot::backup",
    "Store::get",
    "Store::view",
    "Store::put",
    "Store::put_until",
    "Store::delete",
    "Store::compare_and_set",
    "Store::write",
    "Store::load",
    "Store::loader",
    "Store::transact",
    "Store::transact_at",
    "Store::checkpoint",
    "Store::expire_before",
    "Store::sync",
    "Store::stats",
    "Store::check",
    "Store::drop_damaged",
    "Store::sweep",
    "Store::backup",
    "restore",
    "Changes::next",
    "Table::get",
    "Table::scan",
    "Table::range",
    "Table::prefix",
    "Table::put",
    "Table::put_until",
    "Table::delete",
    "Table::delete_range",
    "TableOn::get",
    "TableOn::view",
    "TableOn::put",
    "TableOn::put_until",
    "TableOn::delete",
    "Store::close",
    "Options::open",
    "Options::open_read_only",
    "Options::salvage",
];

/// What is used on the way to those, or asks for what does not depend on what else goes on.
const ALONG: &[&str] = &[
    "Batch::delete",
    "Batch::is_empty",
    "Batch::len",
    "Batch::new",
    "Batch::put",
    "Batch::put_until",
    "Changes::next",
    "Checked::is_sound",
    "Commit::wait",
    "Entries::reverse",
    "Error::is_conflict",
    "Loader::finish",
    "Loader::loaded",
    "Loader::put",
    "Options::background",
    "Options::create",
    "Options::create_in",
    "Options::durability",
    "Options::group_commit",
    "Options::index_memory",
    "Options::max_snapshot_age",
    "Options::new",
    "Options::open_in",
    "Options::open_or_create",
    "Options::pool",
    "Options::progress",
    "Options::segment",
    "Options::settle",
    "Options::transactions",
    "Options::verify",
    "Options::watermark_every",
    "Options::without",
    "Salvaged::is_empty",
    "Snapshot::timestamp",
    "Store::abandon",
    "Store::at_risk",
    "Store::begin",
    "Store::changes",
    "Store::commits_wait",
    "Store::effective_durability",
    "Store::grow_ahead",
    "Store::open",
    "Store::pool",
    "Store::salvaged",
    "Store::snapshot",
    "Store::table",
    "Table::name",
    "Table::new",
    "Table::on",
    "Table::raw_key",
    "Timestamp::get",
    "Transaction::isolation",
    "Transaction::snapshot",
    "at_next_commit",
];

/// Of stores on several machines: see `replicated`.
const REPLICATED: &[&str] = &[
    "Follower::address",
    "Follower::promote",
    "Follower::serve",
    "Follower::serve_with",
    "Follower::snapshot",
    "Follower::status",
    "Follower::stop",
    "Follower::store",
    "Follower::wait",
    "Options::replicated",
    "Store::check_leading",
    "Store::copies",
    "Store::join",
    "Store::remove_copy",
    "Store::seed",
    "Store::transaction_max",
];

#[test]
fn the_list_has_every_public_operation() {
    let mut there = BTreeSet::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut there);
    let listed = OPS.iter().chain(ALONG).chain(REPLICATED).map(|name| (*name).to_owned()).filter(|name| name != "drop");
    assert_eq!(there, listed.collect());
}

/// The public functions of the crate, by their types.
fn sources(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
            continue;
        }
        let mut of = String::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if line.starts_with("impl") && !line.contains(" for ") {
                // Behind its own parameters, which nest.
                let mut depth = 0;
                let behind = line.strip_prefix("impl").unwrap().trim_start_matches(|c| {
                    depth += i32::from(c == '<') - i32::from(c == '>');
                    depth > 0 || c == '>' || c == ' '
                });
                of = behind.split(['<', ' ']).next().unwrap().to_owned();
            }
            let Some(function) = line.trim_start().strip_prefix("pub fn ") else { continue };
            let function = function.split(['(', '<']).next().unwrap();
            match line.len() - line.trim_start().len() {
                0 => found.insert(function.to_owned()),
                _ => found.insert(format!("{of}::{function}")),
            };
        }
    }
}

// ---- the model -------------------------------------------------------------------------------------------------------

/// Draws.
struct Seed(u64);

impl Seed {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mixed = (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> 32) as usize * limit) >> 32
    }
}

type Key = Vec<u8>;

/// A key's newest record, if that is no tombstone.
#[derive(Clone, Debug, PartialEq)]
struct Value {
    bytes: Vec<u8>,
    expires: Option<u64>,
    /// By which commit.
    by: u64,
}

impl Value {
    fn is_live(&self) -> bool {
        self.expires != Some(PAST)
    }
}

const PAST: u64 = 1;
const FUTURE: u64 = u64::MAX >> 2;

type State = BTreeMap<Key, Value>;
/// What a commit has done, for the feed.
type Change = BTreeMap<Key, Option<(Vec<u8>, Option<u64>)>>;

#[derive(Default)]
struct Model {
    state: State,
    commits: u64,
    /// Which commit wrote a key last.
    touched: BTreeMap<Key, u64>,
    /// What the feed has not told yet.
    untold: VecDeque<Change>,
}

impl Model {
    fn commit(&mut self, writes: &Change) {
        if writes.is_empty() {
            return;
        }
        self.commits += 1;
        for (key, value) in writes {
            self.touched.insert(key.clone(), self.commits);
            match value {
                Some((bytes, expires)) => {
                    let value = Value { bytes: bytes.clone(), expires: *expires, by: self.commits };
                    self.state.insert(key.clone(), value);
                }
                None => drop(self.state.remove(key)),
            }
        }
        self.untold.push_back(writes.clone());
    }

    fn live(&self, key: &[u8]) -> Option<&Value> {
        self.state.get(key).filter(|value| value.is_live())
    }

    fn touched(&self, key: &[u8]) -> u64 {
        self.touched.get(key).copied().unwrap_or(0)
    }
}

type Range = (Key, Key);

fn keys(range: &Range, reverse: bool) -> Keys {
    Keys { from: Bound::Included(range.0.clone()), to: Bound::Excluded(range.1.clone()), reverse }
}

fn live_in(state: &State, range: &Range) -> Vec<(Key, u64)> {
    let all = state.range(range.0.clone()..range.1.clone());
    all.filter(|(_, value)| value.is_live()).map(|(key, value)| (key.clone(), value.by)).collect()
}

/// An open transaction, and what is known of it.
struct Open<'s> {
    /// None: it is a snapshot.
    tx: Option<Transaction<'s>>,
    snapshot: Option<kv::Snapshot<'s>>,
    actor: u64,
    level: Isolation,
    began: Timestamp,
    state: State,
    since: u64,
    own: Change,
    reads: BTreeSet<Key>,
    scans: Vec<Range>,
    locked: BTreeSet<Key>,
    /// It failed, or was told that it is too old: all it is still good for is to end.
    over: bool,
}

impl Open<'_> {
    fn sees(&self, key: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
        let seen = match self.own.get(key) {
            Some(own) => own.clone(),
            None => self.state.get(key).map(|value| (value.bytes.clone(), value.expires)),
        };
        seen.filter(|(_, expires)| *expires != Some(PAST))
    }

    fn sees_in(&self, range: &Range) -> Vec<(Key, Vec<u8>)> {
        let all: BTreeSet<&Key> = self.state.keys().chain(self.own.keys()).collect();
        let all = all.into_iter().filter(|key| **key >= range.0 && **key < range.1);
        all.filter_map(|key| Some((key.clone(), self.sees(key)?.0))).collect()
    }

    fn reads(&mut self, key: &[u8]) {
        if !self.own.contains_key(key) && self.level > Isolation::Snapshot {
            self.reads.insert(key.to_vec());
        }
    }

    /// Whether what it saw is still so.
    fn is_valid(&self, model: &Model) -> bool {
        self.level == Isolation::Snapshot
            || self.reads.iter().all(|key| model.touched(key) <= self.since)
                && self.scans.iter().all(|range| live_in(&self.state, range) == live_in(&model.state, range))
    }

    /// What a write of the key finds: whether it had a value, or none, if that is a conflict.
    fn writes(
        &mut self,
        key: &[u8],
        value: Option<(Vec<u8>, Option<u64>)>,
        model: &Model,
        others: &BTreeSet<Key>,
    ) -> Option<bool> {
        let had = self.sees(key).is_some();
        if !self.own.contains_key(key) {
            if others.contains(key) {
                return None;
            }
            self.locked.insert(key.to_vec());
            if model.touched(key) > self.since {
                return None;
            }
            if value.is_none() && !self.state.contains_key(key) {
                self.reads(key);
                return Some(false);
            }
        }
        self.own.insert(key.to_vec(), value);
        Some(had)
    }
}

// ---- the run ---------------------------------------------------------------------------------------------------------

/// Which operations met: by places in the list, the lower one first.
type Met = BTreeSet<(usize, usize)>;

struct Run<'m> {
    seed: Seed,
    model: Model,
    met: &'m mut Met,
    /// Of each key, who did what with it lately.
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
        let all: Vec<_> =
            snapshot.scan(Keys::all()).map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
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

    // ---- steps of transactions -----------------------------------------------------------------------------------

    fn step<'s>(&mut self, mut one: Open<'s>, others: &BTreeSet<Key>) -> Option<Open<'s>> {
        let actor = one.actor;
        if let Some(snapshot) = &one.snapshot {
            let op = [
                "Snapshot::get",
                "Snapshot::scan",
                "Snapshot::expires",
                "Snapshot::backup",
                "drop",
                "Table::get",
                "Table::scan",
                "Table::range",
                "Table::prefix",
            ][self.seed.below(9)];
            let (n, key) = self.key();
            let (numbers, range) = self.range();
            let result = match op {
                "Snapshot::get" => snapshot
                    .get(&key)
                    .map(|value| assert_eq!(value.map(<[u8]>::to_vec), one.sees(&key).map(|seen| seen.0))),
                "Snapshot::expires" => {
                    snapshot.expires(&key).map(|at| assert_eq!(at, one.sees(&key).and_then(|seen| seen.1)))
                }
                "Table::get" => self
                    .table
                    .get(snapshot, &n)
                    .map(|value| assert_eq!(value.map(<[u8]>::to_vec), one.sees(&key).map(|seen| seen.0))),
                "Snapshot::scan" => {
                    pairs(snapshot.scan(keys(&range, false))).map(|found| assert_eq!(found, one.sees_in(&range)))
                }
                "Table::scan" | "Table::range" | "Table::prefix" => {
                    let entries = match op {
                        "Table::scan" => self.table.scan(snapshot),
                        "Table::range" => self.table.range(snapshot, numbers.clone()),
                        _ => self.table.prefix(snapshot, &(n.0,)),
                    };
                    let found: kv::Result<Vec<_>> =
                        entries.map(|entry| entry.map(|(n, value)| (self.table.raw_key(&n), value.to_vec()))).collect();
                    let wanted: Vec<_> = match op {
                        "Table::scan" => one.sees_in(&(vec![0], vec![255])),
                        "Table::range" => one.sees_in(&range),
                        _ => one.sees_in(&self.like(n)),
                    };
                    found.map(|found| assert_eq!(found, wanted))
                }
                "Snapshot::backup" => {
                    let to = self.copy();
                    let result = snapshot
                        .backup(&to, |_| ())
                        .map(|backup| assert_eq!(backup.pairs, one.sees_in(&(vec![0], vec![255])).len() as u64));
                    std::fs::remove_file(&to).ok();
                    result
                }
                _ => Ok(()),
            };
            let touched = match op {
                "Snapshot::get" | "Snapshot::expires" | "Table::get" => vec![key],
                "Table::prefix" => self.within(&self.like(n)),
                "Snapshot::scan" | "Table::range" => self.within(&range),
                _ => self.all_keys(),
            };
            assert_eq!(result.is_err(), one.over && op != "drop", "{op}: {result:?}");
            self.note(op, actor, &touched);
            return (op != "drop").then_some(one);
        }
        let op = [
            "Transaction::get",
            "Transaction::prefetch",
            "Transaction::scan",
            "Transaction::put",
            "Transaction::put_until",
            "Transaction::delete",
            "Transaction::delete_range",
            "Transaction::expires",
            "Transaction::version",
            "Transaction::commit",
            "Transaction::commit_async",
            "Transaction::abort",
            "drop",
            "Table::get",
            "Table::scan",
            "Table::range",
            "Table::prefix",
            "Table::put",
            "Table::put_until",
            "Table::delete",
            "Table::delete_range",
            "Scan::expires",
            "Transaction::put",
            "Transaction::get",
            "Transaction::commit",
        ][self.seed.below(25)];
        if matches!(op, "Transaction::commit" | "Transaction::commit_async" | "Transaction::abort" | "drop") {
            self.end(one, op);
            return None;
        }
        let (n, key) = self.key();
        let (numbers, range) = self.range();
        let mut tx = one.tx.take().unwrap();
        let (value, at) = (self.value(), self.expires());
        let all: Range = (vec![0], vec![255]);
        let mut touched = vec![key.clone()];
        // Whether it failed, and whether it was to.
        let (failed, conflict) = match op {
            "Transaction::get" | "Table::get" => {
                let found = if op == "Table::get" { self.table.get(&tx, &n) } else { tx.get(&key) };
                let found = found.map(|value| value.map(<[u8]>::to_vec));
                if let (Ok(found), false) = (&found, one.over) {
                    assert_eq!(*found, one.sees(&key).map(|seen| seen.0));
                    one.reads(&key);
                }
                (found.err(), false)
            }
            "Transaction::expires" => {
                let found = tx.expires(&key);
                if let (Ok(found), false) = (&found, one.over) {
                    assert_eq!(*found, one.sees(&key).and_then(|seen| seen.1));
                    one.reads(&key);
                }
                (found.err(), false)
            }
            "Transaction::version" => {
                let found = tx.version(&key);
                if let (Ok(found), false) = (&found, one.over) {
                    let committed = !one.own.contains_key(&key) && one.sees(&key).is_some();
                    assert_eq!(found.is_some(), committed);
                    assert!(found.is_none_or(|at| at <= one.began));
                    one.reads(&key);
                }
                (found.err(), false)
            }
            "Transaction::prefetch" => {
                tx.prefetch(&[&key]);
                (one.over.then_some(Error::Doomed { first: String::new() }), false)
            }
            "Transaction::scan" | "Scan::expires" | "Table::scan" | "Table::range" | "Table::prefix" => {
                let reverse = op == "Transaction::scan" && self.seed.below(2) == 0;
                let range = match op {
                    "Table::scan" => all.clone(),
                    "Table::prefix" => self.like(n),
                    _ => range,
                };
                let found: kv::Result<Vec<_>> = match op {
                    "Transaction::scan" => pairs(tx.scan(keys(&range, reverse))),
                    "Scan::expires" => {
                        let mut scan = tx.scan(keys(&range, false));
                        let mut found = Vec::new();
                        loop {
                            match scan.next() {
                                None => break Ok(found),
                                Some(Err(error)) => break Err(error),
                                Some(Ok((key, value))) => {
                                    let (key, value) = (key.to_vec(), value.to_vec());
                                    assert_eq!(scan.expires(), one.sees(&key).and_then(|seen| seen.1));
                                    found.push((key, value));
                                }
                            }
                        }
                    }
                    _ => {
                        let entries = match op {
                            "Table::scan" => self.table.scan(&tx),
                            "Table::range" => self.table.range(&tx, numbers),
                            _ => self.table.prefix(&tx, &(n.0,)),
                        };
                        entries.map(|entry| entry.map(|(n, value)| (self.table.raw_key(&n), value.to_vec()))).collect()
                    }
                };
                touched = self.within(&range);
                if let (Ok(found), false) = (&found, one.over) {
                    let mut wanted = one.sees_in(&range);
                    if reverse {
                        wanted.reverse();
                    }
                    assert_eq!(*found, wanted);
                    if one.level > Isolation::Snapshot {
                        one.scans.push(range);
                    }
                }
                (found.err(), false)
            }
            "Transaction::delete_range" | "Table::delete_range" => {
                let found = if op == "Table::delete_range" {
                    self.table.delete_range(&mut tx, numbers)
                } else {
                    tx.delete_range(keys(&range, false))
                };
                touched = self.within(&range);
                if one.over {
                    (found.err(), false)
                } else {
                    let doomed = one.sees_in(&range);
                    if one.level > Isolation::Snapshot {
                        one.scans.push(range);
                    }
                    let all =
                        doomed.iter().try_for_each(|(key, _)| one.writes(key, None, &self.model, others).map(drop));
                    if let Ok(count) = found {
                        assert_eq!(count, doomed.len() as u64);
                    }
                    (found.err(), all.is_none())
                }
            }
            _ => {
                let found = match op {
                    "Transaction::put" => tx.put(&key, &value),
                    "Transaction::put_until" => tx.put_until(&key, &value, at),
                    "Transaction::delete" => tx.delete(&key),
                    "Table::put" => self.table.put(&mut tx, &n, &value),
                    "Table::put_until" => self.table.put_until(&mut tx, &n, &value, at),
                    _ => self.table.delete(&mut tx, &n),
                };
                if one.over {
                    (found.err(), false)
                } else {
                    let written = match op {
                        "Transaction::put" | "Table::put" => Some((value, None)),
                        "Transaction::put_until" | "Table::put_until" => Some((value, Some(at))),
                        _ => None,
                    };
                    let had = one.writes(&key, written, &self.model, others);
                    if let Ok(found) = found {
                        assert_eq!(Some(found), had, "{op}");
                    }
                    (found.err(), had.is_none())
                }
            }
        };
        assert_eq!(failed.is_some(), conflict || one.over, "{op}: {failed:?}");
        assert!(!conflict || failed.is_some_and(|error| error.is_conflict()));
        one.over |= conflict;
        one.tx = Some(tx);
        self.note(op, actor, &touched);
        Some(one)
    }

    fn end(&mut self, mut one: Open<'_>, op: &str) {
        let touched: BTreeSet<Key> = one.own.keys().chain(&one.reads).chain(&one.locked).cloned().collect();
        let touched: Vec<_> = touched.into_iter().collect();
        let Some(tx) = one.tx.take() else { return };
        match op {
            "Transaction::commit" | "Transaction::commit_async" => {
                let result = if op == "Transaction::commit" { tx.commit() } else { tx.commit_async().wait() };
                let fails = one.over || !one.own.is_empty() && !one.is_valid(&self.model);
                assert_eq!(result.is_err(), fails, "{op}: {result:?}");
                if !fails {
                    self.model.commit(&one.own);
                } else if !one.over {
                    assert!(result.is_err_and(|error| error.is_conflict()));
                }
            }
            "Transaction::abort" => tx.abort(),
            _ => drop(tx),
        }
        self.note(op, one.actor, &touched);
    }

    // ---- operations of the store ---------------------------------------------------------------------------------

    fn between<'s>(&mut self, store: &'s Store, open: &mut Vec<Open<'s>>, feed: &mut Option<Changes<'s>>) {
        let actor = self.actor();
        let op = OPS[self.seed.below(OPS.len())];
        let (n, key) = self.key();
        let locked: BTreeSet<Key> = open.iter().flat_map(|one| one.locked.iter().cloned()).collect();
        let free = !locked.contains(&key);
        let (value, at) = (self.value(), self.expires());
        let had = self.model.live(&key).cloned();
        let bytes = had.as_ref().map(|value| value.bytes.clone());
        let put = |value: &[u8], expires| Change::from([(key.clone(), Some((value.to_vec(), expires)))]);
        let on = self.table.on(store);
        let mut touched = vec![key.clone()];
        match op {
            "Store::get" => assert_eq!(store.get(&key).unwrap(), bytes),
            "TableOn::get" => assert_eq!(on.get(&n).unwrap(), bytes),
            "Store::view" => assert_eq!(store.view(&key, |value| value.map(<[u8]>::to_vec)).unwrap(), bytes),
            "TableOn::view" => assert_eq!(on.view(&n, |value| value.map(<[u8]>::to_vec)).unwrap(), bytes),
            "Store::put" | "TableOn::put" if free => {
                let found = if op == "Store::put" { store.put(&key, &value) } else { on.put(&n, &value) };
                assert_eq!(found.unwrap(), had.is_some());
                self.model.commit(&put(&value, None));
            }
            "Store::put_until" | "TableOn::put_until" if free => {
                let found = if op == "Store::put_until" {
                    store.put_until(&key, &value, at)
                } else {
                    on.put_until(&n, &value, at)
                };
                assert_eq!(found.unwrap(), had.is_some());
                self.model.commit(&put(&value, Some(at)));
            }
            "Store::delete" | "TableOn::delete" if free => {
                let found = if op == "Store::delete" { store.delete(&key) } else { on.delete(&n) };
                assert_eq!(found.unwrap(), had.is_some());
                if self.model.state.contains_key(&key) {
                    self.model.commit(&Change::from([(key.clone(), None)]));
                }
            }
            "Store::compare_and_set" if free => {
                let expected = if self.seed.below(4) > 0 { bytes.clone() } else { Some(b"other".to_vec()) };
                let new = (self.seed.below(3) > 0).then_some(&value[..]);
                let done = store.compare_and_set(&key, expected.as_deref(), new).unwrap();
                assert_eq!(done, expected == bytes);
                if done && let Some(value) = new {
                    self.model.commit(&put(value, None));
                } else if done && self.model.state.contains_key(&key) {
                    self.model.commit(&Change::from([(key.clone(), None)]));
                }
            }
            "Store::write" if free => {
                let mut batch = Batch::new();
                batch.put(&key, b"").put_until(&key, &value, at);
                assert_eq!(batch.len(), 2);
                store.write(&batch).unwrap();
                self.model.commit(&put(&value, Some(at)));
            }
            "Store::load" if free => {
                assert_eq!(store.load([(&key, &value)]).unwrap().pairs, 1);
                self.model.commit(&put(&value, None));
            }
            "Store::loader" if free => {
                let mut loader = store.loader();
                loader.put(&key, &value, Some(FUTURE)).unwrap();
                assert_eq!(loader.loaded().pairs, 0);
                assert_eq!(loader.finish().unwrap().pairs, 1);
                self.model.commit(&put(&value, Some(FUTURE)));
            }
            "Store::transact" | "Store::transact_at" if free => {
                let body = |tx: &mut Transaction<'_>| {
                    let found = tx.get(&key)?.map(<[u8]>::to_vec);
                    tx.put(&key, &value)?;
                    Ok(found)
                };
                let found = match op {
                    "Store::transact" => store.transact(body),
                    _ => store.transact_at(Isolation::ALL[self.seed.below(3)], body),
                };
                assert_eq!(found.unwrap(), bytes);
                self.model.commit(&put(&value, None));
            }
            _ => {
                touched = self.all_keys();
                if !self.whole(op, store, open, feed, &locked) {
                    return;
                }
            }
        }
        self.note(op, actor, &touched);
    }

    /// Operations about all keys; false if it is none, or cannot be now.
    fn whole<'s>(
        &mut self,
        op: &str,
        store: &'s Store,
        open: &mut [Open<'s>],
        feed: &mut Option<Changes<'s>>,
        locked: &BTreeSet<Key>,
    ) -> bool {
        let live = self.model.state.values().filter(|value| value.is_live()).count() as u64;
        match op {
            "Store::checkpoint" => store.checkpoint().unwrap(),
            "Store::sync" => {
                store.sync().unwrap();
                assert_eq!(store.at_risk(), 0);
            }
            "Store::stats" => {
                let stats = store.stats();
                assert_eq!(stats.active, open.len() + usize::from(feed.is_some()));
                assert!(stats.entries >= self.model.state.len() as u64);
            }
            "Store::check" => {
                let checked = store.check(|_| ()).unwrap();
                assert!(checked.is_sound() && checked.keys == self.model.state.len() as u64, "{checked:?}");
            }
            "Store::drop_damaged" => assert!(store.drop_damaged().unwrap().is_empty()),
            "Store::sweep" => {
                let expired = self.model.state.iter().filter(|(key, value)| !value.is_live() && !locked.contains(*key));
                let change: Change = expired.map(|(key, _)| (key.clone(), None)).collect();
                assert_eq!(store.sweep().unwrap(), change.len() as u64);
                // In one transaction, or key by key where somebody holds one of them.
                if self.model.state.iter().all(|(key, value)| value.is_live() || !locked.contains(key)) {
                    self.model.commit(&change);
                } else {
                    change.into_iter().for_each(|(key, value)| self.model.commit(&Change::from([(key, value)])));
                }
            }
            "Store::expire_before" => {
                drop(feed.take());
                let Some(limit) = open.iter().map(|one| one.began).max() else {
                    *feed = Some(store.changes().unwrap());
                    self.model.untold.clear();
                    return false;
                };
                store.expire_before(limit);
                for one in open.iter_mut().filter(|one| one.began < limit) {
                    one.over = true;
                }
                *feed = Some(store.changes().unwrap());
                self.model.untold.clear();
            }
            "Store::backup" | "restore" => {
                let (to, again) = (self.copy(), self.copy());
                assert_eq!(store.backup(&to).unwrap().pairs, live);
                if op == "restore" {
                    assert_eq!(kv::restore(&to, &again, |_| ()).unwrap().pairs, live);
                }
                self.agree(&Options::new().open_read_only(if op == "restore" { &again } else { &to }).unwrap());
                [to, again].iter().for_each(|copy| drop(std::fs::remove_file(copy)));
            }
            "Changes::next" => self.told(feed.as_mut().unwrap()),
            _ => return false,
        }
        true
    }

    fn copy(&mut self) -> PathBuf {
        self.copies += 1;
        self.dir.join(format!("copy{}", self.copies))
    }

    fn reopen(&mut self, store: Store) -> Store {
        let at = self.dir.join("store");
        let actor = self.actor();
        let all = self.all_keys();
        if self.seed.below(2) == 0 {
            store.close().unwrap();
            self.note("Store::close", actor, &all);
            if self.seed.below(2) == 0 {
                let store = self.options.clone().open_read_only(&at).unwrap();
                self.agree(&store);
                store.close().unwrap();
                let actor = self.actor();
                self.note("Options::open_read_only", actor, &all);
            }
        } else {
            store.abandon();
        }
        let salvage = self.seed.below(2) == 0;
        let store = self.options.clone().salvage(salvage).open(&at).unwrap();
        let actor = self.actor();
        self.note(if salvage { "Options::salvage" } else { "Options::open" }, actor, &all);
        self.agree(&store);
        store
    }
}

fn pairs(scan: kv::Scan<'_>) -> kv::Result<Vec<(Key, Vec<u8>)>> {
    scan.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// One store, some rounds.
fn run(seed: u64, rounds: usize, step: Option<Step>, met: &mut Met) {
    let dir = crate::memory();
    let options = Options::new().segment(64 << 10).settle(64 << 10).background(false).transactions(8);
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
