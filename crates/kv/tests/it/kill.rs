//! The process is killed while it commits; whatever it had acknowledged is there afterwards, and no transaction is half there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kv::{Durability, Keys, Options, Store};

const THREADS: u64 = 3;
const KEYS: u64 = 40;
/// In the environment: where the store is, and how many commits may be at risk. Then this process is the one that is killed.
const PLACE: &str = "CAIRN_KV_KILL";

fn options(bound: u32) -> Options {
    let durability = if bound == 0 { Durability::Durable } else { Durability::Bounded(bound) };
    Options::new().segment_bytes(64 << 10).checkpoint_bytes(512 << 10).durability(durability)
}

fn key(thread: u64, n: u64) -> Vec<u8> {
    format!("t{thread}:{n:03}").into_bytes()
}

/// What thread `t` writes in its `round`th transaction: two keys, one of them goes now and then.
fn writes(thread: u64, round: u64) -> [(Vec<u8>, Option<Vec<u8>>); 2] {
    let value = |len: u64| [&round.to_le_bytes()[..], &vec![round as u8; len as usize]].concat();
    let second = (!round.is_multiple_of(5)).then(|| value(round % 900));
    [(key(thread, round % KEYS), Some(value(round * 7 % 1500))), (key(thread, KEYS + round % 7), second)]
}

/// Not a test of its own: the process that `killed` starts and kills.
#[test]
fn worker() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let (bound, path) = place.split_once(' ').unwrap();
    let store = options(bound.parse().unwrap()).open_or_create(path).unwrap();
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let store = &store;
            threads.spawn(move || {
                let start =
                    store.get(&key(thread, 999)).unwrap().map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
                for round in start + 1.. {
                    store
                        .transact(|tx| {
                            for (key, value) in writes(thread, round) {
                                match value {
                                    Some(value) => tx.put(&key, &value)?,
                                    None => tx.delete(&key)?,
                                };
                            }
                            tx.put(&key(thread, 999), &round.to_le_bytes())?;
                            Ok(())
                        })
                        .unwrap();
                    let line = format!("{thread} {round}\n");
                    std::io::stderr().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

fn start(path: &Path, bound: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::worker", "--exact", "--nocapture", "--test-threads", "1"])
        .env(PLACE, format!("{bound} {}", path.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What each thread's keys must be after so many of its transactions.
fn right(thread: u64, rounds: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = BTreeMap::new();
    for round in rounds.saturating_sub(10 * KEYS).max(1)..=rounds {
        for (key, value) in writes(thread, round) {
            match value {
                Some(value) => state.insert(key, value),
                None => state.remove(&key),
            };
        }
    }
    state
}

fn killed(dir: &tempfile::TempDir, kills: usize, bound: u32) {
    let path = dir.path().join("store");
    drop(options(bound).create(&path).unwrap());
    let mut total = 0;
    for kill in 0..kills {
        let mut child = start(&path, bound);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut acknowledged = [0; THREADS as usize];
        let mut note = |line: String| {
            // What else a test process says is none of ours; the last line may be cut.
            if let Some((thread, round)) = line.split_once(' ')
                && let (Ok(thread), Ok(round)) = (thread.parse::<usize>(), round.parse::<u64>())
            {
                acknowledged[thread] = acknowledged[thread].max(round);
            }
        };
        for line in lines.by_ref().take(200 + kill * 37 % 900) {
            note(line.unwrap());
        }
        child.kill().unwrap();
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        rest.into_iter().for_each(&mut note);
        child.wait().unwrap();
        let store: Store = options(bound).open(&path).unwrap();
        let mut lost = 0;
        for thread in 0..THREADS {
            let done = store.get(&key(thread, 999)).unwrap().map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()));
            lost += acknowledged[thread as usize].saturating_sub(done);
            let snapshot = store.snapshot().unwrap();
            let pairs = snapshot.scan(Keys::prefix(format!("t{thread}:").as_bytes()));
            let mut found: BTreeMap<_, _> = pairs.map(|p| p.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
            found.remove(&key(thread, 999));
            assert_eq!(found.keys().collect::<Vec<_>>(), right(thread, done).keys().collect::<Vec<_>>(), "kill {kill}");
            assert!(
                found == right(thread, done),
                "thread {thread}, kill {kill}: {done} transactions, but other values"
            );
            total += done;
        }
        // Bounded: a commit that had its number and not yet its records takes those behind it along.
        assert!(lost <= u64::from(bound), "kill {kill}: {lost} lost");
    }
    assert!(total > 0);
}

#[test]
fn nothing_acknowledged_is_lost() {
    killed(&crate::memory(), 12, 0);
}

#[test]
fn no_more_is_lost_than_may_be_at_risk() {
    killed(&crate::memory(), 6, 20);
}

/// On a disk, where those who commit at the same time do so in groups.
#[test]
fn nothing_acknowledged_in_a_group_is_lost() {
    killed(&disk(), 5, 0);
}

fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// `make kill-long` runs many more.
#[test]
fn as_many_kills_as_are_asked_for() {
    if let Some(kills) = std::env::var("CAIRN_KILLS").ok().and_then(|kills| kills.parse().ok()) {
        killed(&crate::memory(), kills, 0);
        killed(&disk(), kills / 5, 0);
    }
}
