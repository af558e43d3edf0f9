//! A real process with two terminals is killed at random moments, again and again on one pool. The process that started it hears through a pipe what was
//! committed, recovers the pool, and holds the rows against the consistency conditions and their number against what it heard.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use heap::{Heap, Options, Policy};
use structures::BTree;

use super::check::Census;
use super::*;
use crate::workload::Random;

const SMALL: Scale = Scale { warehouses: 2, customers: 30, items: 100 };
const TERMINALS: usize = 2;
const KILLS: u64 = 6;
/// A worker that is not killed ends by itself.
const TRANSACTIONS_MAX: usize = 1_000_000;
/// A worker that has committed nothing by then never will.
const TIMEOUT_MS: u64 = 60_000;

/// A line in one piece.
fn tell(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("the parent listens");
}

/// Not a test of its own: what the test below starts, and kills.
#[test]
fn worker() {
    let Ok(work) = std::env::var("CAIRN_TPCC_WORKER") else { return };
    let (seed, path) = work.split_once(' ').expect("a seed and a path");
    let engine = Heap::open(path, &Options::new()).expect("recovered");
    let tables = Tables::<BTree>::open(&engine).expect("tables");
    let seed: u64 = seed.parse().expect("a seed");
    let said = AtomicBool::new(false);
    tell(""); // the test harness has begun a line
    std::thread::scope(|scope| {
        for terminal in 0..TERMINALS {
            let (engine, tables, said) = (&engine, &tables, &said);
            scope.spawn(move || {
                let mut terminal = Terminal::new(SMALL, Mix::Standard, terminal, seed);
                for _ in 0..TRANSACTIONS_MAX {
                    let input = terminal.input();
                    match (run(engine, tables, &input, Style::new(Declare::Together)), input) {
                        (Ok(done), Input::NewOrder(_)) if done.committed => tell("order"),
                        (Ok(_), Input::Payment(_)) => tell("payment"),
                        (Ok(_), _) => {}
                        (Err(error), _) => tell(&format!("failed {error}")),
                    }
                    if engine.stats().evictions > 0 && !said.swap(true, Relaxed) {
                        tell("short");
                    }
                }
            });
        }
    });
}

/// A worker's life: until that long after its first order, and after it was short of copies if it has any. Returns the orders and payments that it said
/// were committed.
fn live_and_die(path: &Path, policy: Policy, seed: u64, after: Duration) -> (u64, u64) {
    let (orders, payments) = (AtomicU64::new(0), AtomicU64::new(0));
    let short = AtomicBool::new(policy != Policy::InPlacePartial);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "workload::tpcc::kill::worker", "--nocapture", "--test-threads", "1"])
        .env("CAIRN_TPCC_WORKER", format!("{seed} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            for line in lines.map_while(std::io::Result::ok) {
                assert!(!line.starts_with("failed"), "a worker: {line}");
                orders.fetch_add((line == "order").into(), Relaxed);
                payments.fetch_add((line == "payment").into(), Relaxed);
                short.fetch_or(line == "short", Relaxed);
            }
        });
        for _ in 0..TIMEOUT_MS {
            if (orders.load(Relaxed) > 0 && short.load(Relaxed)) || heard.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(after);
        child.kill().expect("killed");
        heard.join().expect("no worker failed");
    });
    assert!(short.into_inner(), "copies were never given up");
    let status = child.wait().expect("ended");
    assert!(!status.success() && status.code().is_none(), "the worker ended by itself: {status}");
    (orders.into_inner(), payments.into_inner())
}

/// All that was heard is there; what is there besides is at most what each terminal had committed and not yet said.
fn holds(policy: Policy, what: &str, (before, now): (u64, u64), heard: u64) {
    let new = now - before;
    assert!((heard..=heard + TERMINALS as u64).contains(&new), "{policy}: {new} new {what}, {heard} heard of");
}

#[test]
fn kills() {
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::None) {
        let dir = tempfile::tempdir_in(crate::contest::memory()).expect("a directory");
        let path = dir.path().join("tpcc");
        let mut last: Census = {
            // With so little room for the copies of a partial backup that they are given up.
            let options = Options::new().policy(policy).bytes(16 << 20).alpha(0.01);
            let engine = Heap::create(&path, &options).expect("created");
            let tables = Tables::<BTree>::populate(&engine, SMALL, 3).expect("filled");
            let census = check(&engine, &tables).expect("consistent");
            engine.close().expect("closed");
            census
        };
        let (mut random, mut orders) = (Random::new(7), 0);
        for kill in 0..KILLS {
            let heard = live_and_die(&path, policy, kill, Duration::from_millis(1 + random.below(40)));
            let engine = Heap::open(&path, &Options::new().coordinator(false)).expect("recovered");
            let tables = Tables::<BTree>::open(&engine).expect("tables");
            let now = check(&engine, &tables).expect("consistent");
            holds(policy, "orders", (last.orders, now.orders), heard.0);
            holds(policy, "payments", (last.payments, now.payments), heard.1);
            (last, orders) = (now, orders + heard.0);
        }
        println!("{policy}: {KILLS} kills, {orders} orders heard of");
        assert!(orders >= KILLS, "{policy}: the workers did nothing");
    }
}
