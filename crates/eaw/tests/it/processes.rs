//! A process that is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{members, options, read};

const DIR: &str = "EAW_TEST_DIR";
const PLACES: u64 = 8;

/// The process that is killed: each transaction writes its number to 8 places on both members, and says so when it is durable.
#[test]
fn worker() {
    let Ok(dir) = std::env::var(DIR) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(60));
            std::process::exit(3); // the process that waits for it is told
        });
        work(&dir);
    });
}

fn work(dir: &str) {
    let array = options().open(&members(dir.as_ref())).expect("works");
    let pages = array.file("pages").expect("works");
    let first = u64::from_le_bytes(read(&array, 0, 8).try_into().expect("works"));
    for n in first + 1.. {
        let mut tx = array.begin().expect("works");
        for at in 0..PLACES {
            tx.log_write(&pages, at * 40_000, &n.to_le_bytes()).expect("works");
        }
        tx.commit().expect("works");
        let mut out = std::io::stdout().lock();
        writeln!(out, "durable {n}").and_then(|()| out.flush()).expect("works");
    }
}

#[test]
fn what_a_killed_process_had_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    super::create(dir.path(), &options()).close().unwrap();
    for round in 0..12_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::worker", "--exact", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let number = |line: &str| line.split_once("durable ").and_then(|(_, n)| n.trim().parse::<u64>().ok());
        let mut last = 0;
        for line in lines.by_ref().map_while(Result::ok) {
            last = number(&line).unwrap_or(last);
            if last > 0 {
                break;
            }
        }
        assert!(last > 0, "the worker did not begin");
        std::thread::sleep(Duration::from_millis(5 + 7 * round));
        child.kill().unwrap();
        lines.map_while(Result::ok).filter_map(|line| number(&line)).for_each(|n| last = n);
        child.wait().unwrap();
        let array = options().open(&members(dir.path())).unwrap();
        assert!(array.recovered().lost.is_empty(), "{:?}", array.recovered());
        let there = |at: u64| u64::from_le_bytes(read(&array, at * 40_000, 8).try_into().unwrap());
        let found = there(0);
        assert!(found == last || found == last + 1, "acknowledged {last}, there is {found}");
        assert!((0..PLACES).all(|at| there(at) == found), "torn");
    }
}
