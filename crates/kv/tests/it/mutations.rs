//! Damage of every kind, to stores that were closed and to stores whose process was killed. What comes of it is an error, all pairs, or, of a store that was not
//! closed, all but the last few of each thread's log, as README says.
//!
//! `CAIRN_DAMAGE=100000` makes so many mutations of each store, `CAIRN_SEED` others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use kv::{Error, Keys, Options, Store};

const PAGE: usize = 4096;
/// What README says goes unnoticed.
const NODE: &str = "lost write of nodes";

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A value, or that there was none, and from which write on.
type Held = (Option<Vec<u8>>, usize);

/// A file, what is in it, and what it was before.
struct Made {
    name: &'static str,
    closed: bool,
    bytes: Vec<u8>,
    older: Vec<Vec<u8>>,
    pairs: Pairs,
    /// What each key had, in order, and how many writes came behind each.
    history: BTreeMap<Vec<u8>, Vec<Held>>,
    /// Where the table of segments stands.
    front: usize,
    /// Pages with nodes of the index.
    nodes: Vec<Range<usize>>,
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

fn options() -> Options {
    Options::new().segment(16 << 10).verify(true)
}

fn made(name: &'static str, writes: usize, closed: bool) -> Made {
    let dir = crate::memory();
    let path = dir.path().join("s");
    let mut store = options().create(&path).unwrap();
    let mut older = vec![std::fs::read(&path).unwrap()];
    let (mut pairs, mut history) = (Pairs::new(), BTreeMap::<_, Vec<_>>::new());
    for n in 0..writes {
        let key = format!("key {}", n * 7 % 90).into_bytes();
        let value = (n % 11 != 5).then(|| vec![n as u8; 20 + n % 13 * 31]);
        match &value {
            Some(value) => {
                store.put(&key, value).unwrap();
                pairs.insert(key.clone(), value.clone());
            }
            None => {
                store.delete(&key).unwrap();
                pairs.remove(&key);
            }
        }
        history.entry(key).or_default().push((value, writes - n));
        if n % 60 == 30 {
            older.push(std::fs::read(&path).unwrap());
        }
        if n % 150 == 100 {
            store.checkpoint().unwrap();
            older.push(std::fs::read(&path).unwrap());
        }
        if n % 210 == 200 {
            store.close().unwrap();
            older.push(std::fs::read(&path).unwrap());
            store = options().open(&path).unwrap();
        }
    }
    let table = store.pool().info().regions.into_iter().find(|region| region.name == "kv.table").unwrap();
    let front = (table.offset + 2 * PAGE as u64) as usize;
    let data = store.pool().info().regions.into_iter().find(|region| region.name == "kv").unwrap();
    if closed {
        store.close().unwrap()
    } else {
        store.abandon()
    }
    let bytes = std::fs::read(path).unwrap();
    // By the use that the table says a segment has.
    let words = bytes[front..][..(data.len >> 14) as usize * 8].chunks_exact(8).enumerate();
    let nodes = words.filter(|(_, word)| word[0] & 3 == 3).map(|(segment, _)| {
        let first = data.offset as usize / PAGE + segment * 4;
        first..first + 4
    });
    let nodes = nodes.collect();
    Made { name, closed, bytes, older, pairs, history, front, nodes }
}

/// Damages the bytes; says how.
fn mutate(made: &Made, rng: &mut Rng) -> (&'static str, String, Vec<u8>) {
    let is_node = |at: usize| made.nodes.iter().any(|pages| pages.contains(&at));
    let mut bytes = made.bytes.clone();
    // Pages in use: the others say nothing.
    let used: Vec<usize> =
        (0..bytes.len() / PAGE).filter(|page| bytes[page * PAGE..][..PAGE].iter().any(|b| *b != 0)).collect();
    let page =
        |rng: &mut Rng| if rng.below(3) == 0 { rng.below(made.front / PAGE + 1) } else { used[rng.below(used.len())] };
    let at = page(rng);
    let range = at * PAGE..(at + 1) * PAGE;
    match rng.below(6) {
        0 => {
            let (byte, bit) = (at * PAGE + rng.below(if at < 5 { 800 } else { PAGE }), rng.below(8));
            bytes[byte] ^= 1 << bit;
            ("bit", format!("byte {byte} bit {bit}"), bytes)
        }
        1 => {
            let line = at * PAGE + rng.below(PAGE / 64) * 64;
            let fill = [0, 0xff, rng.below(256) as u8][rng.below(3)];
            bytes[line..line + 64].fill(fill);
            ("line", format!("64 bytes at {line} of {fill}"), bytes)
        }
        2 => {
            bytes[range].fill(0);
            ("zeroed page", format!("page {at}"), bytes)
        }
        3 => {
            let len = if rng.below(2) == 0 { at * PAGE } else { rng.below(bytes.len()) };
            bytes.truncate(len);
            ("truncation", format!("to {len}"), bytes)
        }
        4 => {
            let from = page(rng) * PAGE;
            bytes.copy_within(from..from + PAGE, at * PAGE);
            ("moved page", format!("page {} to {at}", from / PAGE), bytes)
        }
        _ => {
            let old = &made.older[rng.below(made.older.len())];
            if old.len() >= range.end {
                bytes[range.clone()].copy_from_slice(&old[range]);
            }
            (if is_node(at) { NODE } else { "lost write" }, format!("page {at} as it was"), bytes)
        }
    }
}

/// All pairs; none if the check names problems.
fn read(path: &Path) -> Result<Option<Pairs>, Error> {
    let store: Store = options().open(path)?;
    let checked = store.check(|_| ())?;
    if !checked.is_sound() {
        return Ok(None);
    }
    let mut pairs = Pairs::new();
    let snapshot = store.snapshot()?;
    for pair in snapshot.scan(Keys::all()) {
        let (key, value) = pair?;
        pairs.insert(key.to_vec(), value.to_vec());
    }
    Ok(Some(pairs))
}

/// What came of it, or why that is none of what README names.
fn outcome(path: &Path, made: &Made, kind: &str, bytes: &[u8]) -> Result<&'static str, String> {
    std::fs::write(path, bytes).map_err(|e| e.to_string())?;
    match read(path) {
        Ok(None) => Ok("error"),
        Ok(Some(pairs)) if pairs == made.pairs => Ok("equal"),
        Ok(Some(pairs)) => {
            // How many writes at the end are gone, if it is that.
            let mut gone = 0;
            for (key, writes) in &made.history {
                let found = pairs.get(key);
                let was = writes.iter().rposition(|(value, _)| value.as_ref() == found);
                let lost = match was {
                    Some(at) => writes.get(at + 1).map_or(0, |next| next.1),
                    None if found.is_none() => writes[0].1,
                    None => return Err(format!("key {:?} has what it never had", String::from_utf8_lossy(key))),
                };
                gone = gone.max(lost);
            }
            if let Some(key) = pairs.keys().find(|key| !made.history.contains_key(*key)) {
                return Err(format!("{:?} was never there", String::from_utf8_lossy(key)));
            }
            // A page of the log; or an index that was true once, which README names.
            let limit = gone <= PAGE / 64 && !made.closed || kind == NODE;
            if limit { Ok("limit") } else { Err(format!("the last {gone} writes are gone, or some of them")) }
        }
        Err(error @ Error::Pool(pmem::Error::OutOfBounds { .. } | pmem::Error::RegionExists { .. })) => {
            Err(format!("this is not what happened: {error}"))
        }
        Err(error) if error.to_string().len() > 20 => Ok("error"),
        Err(error) => Err(format!("it says nothing: {error}")),
    }
}

#[test]
fn damage_is_an_error_or_repaired_or_within_the_limits() {
    let number = |name: &str, usual: u64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(usual);
    let (count, seed) = (number("CAIRN_DAMAGE", 400), number("CAIRN_SEED", 20));
    println!("seed {seed}, {count} mutations of each store");
    let dir = crate::memory();
    let path = dir.path().join("s");
    let (mut outcomes, mut wrong) = (BTreeMap::<_, u64>::new(), Vec::new());
    let kinds = [("new", 0), ("few", 60), ("many", 430)];
    for (n, (name, writes)) in kinds.into_iter().enumerate() {
        for closed in [true, false] {
            let made = made(name, writes, closed);
            let mut rng = Rng((seed << 8 | (2 * n + usize::from(closed)) as u64) + 1);
            for _ in 0..count {
                let (kind, what, bytes) = mutate(&made, &mut rng);
                match outcome(&path, &made, kind, &bytes) {
                    Ok(outcome) => *outcomes.entry((closed, kind, outcome)).or_default() += 1,
                    Err(why) => {
                        let how = ["killed", "closed"][usize::from(closed)];
                        wrong.push(format!("{} {how}: {kind}, {what}: {why}", made.name));
                    }
                }
            }
        }
    }
    for ((closed, kind, outcome), count) in &outcomes {
        println!("{} {kind}: {outcome} {count}", ["killed", "closed"][usize::from(*closed)]);
    }
    assert!(
        wrong.is_empty(),
        "seed {seed}: {} wrong, such as\n{}",
        wrong.len(),
        wrong[..wrong.len().min(60)].join("\n")
    );
    let errors: u64 = outcomes.iter().filter(|o| o.0.2 == "error").map(|o| o.1).sum();
    assert!(errors > count / 4, "{errors} errors: what is mutated is not looked at");
}
