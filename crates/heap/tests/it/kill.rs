//! A real process with several threads is killed at random moments, again and again on one pool; the parent process remembers through a pipe what
//! was acknowledged, recovers the pool and compares. `CAIRN_KILLS` sets how often (`make kill-long`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use heap::{Heap, Options, Policy};
use pmem::{DomainChoice, HeapOptions, PPtr, Persist};
use tx::{Engine, Isolation, ToRange, Transaction, Typed};

use crate::support::ATOMIC;

const CELLS: usize = 24;
const THREADS: u64 = 3;
/// A worker that is not killed ends by itself.
const TRANSACTIONS_MAX: u64 = 2_000_000;
/// A worker that has done nothing by then never will.
const TIMEOUT_MS: u64 = 60_000;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Root {
    cells: [PPtr<Cell>; CELLS],
}

/// All words are the number of the last transaction that wrote it.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Cell {
    number: u64,
    node: PPtr<[u64; 2]>,
    rest: [u64; 11],
}

fn options(policy: Policy, domain: DomainChoice) -> Options {
    let blocks = HeapOptions::chunk_bytes(4096).expect("a size");
    let options = Options::new().policy(policy).blocks(blocks).bytes(blocks.region_bytes(16)).slots(8);
    let options =
        options.log_bytes(4096).zone_bytes(4096).recovery_budget(12 * 4096).batch(3).checksum_max(200).alpha(0.05);
    options.pool(pmem::Options::new().domain(domain))
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn root(heap: &Heap) -> Root {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<Root> { Ok(*tx.read(tx.root::<Root>()?)?) }).expect("a root")
}

// ---- the process that is killed -------------------------------------------------------------------------------------

/// Tells the parent. A line in one piece.
fn tell(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("the parent listens");
}

/// One transaction: some cells get its number, some of them a new node of it. Told before it commits, and when it is durable.
fn one(heap: &Heap, root: &Root, next: &AtomicU64, rng: &mut u64) -> tx::Result<()> {
    let mut chosen = BTreeSet::new();
    while chosen.len() < 1 + (random(&mut rng.clone()) % 3) as usize {
        chosen.insert((random(rng) % CELLS as u64) as usize);
    }
    let (abort, node_of) = (random(rng).is_multiple_of(8), random(rng) % 3);
    let len = 24 + random(rng) % 400;
    let mut tx = heap.begin(Isolation::Strict)?;
    tx.intend(&chosen.iter().map(|&c| root.cells[c].range()).collect::<Vec<_>>())?;
    let number = next.fetch_add(1, Relaxed); // in the order of the locks
    for (at, &cell) in chosen.iter().enumerate() {
        let old = tx.read(root.cells[cell])?.node;
        let mut node = old;
        if at as u64 == node_of {
            node = tx.alloc_bytes(len, 8)?.cast();
            *tx.write(node)? = [number, len];
            tx.bytes_mut(PPtr::new(node.tag(), node.offset() + 16), len - 16)?.fill(number as u8);
            if !old.is_null() {
                tx.free(old)?;
            }
        }
        *tx.write(root.cells[cell])? = Cell { number, node, rest: [number; 11] };
    }
    if abort {
        return tx.abort();
    }
    let cells: String = chosen.iter().map(|c| format!(" {c}")).collect();
    tell(&format!("begin {number}{cells}"));
    tx.commit()?;
    tell(&format!("done {number}"));
    Ok(())
}

/// Not a test of its own: what the tests below start, and kill.
#[test]
fn worker() {
    let Ok(work) = std::env::var("CAIRN_HEAP_WORKER") else { return };
    let [domain, first, path] = work.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{work:?}") };
    let options = Options::new().coordinator(true).batch(3).checksum_max(200).recovery_budget(12 * 4096);
    let options = options.pool(pmem::Options::new().domain(domain.parse().expect("a domain")));
    let heap = Heap::open(path, &options).expect("recovered");
    let next = AtomicU64::new(first.parse().expect("a number"));
    let root = root(&heap);
    tell(""); // the test harness has begun a line
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (heap, root, next) = (&heap, &root, &next);
            scope.spawn(move || {
                let mut rng = next.load(Relaxed) * THREADS + thread;
                for _ in 0..TRANSACTIONS_MAX {
                    match one(heap, root, next, &mut rng) {
                        Ok(()) | Err(tx::Error::Conflict { .. } | tx::Error::NoSlot { .. }) => {}
                        Err(e) => tell(&format!("failed {e}")),
                    }
                }
            });
        }
    });
}

// ---- the process that remembers -------------------------------------------------------------------------------------

#[derive(Default)]
struct Told {
    /// The cells of every transaction that was begun.
    begun: BTreeMap<u64, Vec<usize>>,
    done: BTreeSet<u64>,
}

impl Told {
    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let kind = words.next();
        let mut numbers = words.filter_map(|w| w.parse::<u64>().ok());
        match (kind, numbers.next()) {
            (Some("begin"), Some(number)) => {
                self.begun.insert(number, numbers.map(|c| c as usize).collect());
            }
            (Some("failed"), _) => panic!("a worker: {line}"),
            (Some("done"), Some(number)) => {
                self.done.insert(number);
            }
            _ => {}
        }
    }

    /// Every acknowledged transaction is there, every other one whole or not at all.
    fn check(&self, cells: &[u64; CELLS]) {
        for (number, touched) in &self.begun {
            let seen: Vec<bool> = touched.iter().map(|&c| cells[c] >= *number).collect();
            if self.done.contains(number) {
                assert!(seen.iter().all(|s| *s), "{number} was acknowledged: {touched:?} of {cells:?}");
            } else if touched.iter().any(|&c| cells[c] == *number) {
                assert!(seen.iter().all(|s| *s), "{number} is there in part: {touched:?} of {cells:?}");
            }
        }
        for (cell, number) in cells.iter().enumerate().filter(|(_, n)| **n != 0) {
            let known = self.begun.get(number).is_some_and(|touched| touched.contains(&cell));
            assert!(known, "cell {cell} holds {number}, which never wrote it");
        }
    }
}

/// Recovers the pool, and holds it against what was told.
fn recover(path: &Path, domain: DomainChoice, told: &Told, close: bool) {
    let options = Options::new().coordinator(false).pool(pmem::Options::new().domain(domain));
    let heap = Heap::open(path, &options).expect("recovered");
    let root = root(&heap);
    let mut numbers = [0; CELLS];
    let mut reachable = BTreeSet::new();
    let tx = heap.begin(Isolation::Strict).expect("a slot");
    reachable.insert(tx.root_cell().offset());
    reachable.insert(tx.root::<Root>().expect("a root").offset());
    for (number, &at) in numbers.iter_mut().zip(&root.cells) {
        let cell = *tx.read(at).expect("a cell");
        assert_eq!(cell.rest, [cell.number; 11], "a cell is torn");
        *number = cell.number;
        reachable.insert(at.offset());
        if !cell.node.is_null() {
            let [number, len] = *tx.read(cell.node).expect("a node");
            let bytes = tx.bytes(cell.node.cast(), len).expect("all of it");
            assert!(bytes[16..].iter().all(|b| *b == number as u8), "a node is torn");
            reachable.insert(cell.node.offset());
        }
    }
    drop(tx);
    told.check(&numbers);
    let mut live = BTreeSet::new();
    heap.live_blocks(|offset, _| assert!(live.insert(offset))).expect("counted");
    assert_eq!(live, reachable);
    if close {
        heap.close().expect("closed");
    }
}

fn make(path: &Path, policy: Policy, domain: DomainChoice) {
    let heap = Heap::create(path, &options(policy, domain)).expect("created");
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        let mut cells = [PPtr::NULL; CELLS];
        for cell in &mut cells {
            *cell = tx.alloc(&Cell { number: 0, node: PPtr::NULL, rest: [0; 11] })?;
        }
        let root = tx.alloc(&Root { cells })?;
        tx.set_root(root)
    })
    .expect("made");
    heap.close().expect("closed");
}

/// A worker's life: until that long after its start, or after the first transaction it acknowledged. Returns how many it did.
fn live_and_die(path: &Path, domain: &str, told: &mut Told, after: Duration, at_work: bool) -> u64 {
    let done = AtomicU64::new(0);
    let first = told.begun.keys().last().map_or(1, |n| n + 1000);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "kill::worker", "--nocapture", "--test-threads", "1"])
        .env("CAIRN_HEAP_WORKER", format!("{domain} {first} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            for line in lines.map_while(Result::ok) {
                told.hear(&line);
                done.fetch_add(line.starts_with("done ").into(), Relaxed);
            }
        });
        for _ in 0..if at_work { TIMEOUT_MS } else { 0 } {
            if done.load(Relaxed) > 0 || heard.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(after);
        child.kill().expect("killed");
        heard.join().expect("no worker failed");
    });
    let status = child.wait().expect("ended");
    assert!(!status.success() && status.code().is_none(), "the worker ended by itself: {status}");
    done.into_inner()
}

/// Kills that many workers, one after the other, on one pool.
fn kills(dir: &Path, policy: Policy, domain: &str, kills: u64) {
    let path: PathBuf = dir.join(format!("{policy}"));
    let choice: DomainChoice = domain.parse().expect("a domain");
    make(&path, policy, choice);
    let mut told = Told::default();
    let (mut rng, mut at_work) = (7, 0);
    for kill in 0..kills {
        // Every other one dies whenever it be: before it has opened the pool, or while it recovers it.
        let ms = [1, 15, 40][(random(&mut rng) % 3) as usize] + random(&mut rng) % 20;
        let done = live_and_die(&path, domain, &mut told, Duration::from_millis(ms), kill % 2 == 0);
        at_work += u64::from(done > 0);
        recover(&path, choice, &told, kill % 5 == 4);
    }
    println!("{policy} {domain}: {kills} kills, {at_work} at work, {} transactions acknowledged", told.done.len());
    assert!(2 * at_work >= kills, "{at_work} of {kills} workers had done anything");
}

/// Per policy and place.
fn how_many() -> u64 {
    std::env::var("CAIRN_KILLS").ok().and_then(|n| n.parse::<u64>().ok()).map_or(20, |n| n.div_ceil(6))
}

#[test]
fn on_tmpfs() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("tmpfs");
    for policy in ATOMIC {
        kills(dir.path(), policy, "emulated", how_many());
    }
}

#[test]
fn on_disk() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for policy in ATOMIC {
        kills(dir.path(), policy, "file", how_many());
    }
}
