//! A real process with several threads is killed at random moments, again and again on one pool; the parent process remembers through a pipe what was acknowledged, recovers the
//! pool and compares. `CAIRN_KILLS` sets how often.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mvcc::{Mvcc, Options};
use pmem::{DomainChoice, PPtr, Persist};
use tx::{Engine, Isolation, Transaction, Typed};

const CELLS: usize = 16;
const THREADS: u64 = 3;
/// A worker that is not killed ends by itself.
const TRANSACTIONS_MAX: u64 = 1_000_000;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Root {
    cells: [PPtr<Cell>; CELLS],
}

/// All words are the number of the last transaction that wrote it; the node is one of its own.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Cell {
    number: u64,
    node: PPtr<[u64; 40]>,
    rest: [u64; 6],
}

fn options(domain: DomainChoice) -> Options {
    Options::new().bytes(1 << 20).slots(8).log_bytes(8192).pool(pmem::Options::new().domain(domain))
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn root(store: &Mvcc) -> Root {
    store.transact(Isolation::Snapshot, |tx| -> tx::Result<Root> { Ok(*tx.read(tx.root::<Root>()?)?) }).unwrap()
}

// ---- the process that is killed -------------------------------------------------------------------------------------

/// Tells the parent. A line in one piece.
fn tell(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// One transaction: two cells get its number, and one of them a new node. Told before it commits, with what each cell held, and when it is durable.
fn one(store: &Mvcc, root: &Root, next: &AtomicU64, rng: &mut u64) -> tx::Result<()> {
    let first = random(rng) as usize % CELLS;
    let second = (first + 1 + random(rng) as usize % (CELLS - 1)) % CELLS;
    let mut tx = store.begin(Isolation::ALL[random(rng) as usize % 3])?;
    let number = next.fetch_add(1, Relaxed);
    let old = *tx.read(root.cells[first])?;
    let node = tx.alloc(&[number; 40])?;
    if !old.node.is_null() {
        assert_eq!(*tx.read(old.node)?, [old.number; 40]);
        tx.free(old.node)?;
    }
    *tx.write(root.cells[first])? = Cell { number, node, rest: [number; 6] };
    let other = tx.write(root.cells[second])?;
    let before = other.number;
    let fresh = other.node;
    *other = Cell { number, node: PPtr::NULL, rest: [number; 6] };
    if !fresh.is_null() {
        tx.free(fresh)?;
    }
    tell(&format!("begin {number} {first} {} {second} {before}", old.number));
    let outcome = tx.commit();
    tell(&format!("{} {number}", if outcome.is_ok() { "done" } else { "over" }));
    outcome
}

/// Not a test of its own: what the tests below start, and kill.
#[test]
fn worker() {
    let Ok(work) = std::env::var("CAIRN_MVCC_WORKER") else { return };
    let [domain, first, path] = work.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{work:?}") };
    let store = Mvcc::open(path, &options(domain.parse().unwrap())).unwrap();
    let (next, root) = (AtomicU64::new(first.parse().unwrap()), root(&store));
    tell(""); // the test harness has begun a line
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, root, next) = (&store, &root, &next);
            scope.spawn(move || {
                let mut rng = next.load(Relaxed) * THREADS + thread;
                for _ in 0..TRANSACTIONS_MAX {
                    match one(store, root, next, &mut rng) {
                        Ok(()) | Err(tx::Error::Conflict { .. } | tx::Error::NoSlot { .. }) => {}
                        Err(e) => tell(&format!("failed {e}")),
                    }
                }
            });
        }
    });
}

// ---- the process that kills -----------------------------------------------------------------------------------------

/// By cell and by what it held before: the transaction that changed that; and whether it was acknowledged.
type Behind = BTreeMap<(usize, u64), Vec<(u64, bool)>>;

/// Runs a worker, kills it after so many acknowledged transactions, and adds what it told.
fn killed(path: &Path, domain: &str, first: u64, after: u64, behind: &mut Behind) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["kill::worker", "--exact", "--nocapture", "--test-threads", "1"])
        .env("CAIRN_MVCC_WORKER", format!("{domain} {first} {}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut begun, mut done, mut last) = (BTreeMap::new(), 0, first);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next().and_then(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        match (words[0], number(1)) {
            ("begin", Some(n)) => {
                let Some(cells) = (2..6).map(number).collect::<Option<Vec<u64>>>() else { break };
                begun.insert(n, [(cells[0] as usize, cells[1]), (cells[2] as usize, cells[3])]);
                last = last.max(n + 1);
            }
            ("done", Some(n)) => {
                for at in begun.remove(&n).unwrap() {
                    behind.entry(at).or_default().push((n, true));
                }
                done += 1;
                if done == after {
                    child.kill().unwrap(); // what is in the pipe is read to its end
                }
            }
            ("over", Some(n)) => drop(begun.remove(&n)),
            ("failed", _) => panic!("{line}"),
            _ => {}
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(done >= after, "the worker ended by itself, behind {done} transactions");
    for (n, cells) in begun {
        cells.into_iter().for_each(|at| behind.entry(at).or_default().push((n, false)));
    }
    last + 1
}

/// Each cell holds the last of a line of transactions that each changed what the one before had left; all that were acknowledged stand in it.
fn compare(path: &Path, domain: DomainChoice, behind: &Behind) {
    let store = Mvcc::open(path, &options(domain)).unwrap();
    let (tx, root) = (store.begin(Isolation::Snapshot).unwrap(), root(&store));
    for (at, &ptr) in root.cells.iter().enumerate() {
        let cell = *tx.read(ptr).unwrap();
        assert_eq!(cell.rest, [cell.number; 6], "cell {at}");
        if !cell.node.is_null() {
            assert_eq!(*tx.read(cell.node).unwrap(), [cell.number; 40], "the node of cell {at}");
        }
        let mut number = 0;
        let mut seen = 0;
        while number != cell.number {
            let next = behind.get(&(at, number)).into_iter().flatten();
            // Of those in doubt one at most has committed: the one that is there, or that others have seen.
            let is_there = |n: u64| n == cell.number || behind.contains_key(&(at, n));
            let taken = next.clone().find(|next| next.1 || is_there(next.0));
            (number, seen) = (taken.unwrap_or_else(|| panic!("cell {at} holds {}", cell.number)).0, seen + 1);
        }
        let after = behind.get(&(at, number)).into_iter().flatten().filter(|next| next.1).count();
        assert_eq!(after, 0, "cell {at} holds {number} behind {seen} others, and an acknowledged transaction is lost");
    }
    drop(tx);
    store.close().unwrap();
}

fn kill(dir: &tempfile::TempDir, domain: DomainChoice, name: &str, kills: u64, after: u64) {
    let path = dir.path().join("p");
    let store = Mvcc::create(&path, &options(domain)).unwrap();
    let made = store.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        let mut cells = [PPtr::NULL; CELLS];
        for cell in &mut cells {
            *cell = tx.alloc(&Cell { number: 0, node: PPtr::NULL, rest: [0; 6] })?;
        }
        let root = tx.alloc(&Root { cells })?;
        tx.set_root(root)
    });
    made.unwrap();
    store.close().unwrap();
    let kills = std::env::var("CAIRN_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(kills);
    let (mut behind, mut rng, mut next) = (Behind::new(), 7, 1);
    for _ in 0..kills {
        next = killed(&path, name, next, 1 + random(&mut rng) % after, &mut behind);
        compare(&path, domain, &behind);
    }
}

#[test]
fn nothing_is_lost_in_memory() {
    kill(&tempfile::tempdir_in("/dev/shm").unwrap(), DomainChoice::Emulated, "emulated", 10, 3000);
}

#[test]
fn nothing_is_lost_on_a_disk() {
    kill(&tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), DomainChoice::File, "file", 5, 200);
}
