//! A process that is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use eaw::aries::Aries;
use eaw::mars::Mars;
use eaw::records::{RecordId, RecordTx, Records};

use super::Kind;

const DIR: &str = "RECORDS_TEST_DIR";
const KIND: &str = "RECORDS_TEST_KIND";
const RECORDS: u64 = 6;

/// The process that is killed: each transaction writes its number to all records, at a length of its own; replaces one of them; and makes a record that a nested action
/// leaves, and takes the one before away.
#[test]
fn worker() {
    let Ok(dir) = std::env::var(DIR) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(60));
            std::process::exit(3); // the process that waits for it is told
        });
        match std::env::var(KIND).as_deref() {
            Ok("mars") => work(&<Mars as Kind>::open(dir.as_ref())),
            Ok("aries") => work(&<Aries as Kind>::open(dir.as_ref())),
            other => panic!("{other:?}"),
        }
    });
}

fn record(n: u64, at: u64) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.resize(8 + (n * 37 + at * 611) as usize % 2000, n as u8);
    bytes
}

/// The number that all of them have.
fn there<S: Records>(store: &S) -> (u64, Vec<RecordId>) {
    let table = store.table("records").unwrap();
    let mut found = Vec::new();
    store.begin().unwrap().scan(table, &mut |id, bytes| found.push((id, bytes.to_vec()))).unwrap();
    assert_eq!(found.len() as u64, RECORDS);
    let n = u64::from_le_bytes(found[0].1[..8].try_into().unwrap());
    for (_, bytes) in &found {
        assert!((0..RECORDS).any(|at| *bytes == record(n, at)), "torn: {n}, {} bytes", bytes.len());
    }
    (n, found.into_iter().map(|(id, _)| id).collect())
}

fn work<S: Kind>(store: &S) {
    let [table, marks] = ["records", "marks"].map(|name| store.table(name).unwrap());
    let (first, mut ids) = there(store);
    for n in first + 1.. {
        let mut tx = store.begin().unwrap();
        let gone = ids.remove(n as usize % ids.len());
        tx.delete(table, gone).unwrap();
        ids.push(tx.insert(table, &record(n, 0)).unwrap());
        for (at, id) in (1..).zip(&ids[..ids.len() - 1]) {
            tx.update(table, *id, &record(n, at)).unwrap();
        }
        tx.nested_top(|tx| {
            let mut old = Vec::new();
            tx.scan(marks, &mut |id, _| old.push(id))?;
            tx.insert(marks, &n.to_le_bytes())?;
            old.into_iter().try_for_each(|id| tx.delete(marks, id))
        })
        .unwrap();
        tx.commit().unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "durable {n}").and_then(|()| out.flush()).expect("works");
    }
}

fn killed<S: Kind>(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let store = S::create(dir.path());
    let [table, marks] = ["records", "marks"].map(|name| store.create_table(name).unwrap());
    let mut tx = store.begin().unwrap();
    (0..RECORDS).for_each(|at| _ = tx.insert(table, &record(0, at)).unwrap());
    tx.insert(marks, &0_u64.to_le_bytes()).unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    for round in 0..10_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["records::processes::worker", "--exact", "--nocapture"])
            .env(DIR, dir.path())
            .env(KIND, kind)
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
        let store = S::open(dir.path());
        let (found, _) = there(&store);
        assert!(found == last || found == last + 1, "acknowledged {last}, there is {found}");
        let mut mark = Vec::new();
        store.begin().unwrap().scan(marks, &mut |_, bytes| mark.push(bytes.to_vec())).unwrap();
        // The nested action of the transaction that was cut short may be there.
        let is_next = mark == [(found + 1).to_le_bytes()];
        assert!(is_next || mark == [found.to_le_bytes()], "{found}: {mark:?}");
        store.close().unwrap();
    }
}

#[test]
fn what_a_killed_process_had_acknowledged_is_in_mars() {
    killed::<Mars>("mars");
}

#[test]
fn what_a_killed_process_had_acknowledged_is_in_aries() {
    killed::<Aries>("aries");
}
