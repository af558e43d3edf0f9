//! Damage of every kind, to stores that were closed and to stores whose process was killed. What comes of it is an error, all pairs, or, of a store that was not
//! closed, all but the last few commits of a log, as docs/limits.md says.
//!
//! `CAIRN_DAMAGE=100000` makes so many mutations of each store, `CAIRN_SEED` others.

use std::collections::BTreeMap;
use std::path::Path;

use kv::{Error, Keys, Options, Step, Store};

use self::mutate::{PAGE, Rng, Tally, mutate, mutate_twice, number};

#[path = "../../../log/tests/it/mutate.rs"]
mod mutate;

/// Commits at the end of the log of a store that was not closed, of which nothing may tell that they were there.
const UNNOTICED: usize = 16;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A value, or that there was none, and how many commits there were by then.
type Held = (Option<Vec<u8>>, usize);

/// A file, what is in it, and what it was before.
struct Made {
    name: &'static str,
    closed: bool,
    bytes: Vec<u8>,
    older: Vec<Vec<u8>>,
    pairs: Pairs,
    /// What each key had, in order.
    history: BTreeMap<Vec<u8>, Vec<Held>>,
    commits: usize,
    /// Where the table of segments stands.
    front: usize,
}

fn options() -> Options {
    // Without a thread beside, so that all is in one log, and the same each time.
    Options::new().segment_bytes(16 << 10).verify(true).background(false)
}

/// What a store is made of.
#[derive(Clone, Copy)]
struct Plan {
    name: &'static str,
    writes: usize,
    /// Which key a write is of, and whether a checkpoint follows.
    key: fn(usize) -> usize,
    checkpoints: fn(usize) -> bool,
}

impl Plan {
    const fn new(name: &'static str, writes: usize) -> Self {
        Self { name, writes, key: |n| n * 7 % 90, checkpoints: |n| n % 150 == 100 }
    }
}

fn made(plan: Plan, closed: bool) -> Made {
    let Plan { name, writes, .. } = plan;
    let dir = crate::memory();
    let path = dir.path().join("s");
    let mut store = options().create(&path).unwrap();
    let mut older = vec![std::fs::read(&path).unwrap()];
    let (mut pairs, mut history, mut commits) = (Pairs::new(), BTreeMap::<_, Vec<_>>::new(), 0);
    for n in 0..writes {
        let key = format!("key {}", (plan.key)(n)).into_bytes();
        let value = (n % 11 != 5).then(|| vec![n as u8; 20 + n % 13 * 31]);
        match &value {
            Some(value) => {
                store.put(&key, value).unwrap();
                pairs.insert(key.clone(), value.clone());
                commits += 1;
            }
            None => {
                commits += usize::from(store.delete(&key).unwrap());
                pairs.remove(&key);
            }
        }
        history.entry(key).or_default().push((value, commits));
        if n % 60 == 30 {
            older.push(std::fs::read(&path).unwrap());
        }
        if (plan.checkpoints)(n) {
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
    let front = (table.offset + 3 * PAGE as u64) as usize;
    if closed {
        store.close().unwrap()
    } else {
        store.abandon()
    }
    let bytes = std::fs::read(path).unwrap();
    Made { name, closed, bytes, older, pairs, history, commits, front }
}

/// Damages the bytes; says how.
fn damaged(made: &Made, rng: &mut Rng) -> (&'static str, String, Vec<u8>) {
    // Pages in use: the others say nothing.
    let used: Vec<usize> =
        (0..made.bytes.len() / PAGE).filter(|page| made.bytes[page * PAGE..][..PAGE].iter().any(|b| *b != 0)).collect();
    let page =
        |rng: &mut Rng| if rng.below(3) == 0 { rng.below(made.front / PAGE + 1) } else { used[rng.below(used.len())] };
    let damage = if rng.below(3) == 0 { mutate_twice } else { mutate };
    damage(&made.bytes, &made.older, rng, page, 800)
}

/// All pairs; none if the check names problems.
fn read(path: &Path, without: Option<Step>) -> Result<Option<Pairs>, Error> {
    let store: Store = without.into_iter().fold(options(), Options::without).open(path)?;
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

/// What came of it, or why that is none of what docs/limits.md names.
fn outcome(path: &Path, made: &Made, kind: &str, bytes: &[u8], without: Option<Step>) -> Result<&'static str, String> {
    std::fs::write(path, bytes).map_err(|e| e.to_string())?;
    // What tells of a page that is lost may be lost with it.
    let unnoticed = if kind == "two" { usize::MAX } else { UNNOTICED };
    let refused = match read(path, without) {
        Ok(Some(pairs)) => return judge(made, unnoticed, &pairs),
        Ok(None) => "a check that names problems".to_owned(),
        Err(error @ Error::Pool(pmem::Error::OutOfBounds { .. } | pmem::Error::RegionExists { .. })) => {
            return Err(format!("this is not what happened: {error}"));
        }
        Err(error) if error.to_string().len() > 20 => error.to_string(),
        Err(error) => return Err(format!("it says nothing: {error}")),
    };
    // What was refused is refused again, or all there: not taken for a store that was killed.
    if let Ok(Some(pairs)) = read(path, without) {
        judge(made, unnoticed, &pairs).map_err(|why| format!("opened behind {refused}: {why}"))?;
    }
    Ok("error")
}

/// Equal, or without the last few commits, if it was not closed.
fn judge(made: &Made, unnoticed: usize, pairs: &Pairs) -> Result<&'static str, String> {
    if *pairs == made.pairs {
        return Ok("equal");
    }
    let mut gone = 0;
    for (key, writes) in &made.history {
        let found = pairs.get(key);
        let was = writes.iter().rposition(|(value, _)| value.as_ref() == found);
        let since = |number: usize| made.commits + 1 - number;
        let lost = match was {
            Some(at) => writes.get(at + 1).map_or(0, |next| since(next.1)),
            None if found.is_none() => since(writes[0].1),
            None => return Err(format!("key {:?} has what it never had", String::from_utf8_lossy(key))),
        };
        gone = gone.max(lost);
    }
    if let Some(key) = pairs.keys().find(|key| !made.history.contains_key(*key)) {
        return Err(format!("{:?} was never there", String::from_utf8_lossy(key)));
    }
    if gone <= unnoticed && !made.closed {
        Ok("limit")
    } else {
        Err(format!("the last {gone} commits are gone, or some of them"))
    }
}

#[test]
fn damage_is_an_error_or_repaired_or_within_the_limits() {
    let (count, seed) = (number("CAIRN_DAMAGE", 400), number("CAIRN_SEED", 20));
    println!("seed {seed}, {count} mutations of each store");
    let dir = crate::memory();
    let path = dir.path().join("s");
    let mut tally = Tally::default();
    let kinds = [("new", 0), ("few", 60), ("many", 520)];
    for (n, (name, writes)) in kinds.into_iter().enumerate() {
        for closed in [true, false] {
            let made = made(Plan::new(name, writes), closed);
            let mut rng = Rng((seed << 8 | (2 * n + usize::from(closed)) as u64) + 1);
            for _ in 0..count {
                let (kind, what, bytes) = damaged(&made, &mut rng);
                tally.note(name, closed, (kind, &what), outcome(&path, &made, kind, &bytes, None));
            }
        }
    }
    tally.judge(seed, count / 4);
}

/// What a key may have: more than one value behind a write that failed.
type Possible = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// A damaged store that opens is used: neighbours of its keys come until leaves split, some go, and checkpoints are made. Each answer is an error, or what the key has.
fn used(path: &Path, made: &Made, bytes: &[u8], rng: &mut Rng) -> Result<&'static str, String> {
    std::fs::write(path, bytes).map_err(|e| e.to_string())?;
    let Ok(store) = options().open(path) else { return Ok("error") };
    let mut truth: Possible = made.pairs.iter().map(|(k, v)| (k.clone(), vec![Some(v.clone())])).collect();
    let mut failed = false;
    for n in 0..260_usize {
        let near = made.pairs.keys().nth(rng.below(made.pairs.len())).expect("not empty").clone();
        let (key, value) = match rng.below(8) {
            0..5 => ([near.as_slice(), b"+", n.to_string().as_bytes()].concat(), Some(format!("new {n}").into_bytes())),
            5 => (near, Some(format!("other {n}").into_bytes())),
            6 => (near, None),
            _ => {
                failed |= n % 5 == 0 && store.checkpoint().is_err();
                continue;
            }
        };
        let result = match &value {
            Some(value) => store.put(&key, value),
            None => store.delete(&key),
        };
        let may = truth.entry(key).or_insert_with(|| vec![None]);
        match result {
            // A new value repairs a key that is not found because it is corrupt.
            Ok(had) if !may.iter().any(|before| before.is_some() == had) && (had || value.is_none()) => {
                return Err(format!("write {n}: says that there was {} before", if had { "a value" } else { "none" }));
            }
            Ok(_) => *may = vec![value],
            Err(_) => {
                failed = true;
                may.push(value);
            }
        }
    }
    for (key, may) in &truth {
        match store.get(key) {
            Ok(value) if may.contains(&value) => {}
            Ok(value) => return Err(format!("{}: {value:?}, not {may:?}", String::from_utf8_lossy(key))),
            Err(_) => failed = true,
        }
    }
    let scanned: Result<Pairs, Error> = store
        .snapshot()
        .and_then(|view| view.scan(Keys::all()).map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec()))).collect());
    match scanned {
        Ok(pairs) => {
            let wrong = truth.iter().find(|(key, may)| !may.contains(&pairs.get(*key).cloned()));
            if let Some((key, may)) = wrong {
                let key_text = String::from_utf8_lossy(key);
                return Err(format!("a scan has {:?} for {key_text}, not {may:?}", pairs.get(key)));
            }
        }
        Err(_) => failed = true,
    }
    Ok(if failed { "error" } else { "equal" })
}

#[test]
fn what_is_damaged_stays_an_error_while_the_store_is_used() {
    let (count, seed) = (number("CAIRN_DAMAGE", 250), number("CAIRN_SEED", 23));
    println!("seed {seed}, {count} mutations of each store");
    let dir = crate::memory();
    let path = dir.path().join("s");
    let mut tally = Tally::default();
    for (n, (name, writes)) in [("few", 60), ("many", 520)].into_iter().enumerate() {
        let made = made(Plan::new(name, writes), true);
        let mut rng = Rng((seed << 8 | n as u64) + 1);
        for turn in 0..count {
            let (kind, what, bytes) = match turn % 2 {
                0 => damaged(&made, &mut rng),
                // A key, where it stands in its record.
                _ => {
                    let key = made.pairs.keys().nth(rng.below(made.pairs.len())).expect("not empty");
                    let at = made.bytes.windows(key.len()).rposition(|window| window == key).expect("it is there");
                    let at = at + rng.below(key.len());
                    let mut bytes = made.bytes.clone();
                    bytes[at] ^= 1 << rng.below(8);
                    ("key", format!("byte {at}"), bytes)
                }
            };
            tally.note(name, true, (kind, &what), used(&path, &made, &bytes, &mut rng));
        }
    }
    tally.judge(seed, count / 4);
}

/// Each page as it was at each earlier look, and of zeros, where that is something else than it is now.
fn each_page_goes_back(made: &Made, without: Option<Step>) -> (usize, Vec<String>) {
    let dir = crate::memory();
    let path = dir.path().join("s");
    let (mut count, mut wrong) = (0, Vec::new());
    for (look, old) in made.older.iter().map(Vec::as_slice).chain([&[][..]]).enumerate() {
        for page in 0..made.bytes.len() / PAGE {
            let at = page * PAGE..(page + 1) * PAGE;
            let was = old.get(at.clone()).unwrap_or(&[0; PAGE]);
            if was == &made.bytes[at.clone()] {
                continue;
            }
            let mut bytes = made.bytes.clone();
            bytes[at].copy_from_slice(was);
            count += 1;
            if let Err(why) = outcome(&path, made, "a page", &bytes, without) {
                wrong.push(format!("{}: page {page} as at look {look}: {why}", made.name));
            }
        }
    }
    (count, wrong)
}

#[test]
fn no_page_goes_back_unnoticed() {
    let mut all = 0;
    // One leaf of many, written again and again: its node, and those above, come to places where they were before.
    let hot = Plan { key: |n| if n < 400 { n } else { 7 }, checkpoints: |n| n >= 399, ..Plan::new("hot", 460) };
    for (plan, step) in
        [(Plan::new("few", 60), Step::Watermark), (Plan::new("many", 520), Step::Watermark), (hot, Step::ProveNodes)]
    {
        let name = plan.name;
        for closed in [true, false] {
            let made = made(plan, closed);
            let (count, wrong) = each_page_goes_back(&made, None);
            assert!(wrong.is_empty(), "closed {closed}: {} of {count} wrong:\n{}", wrong.len(), wrong.join("\n"));
            all += count;
            if step == Step::ProveNodes || !closed {
                let (_, wrong) = each_page_goes_back(&made, Some(step));
                println!("{name}, closed {closed}, without {step:?}: {} of {count} wrong", wrong.len());
                assert!(!wrong.is_empty(), "{name}, closed {closed}: nothing is wrong without {step:?}");
            }
        }
    }
    println!("{all} pages went back");
    assert!(all > 300, "{all}");
}
