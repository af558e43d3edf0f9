//! Damaged stores, by the file: a workload of values, calls and frees leaves a store that was closed, or one that was killed, perhaps with calls in its logs. Then one bit of every word that is neither
//! an object nor zero is flipped, and pages and lines are damaged as draws say. Opening it must lead to an error, or to the same contents, or to what docs/mvcc.md names: a killed store without
//! its last commits, and objects whose own bytes were damaged. The table is that of `docs/damage.md`; `CAIRN_DAMAGE` is how many are drawn of each kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use mvcc::{Mvcc, Options};
use pmem::{Allocator, DomainChoice, HeapOptions, PPtr, bytes_of, from_bytes};
use tx::{Engine, Error, Isolation, Procedure, Result, Transaction, Typed};

const PAGE: usize = 4096;
type Object = [u64; 8];

/// Sets all words of an object.
struct Set;

impl Procedure for Set {
    const NAME: &'static str = "set";
    type Args = (PPtr<Object>, u64);
    type Output = ();

    fn run<X: Transaction>(tx: &mut X, &(object, value): &Self::Args) -> Result<()> {
        *tx.write(object)? = [value; 8];
        Ok(())
    }

    fn encode((object, value): &Self::Args, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(bytes_of(object));
        out.extend_from_slice(bytes_of(value));
        true
    }

    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        let args = args.split_at_checked(8).and_then(|(at, value)| Some((from_bytes(at)?, from_bytes(value)?)));
        Self::run(tx, &args.ok_or(Error::Aborted { reason: "no arguments".into() })?)
    }
}

fn options() -> Options {
    let blocks = HeapOptions::chunk_bytes(4096).unwrap();
    let pool = pmem::Options::new().size(64 << 10).domain(DomainChoice::Emulated);
    let options = Options::new().pool(pool).bytes(96 << 10).max_bytes(96 << 10).blocks(blocks);
    options.slots(2).log_bytes(4096).copy_bytes(4096).background(false).procedure::<Set>()
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 27) % limit as u64) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bit,
    Line,
    ZeroedPage,
    MovedPage,
    LostWrite,
    Truncated,
}

const KINDS: [Kind; 6] = [Kind::Bit, Kind::Line, Kind::ZeroedPage, Kind::MovedPage, Kind::LostWrite, Kind::Truncated];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Error,
    /// A copy of a cell, or of the header, was made whole.
    Repaired,
    Equal,
    /// Other contents, where docs/mvcc.md says that it can be so.
    Limit,
}

/// A store's file, and what is in it.
struct Reference {
    closed: bool,
    bytes: Vec<u8>,
    earlier: Vec<Vec<u8>>,
    objects: BTreeMap<u64, u64>,
    /// Every value that an object ever held.
    values: BTreeMap<u64, BTreeSet<u64>>,
    contents: Vec<Range<usize>>,
    logs: Vec<Range<usize>>,
}

impl Reference {
    fn new(closed: bool, calls: bool, seed: u64, dir: &Path) -> Self {
        let path = dir.join("reference");
        drop(fs::remove_file(&path));
        let store = Mvcc::create(&path, &options()).unwrap();
        let mut rng = Rng(seed);
        let (mut live, mut earlier): (Vec<PPtr<Object>>, _) = (Vec::new(), Vec::new());
        let (mut objects, mut values) = (BTreeMap::new(), BTreeMap::<u64, BTreeSet<u64>>::new());
        for number in 1..=300u64 {
            let object = match live.len() {
                n if n < 40 || n < 150 && rng.below(2) == 0 => {
                    let make = |tx: &mut mvcc::Tx<'_>| {
                        let made = tx.alloc(&[number; 8])?;
                        if number == 1 { tx.set_root(made).map(|()| made) } else { Ok(made) }
                    };
                    let made = store.transact(Isolation::Strict, make).unwrap();
                    live.push(made);
                    made
                }
                n => {
                    let object = live[rng.below(n)];
                    if calls && number % 2 == 0 {
                        store.call::<Set>(&(object, number)).unwrap();
                    } else {
                        store.transact(Isolation::Strict, |tx| tx.write(object).map(|o| *o = [number; 8])).unwrap();
                    }
                    object
                }
            };
            objects.insert(object.offset(), number);
            values.entry(object.offset()).or_default().insert(number);
            if number % 7 == 0 && live.len() > 20 {
                let gone = live.swap_remove(1 + rng.below(live.len() - 1));
                store.transact(Isolation::Strict, |tx| tx.free(gone)).unwrap();
                objects.remove(&gone.offset());
            }
            if number % 40 == 0 {
                earlier.push(fs::read(&path).unwrap());
            }
            if number == 150 {
                store.write_back().unwrap();
            }
        }
        let regions = store.pool().info().regions;
        let range = |region: &pmem::RegionInfo| region.offset as usize..(region.offset + region.len) as usize;
        let is_log = |region: &&pmem::RegionInfo| ["mvcc.logs", "mvcc.copies"].contains(&region.name.as_str());
        let logs = regions.iter().filter(is_log).map(range).collect();
        if closed {
            store.close().unwrap();
        } else {
            store.abandon();
        }
        let bytes = fs::read(&path).unwrap();
        earlier.iter_mut().for_each(|earlier| earlier.resize(bytes.len(), 0));
        let pool = pmem::Options::new().domain(DomainChoice::Emulated).open(&path).unwrap();
        let spaces = Allocator::open(&pool, "mvcc").unwrap().spaces();
        let contents = spaces.iter().map(|space| space.start as usize..space.end as usize).collect();
        Self { closed, bytes, earlier, objects, values, contents, logs }
    }

    fn draw(&self, kind: Kind, rng: &mut Rng) -> (Vec<u8>, Range<usize>) {
        let mut bytes = self.bytes.clone();
        let is_used = |at: &usize| bytes[*at..at + PAGE].iter().any(|byte| *byte != 0);
        let used: Vec<usize> = (0..bytes.len()).step_by(PAGE).filter(is_used).collect();
        let at = used[rng.below(used.len())];
        let page = at..at + PAGE;
        let touched = match kind {
            Kind::Bit => {
                let bit = rng.below(PAGE * 8);
                bytes[at + bit / 8] ^= 1 << (bit % 8);
                at + bit / 8..at + bit / 8 + 1
            }
            Kind::Line => {
                let line = at + rng.below(64) * 64;
                bytes[line..line + 64].iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
                line..line + 64
            }
            Kind::ZeroedPage => {
                bytes[page.clone()].fill(0);
                page
            }
            Kind::MovedPage => {
                let from = used[rng.below(used.len())];
                bytes.copy_within(from..from + PAGE, at);
                page
            }
            Kind::LostWrite => {
                let then = &self.earlier[rng.below(self.earlier.len())];
                bytes[page.clone()].copy_from_slice(&then[page.clone()]);
                page
            }
            Kind::Truncated => {
                bytes.truncate(rng.below(used[used.len() - 1]));
                bytes.len()..self.bytes.len()
            }
        };
        (bytes, touched)
    }

    /// Whether other contents are what docs/mvcc.md says, where this was touched.
    fn is_limit(&self, touched: &Range<usize>, is_older: bool) -> bool {
        let is_in = |ranges: &[Range<usize>]| ranges.iter().any(|range| range.contains(&touched.start));
        // Objects have no checksum; the last records of a slot that was not closed may never have arrived.
        is_in(&self.contents) || !self.closed && is_in(&self.logs) && is_older
    }

    /// What came of it, or what must not be.
    fn judge(&self, bytes: &[u8], touched: &Range<usize>, path: &Path) -> Result<Outcome, String> {
        fs::write(path, bytes).unwrap();
        let Ok(store) = Mvcc::open(path, &options()) else { return Ok(Outcome::Error) };
        let mut live = BTreeSet::new();
        if store.live_blocks(|offset, _| live.extend([offset])).is_err() {
            return Ok(Outcome::Error);
        }
        let (mut wrong, mut never) = (Vec::new(), Vec::new());
        let read = |offset: u64| store.snapshot().read(PPtr::<Object>::new(store.pool().tag(), offset));
        for (&offset, &value) in &self.objects {
            match read(offset) {
                Ok(seen) if seen == [value; 8] => {}
                Ok(seen) => {
                    wrong.push(offset);
                    if seen[1..] != seen[..7] || !self.values[&offset].contains(&seen[0]) {
                        never.push(offset);
                    }
                }
                Err(_) if live.contains(&offset) => return Ok(Outcome::Error),
                Err(_) => wrong.push(offset),
            }
        }
        // The root's block besides.
        let same_blocks = live.len() == self.objects.len() + 1 && self.objects.keys().all(|o| live.contains(o));
        if !wrong.is_empty() || !same_blocks {
            return match self.is_limit(touched, never.is_empty()) {
                true => Ok(Outcome::Limit),
                false => Err(format!(
                    "{} objects differ, {} hold what they never held; blocks {same_blocks}",
                    wrong.len(),
                    never.len()
                )),
            };
        }
        // It is used: nothing that lives is handed out.
        for _ in 0..40 {
            if store.transact(Isolation::Strict, |tx| tx.alloc(&[u64::MAX; 8])).is_err() {
                break;
            }
        }
        for (&offset, &value) in &self.objects {
            match read(offset) {
                Ok(seen) if seen == [value; 8] => {}
                other => return Err(format!("a new block overwrote the object at {offset:#x}: {other:?}")),
            }
        }
        let repaired = store.recovery().cells > 0 || store.pool().was_repaired();
        Ok(if repaired { Outcome::Repaired } else { Outcome::Equal })
    }

    fn caught(&self, bytes: &[u8], touched: &Range<usize>, path: &Path) -> Result<Outcome, String> {
        catch_unwind(AssertUnwindSafe(|| self.judge(bytes, touched, path))).unwrap_or_else(|_| Err("panic".into()))
    }
}

/// Closed; killed; killed with calls in its logs.
const STATES: [(&str, bool, bool); 3] =
    [("mvcc, closed", true, true), ("mvcc, killed", false, false), ("mvcc with calls, killed", false, true)];

fn seed() -> u64 {
    std::env::var("CAIRN_SEED").map_or(20, |text| text.parse().unwrap())
}

#[test]
fn damaged_stores_never_pass_for_sound_ones() {
    let each: u64 = std::env::var("CAIRN_DAMAGE").map_or(40, |text| text.parse().unwrap());
    let seed = seed();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("p");
    let mut table: BTreeMap<(&str, Kind), BTreeMap<Outcome, u64>> = BTreeMap::new();
    let mut failures = Vec::new();
    for (name, closed, calls) in STATES {
        let reference = Reference::new(closed, calls, seed, dir.path());
        assert_eq!(reference.judge(&reference.bytes, &(0..0), &path), Ok(Outcome::Equal), "{name}");
        for (kind, number) in KINDS.into_iter().flat_map(|kind| (0..each).map(move |number| (kind, number))) {
            let mut rng = Rng(seed << 40 ^ (kind as u64) << 32 ^ number);
            let (bytes, touched) = reference.draw(kind, &mut rng);
            match reference.caught(&bytes, &touched, &path) {
                Ok(outcome) => *table.entry((name, kind)).or_default().entry(outcome).or_default() += 1,
                Err(what) => failures.push(format!("{name}, {kind:?} {number} at {touched:x?}: {what}")),
            }
        }
    }
    println!(
        "seed {seed}, {each} of each\n| store | damage | error | repaired | equal | limit |\n|---|---|---|---|---|---|"
    );
    for ((name, kind), outcomes) in &table {
        let of = |outcome| outcomes.get(&outcome).copied().unwrap_or(0).to_string();
        let counts = [Outcome::Error, Outcome::Repaired, Outcome::Equal, Outcome::Limit].map(of);
        println!("| {name} | {kind:?} | {} |", counts.join(" | "));
    }
    assert!(failures.is_empty(), "{} of them:\n{}", failures.len(), failures[..failures.len().min(30)].join("\n"));
}

/// A bit of every word that is not zero, and no part of an object: headers, directory, cells, marks, records, tables.
#[test]
fn a_bit_of_every_word_is_noticed_or_harmless() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("p");
    let mut failures = Vec::new();
    for (name, closed, calls) in STATES {
        let reference = Reference::new(closed, calls, seed(), dir.path());
        let (mut outcomes, mut rng) = (BTreeMap::<Outcome, u64>::new(), Rng(seed()));
        let is_content = |at: usize| reference.contents.iter().any(|range| range.contains(&at));
        let is_zero = |at: usize| reference.bytes[at..at + 8].iter().all(|byte| *byte == 0);
        for at in (0..reference.bytes.len()).step_by(8).filter(|at| !is_content(*at) && !is_zero(*at)) {
            let (mut bytes, bit) = (reference.bytes.clone(), rng.below(64));
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            match reference.caught(&bytes, &(at..at + 8), &path) {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(what) => failures.push(format!("{name}, bit {bit} at {at:#x}: {what}")),
            }
        }
        println!("{name}: {outcomes:?}");
        let all: u64 = outcomes.values().sum();
        assert!(all > 500 && outcomes.contains_key(&Outcome::Repaired), "{name}: {outcomes:?}");
        assert!(closed || outcomes[&Outcome::Error] > 100, "{name}: {outcomes:?}");
    }
    assert!(failures.is_empty(), "{} of them:\n{}", failures.len(), failures[..failures.len().min(30)].join("\n"));
}
