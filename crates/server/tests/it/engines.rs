//! What the server relies on in an engine, on each of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use pmem::DomainChoice;
use server::engine::{Engine, Error, Keys, Result, Tx};

use crate::support::{Store, until};

/// Each test runs on each engine, in memory and in a file.
fn each(test: impl Fn(Box<dyn Engine>, &dyn Fn() -> Box<dyn Engine>)) {
    for store in Store::ALL {
        for domain in [DomainChoice::Emulated, DomainChoice::File] {
            eprintln!("{store:?}, {domain:?}");
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store");
            let open = || store.open(&path, pmem::Options::new().domain(domain));
            test(open(), &open);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "what expires does so by the system's clock")]
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

fn read<T>(engine: &dyn Engine, mut look: impl FnMut(&dyn Tx) -> Result<T>) -> T {
    let mut found = None;
    engine
        .read(&mut |tx| {
            found = Some(look(tx)?);
            Ok(())
        })
        .unwrap();
    found.unwrap()
}

fn get(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    read(engine, |tx| Ok(tx.get(key)?.map(<[u8]>::to_vec)))
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
    engine.write(&mut |tx| tx.put(key, value, expires))
}

fn delete(engine: &dyn Engine, key: &[u8]) -> bool {
    let mut was_there = false;
    engine
        .write(&mut |tx| {
            was_there = tx.delete(key)?;
            Ok(())
        })
        .unwrap();
    was_there
}

fn pairs(tx: &dyn Tx, keys: Keys, most: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    tx.scan(keys, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
}

fn number(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn count(tx: &mut dyn Tx, key: &[u8]) -> Result<()> {
    let next = number(tx.get(key)?) + 1;
    tx.put(key, &next.to_le_bytes(), None)
}

/// Awaits the commit.
fn later(engine: &dyn Engine, mut run: impl FnMut(&mut dyn Tx) -> Result<()>) -> Result<()> {
    let commit = engine.write_once(&mut |tx| run(tx), false)?;
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(commit)
}

// ---- one at a time ----------------------------------------------------------------------------------------------

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.below(300);
        [&number.to_be_bytes()[6..], &vec![b'x'; number as usize % 40]].concat()
    }
}

/// Key, value, and when it expires.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

/// One random operation on the store and the model.
fn one(tx: &mut dyn Tx, model: &mut Model, random: &mut Random, far: u64) -> Result<()> {
    let key = random.key();
    match random.below(10) {
        0..4 => {
            let len = [0, 1, 8, 100, 3000][random.below(5) as usize];
            let value = vec![random.below(256) as u8; len];
            let expires = [None, Some(far), Some(far + 1), Some(1), Some(0)][random.below(5) as usize];
            tx.put(&key, &value, expires)?;
            match expires {
                Some(0 | 1) => drop(model.remove(&key)),
                _ => drop(model.insert(key, (value, expires))),
            }
        }
        4 => assert_eq!(tx.delete(&key)?, model.remove(&key).is_some()),
        5 => assert_eq!(tx.expires(&key)?, model.get(&key).and_then(|found| found.1)),
        6 => assert!(tx.version(&key)?.is_none() || model.contains_key(&key)),
        7 => {
            let (to, most) = (random.key(), 1 + random.below(50) as usize);
            let (from, to) = if key < to { (key, to) } else { (to, key) };
            let range = model.range(from.clone()..to.clone()).map(|(key, found)| (key.clone(), found.0.clone()));
            let keys = Keys::from(&from).until(&to);
            if random.below(2) == 0 {
                assert_eq!(pairs(tx, keys, most)?, range.take(most).collect::<Vec<_>>());
            } else {
                assert_eq!(pairs(tx, keys.reverse(), most)?, range.rev().take(most).collect::<Vec<_>>());
            }
        }
        _ => assert_eq!(tx.get(&key)?, model.get(&key).map(|found| &found.0[..])),
    }
    Ok(())
}

#[test]
fn it_is_a_map() {
    let far = now() + 1_000_000;
    each(|mut engine, open| {
        let (mut model, mut random) = (Model::new(), Random(7));
        for round in 0..300 {
            let wanted = random.below(4) > 0;
            let (seed, count) = (random.below(u64::MAX), random.below(30));
            let mut after = Model::new();
            let mut run = |tx: &mut dyn Tx| {
                let mut random = Random(seed);
                after = model.clone();
                (0..count).try_for_each(|_| one(tx, &mut after, &mut random, far))?;
                if wanted { Ok(()) } else { Err(Error::Other("not wanted".to_owned())) }
            };
            let result = loop {
                match if round % 2 == 0 { engine.write(&mut run) } else { later(&*engine, &mut run) } {
                    Err(Error::Conflict(_)) => {} // with a store that sweeps by itself
                    other => break other,
                }
            };
            assert_eq!(result.is_ok(), wanted, "{result:?}");
            if wanted {
                model = after;
            }
            if round % 100 == 99 {
                let expected: Vec<_> = model.iter().map(|(key, found)| (key.clone(), found.0.clone())).collect();
                assert_eq!(read(&*engine, |tx| pairs(tx, Keys::all(), usize::MAX)), expected);
                engine.close().unwrap();
                engine = open();
                engine.sweep(now()).unwrap();
                assert_eq!(read(&*engine, |tx| pairs(tx, Keys::all(), usize::MAX)), expected);
            }
        }
        engine.close().unwrap();
    });
}

#[test]
fn what_expires_is_gone_when_its_moment_has_come() {
    each(|engine, _| {
        let at = now() + 300;
        put(&*engine, b"a", b"1", Some(at)).unwrap();
        put(&*engine, b"b", b"2", Some(at + 1_000_000)).unwrap();
        let (seen, all) = read(&*engine, |tx| Ok((tx.expires(b"a")?, pairs(tx, Keys::all(), 9)?.len())));
        assert!((seen, all) == (Some(at), 2) || now() >= at);
        while now() <= at {
            std::thread::sleep(Duration::from_millis(10));
        }
        engine.sweep(now()).unwrap();
        let look = |tx: &dyn Tx| Ok((tx.get(b"a")?.is_some(), tx.expires(b"a")?, tx.version(b"a")?));
        assert_eq!(read(&*engine, look), (false, None, None));
        assert_eq!(read(&*engine, |tx| pairs(tx, Keys::all(), 9)), [(b"b".to_vec(), b"2".to_vec())]);
        assert!(!delete(&*engine, b"a"));
        put(&*engine, b"a", b"3", None).unwrap();
        assert_eq!(get(&*engine, b"a").as_deref(), Some(&b"3"[..]));
    });
}

#[test]
fn a_version_changes_with_each_commit_and_not_otherwise() {
    each(|engine, _| {
        let version = |key: &[u8]| read(&*engine, |tx| tx.version(key));
        assert_eq!(version(b"a"), None);
        let mut seen = Vec::new();
        for round in 0..20 {
            if round % 2 == 0 {
                put(&*engine, b"a", b"same", None).unwrap();
            } else {
                later(&*engine, |tx| tx.put(b"a", b"same", None)).unwrap();
            }
            let now = version(b"a");
            assert!(now.is_some() && !seen.contains(&now), "{now:?} in {seen:?}");
            seen.push(now);
            put(&*engine, b"b", b"", None).unwrap();
            engine.write(&mut |tx| tx.get(b"a").map(drop)).unwrap();
            let refused = engine.write(&mut |tx| {
                tx.put(b"a", b"other", None)?;
                assert_eq!(tx.version(b"a")?, None, "its own");
                Err(Error::Other(String::new()))
            });
            assert!(refused.is_err());
            assert_eq!(version(b"a"), now);
        }
        assert!(delete(&*engine, b"a"));
        assert_eq!(version(b"a"), None);
    });
}

// ---- several at a time ------------------------------------------------------------------------------------------

#[test]
fn increments_are_not_lost_and_conflicts_are_retried() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 60;
    each(|engine, _| {
        let attempts = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (engine, attempts) = (&*engine, &attempts);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut run = |tx: &mut dyn Tx| {
                            attempts.fetch_add(1, Relaxed);
                            let next = number(tx.get(b"all")?) + 1;
                            std::thread::sleep(Duration::from_micros(50));
                            tx.put(b"all", &next.to_le_bytes(), None)?;
                            tx.put(format!("{thread}/{round}").as_bytes(), b"", None)
                        };
                        if round % 3 > 0 {
                            engine.write(&mut run).unwrap();
                            continue;
                        }
                        loop {
                            match later(engine, &mut run) {
                                Ok(()) => break,
                                Err(Error::Conflict(_)) => std::thread::yield_now(),
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                });
            }
            // Readers see whole transactions: as many keys as the number says.
            scope.spawn(|| {
                for _ in 0..50 {
                    let (all, keys) = read(&*engine, |tx| {
                        Ok((number(tx.get(b"all")?), pairs(tx, Keys::from(b"0").until(b"9"), usize::MAX)?.len()))
                    });
                    assert_eq!(all, keys as u64);
                }
            });
        });
        assert_eq!(number(get(&*engine, b"all").as_deref()), THREADS * ROUNDS);
        assert!(attempts.into_inner() > THREADS * ROUNDS, "nobody met anybody");
    });
}

#[test]
fn a_conflict_ends_a_transaction_that_was_to_be_tried_once() {
    each(|engine, _| {
        let (began, begin) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        let engine = &*engine;
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                begin.recv().unwrap();
                let result = later(engine, |tx| count(tx, b"a"));
                let _ = ended.send(());
                result
            });
            let one = later(engine, |tx| {
                count(tx, b"a")?;
                began.send(()).unwrap();
                // It is in conflict, or waits for us.
                let _ = end.recv_timeout(Duration::from_millis(200));
                Ok(())
            });
            (one, other.join().unwrap())
        });
        let conflicts = [&one, &other].iter().filter(|result| matches!(result, Err(Error::Conflict(_)))).count();
        let commits = [&one, &other].iter().filter(|result| result.is_ok()).count() as u64;
        assert!(conflicts as u64 + commits == 2 && commits > 0, "{one:?}, {other:?}");
        assert_eq!(number(get(engine, b"a").as_deref()), commits);
    });
}

// ---- what does not fit ------------------------------------------------------------------------------------------

#[test]
fn what_is_too_long_is_refused() {
    each(|engine, _| {
        let longest = vec![b'k'; engine.key_max()];
        put(&*engine, &longest, b"1", None).unwrap();
        assert_eq!(get(&*engine, &longest).as_deref(), Some(&b"1"[..]));
        let longer = [&longest[..], b"k"].concat();
        let refused = put(&*engine, &longer, b"1", None);
        assert!(matches!(refused, Err(Error::Limit(_))), "{refused:?}");
        assert_eq!(get(&*engine, &longer), None);
        assert!(delete(&*engine, &longest));
        assert!(engine.value_max() >= 512 << 20, "as long as Redis' strings");
    });
}

/// What is full, with how many values of 4 KiB.
fn fill(engine: &dyn Engine) -> u64 {
    for n in 0..100_000u64 {
        match put(engine, &n.to_be_bytes(), &[7; 4096], None) {
            Ok(()) => {}
            Err(Error::Full(_)) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it is never full")
}

fn full_and_free_again(store: Store, path: &Path) {
    let pool = || pmem::Options::new().domain(DomainChoice::Emulated).max_size(48 << 20);
    let engine = store.open(path, pool());
    let filled = fill(&*engine);
    assert!(filled > 1000, "{store:?}: {filled}");
    assert_eq!(get(&*engine, &(filled - 1).to_be_bytes()), Some(vec![7; 4096]));
    assert_eq!((get(&*engine, &filled.to_be_bytes()), engine.healthy()), (None, Ok(())));
    for n in 0..filled / 2 {
        assert!(delete(&*engine, &n.to_be_bytes()));
    }
    // What was deleted may have to be collected first.
    let again = || (0..filled / 4).try_for_each(|n| put(&*engine, &n.to_be_bytes(), &[8; 4096], None));
    until("there is room again", || again().is_ok());
    engine.close().unwrap();
    let engine = store.open(path, pool());
    assert_eq!(get(&*engine, &0u64.to_be_bytes()), Some(vec![8; 4096]));
    assert_eq!(get(&*engine, &(filled - 1).to_be_bytes()), Some(vec![7; 4096]));
}

#[test]
fn a_full_store_says_so_and_takes_more_when_there_is_room() {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        full_and_free_again(store, &dir.path().join("store"));
    }
}
