//! `cairn log`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde_json::Value;

use super::{cairn, feed, start, temp};

/// A log of 64 KiB with so many records, each its number.
fn numbers(dir: &Path, to: u64) -> String {
    let made = cairn(dir, "log create l --bytes 64K --segment 4K --domain emulated");
    assert!(made.code == 0 && made.out.contains("64.0 KiB in segments of 4.0 KiB, domain emulated"), "{made:?}");
    let lines: String = (1..=to).map(|n| format!("number {n}\n")).collect();
    let run = feed(dir, "log append l", lines.as_bytes());
    assert!(
        run.code == 0 && run.out.starts_with(&format!("{to} record")) && run.out.ends_with(&format!("number {to}\n")),
        "{run:?}"
    );
    lines
}

fn damage(dir: &Path, what: &str) {
    let mut bytes = fs::read(dir.join("l")).unwrap();
    // The last one: behind "number 3" the next record's checksum may begin with a "0".
    let at = bytes.windows(what.len()).rposition(|w| w == what.as_bytes()).unwrap();
    bytes[at] ^= 1;
    fs::write(dir.join("l"), bytes).unwrap();
}

#[test]
fn what_is_appended_is_printed() {
    let dir = temp();
    let lines = numbers(dir.path(), 200);
    assert_eq!(cairn(dir.path(), "log cat l").out, lines);
    assert_eq!(cairn(dir.path(), "log tail l -n 2").out, "number 199\nnumber 200\n");
    assert_eq!(cairn(dir.path(), "log cat l --from 199").out, "number 199\nnumber 200\n");
    assert_eq!(cairn(dir.path(), "log cat l --from 500").out, "");
    let run = feed(dir.path(), "log append l --frequency 8 --within 5", b"\nlast, without an end");
    assert!(run.code == 0 && run.out.starts_with("2 records appended"), "{run:?}");
    assert!(cairn(dir.path(), "log cat l").out.ends_with("number 200\n\nlast, without an end\n"));
    let before = fs::read(dir.path().join("l")).unwrap();
    for command in ["cat l --json", "tail l", "check l", "stats l"] {
        assert_eq!(cairn(dir.path(), &format!("log {command}")).code, 0, "{command}");
    }
    assert!(before == fs::read(dir.path().join("l")).unwrap(), "reading changes nothing");
}

#[test]
fn records_of_any_bytes() {
    let dir = temp();
    numbers(dir.path(), 1);
    let run = feed(dir.path(), "log append l --binary-len", b"\x03\0\0\0a\nb\0\0\0\0\x02\0\0\0\xff\xfe");
    assert_eq!(run.out, "3 records appended, the last is number 4\n", "{run:?}");
    let out = cairn(dir.path(), "log cat l --json").out;
    let records: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records[1], serde_json::json!({ "lsn": 2, "text": "a\nb" }));
    assert_eq!(records[2], serde_json::json!({ "lsn": 3, "text": "" }));
    assert_eq!(records[3], serde_json::json!({ "lsn": 4, "hex": "fffe" }));
    let run = feed(dir.path(), "log append l --binary-len", b"\x01\0\0\0x\x05\0\0\0yz");
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.failure().0.contains("ends inside of a record (1 record appended, number 5)"), "{run:?}");
    assert_eq!(cairn(dir.path(), "log cat l --from 5").out, "x\n");
}

#[test]
fn what_does_not_fit_is_told_and_what_did_is_kept() {
    let dir = temp();
    numbers(dir.path(), 1);
    let run = feed(dir.path(), "log append l", &[&b"short\n"[..], &vec![b'x'; 5000]].concat());
    assert_eq!(run.code, 2, "{run:?}");
    let (what, next) = run.failure();
    assert!(what.contains("longer than this log takes (4072) (1 record appended, number 2)"), "{run:?}");
    assert_eq!(next, "make the log with larger segments");
    let line = "z".repeat(999) + "\n";
    let run = feed(dir.path(), "log append l", line.repeat(100).as_bytes());
    assert!(run.code == 2 && run.failure().0.contains("the log is full"), "{run:?}");
    let kept: u64 = run.err.split_once(" records appended").unwrap().0.rsplit('(').next().unwrap().parse().unwrap();
    assert!(kept > 50, "{kept}");
    let stats = cairn(dir.path(), "log stats l --json").json();
    assert_eq!(
        (&stats["records"], &stats["longest"], &stats["closed"]),
        (&(kept + 2).into(), &999.into(), &true.into())
    );
    let check = cairn(dir.path(), "log check l --json").json();
    assert_eq!((&check["records"], &check["in_doubt"]), (&(kept + 2).into(), &Value::Null));
}

#[test]
fn a_log_is_followed_while_it_is_written_killed_and_written_again() {
    let dir = temp();
    numbers(dir.path(), 3);
    let mut tail = start(dir.path(), &["log", "tail", "-f", "l", "-n", "2"]);
    let mut seen = BufReader::new(tail.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!([seen.next().unwrap(), seen.next().unwrap()], ["number 2", "number 3"]);
    for round in ["first", "second"] {
        let mut writer = start(dir.path(), &["log", "append", "l"]);
        writeln!(writer.stdin.as_mut().unwrap(), "{round}").unwrap();
        assert_eq!(seen.next().unwrap(), round, "while the writer waits for more");
        let stats = cairn(dir.path(), "log stats l --json").json();
        assert_eq!(stats["closed"], false);
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    let run = cairn(dir.path(), "log check l");
    assert_eq!((run.code, run.failure().1), (2, "cairn log check --recover l"), "{run:?}");
    assert_eq!(cairn(dir.path(), "log cat l --from 4").out, "first\nsecond\n");
    let run = cairn(dir.path(), "log check --recover l");
    assert!(run.code == 0 && run.out.contains("records  5 with"), "{run:?}");
    assert!(cairn(dir.path(), "log check l").out.contains("closed   yes"));
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn a_damaged_log_is_told_and_salvaged() {
    let dir = temp();
    numbers(dir.path(), 100);
    damage(dir.path(), "number 30");
    damage(dir.path(), "number 31");
    let run = cairn(dir.path(), "log check l");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.failure().0.contains("record 30 at byte"), "{run:?}");
    let run = cairn(dir.path(), "log cat l");
    assert!(run.code == 1 && run.out.ends_with("number 29\n"), "{run:?}");
    assert!(run.failure().1.contains("cairn log cat --salvage"), "{run:?}");
    let run = cairn(dir.path(), "log cat l --salvage");
    assert_eq!((run.code, run.err.as_str()), (1, "missing: records 30 to 31\n"));
    assert_eq!(run.out.lines().count(), 98);
    assert!(run.out.contains("number 29\nnumber 32\n") && run.out.ends_with("number 100\n"));
    let run = cairn(dir.path(), "log tail l -n 1");
    assert!(run.code == 1 && run.out == "number 29\n", "{run:?}");
    let run = cairn(dir.path(), "check l");
    assert!(run.code == 1 && run.out.contains("damaged: log \"log\": record 30"), "{run:?}");
}

#[test]
fn check_and_info_know_logs() {
    let dir = temp();
    numbers(dir.path(), 7);
    assert!(cairn(dir.path(), "info l").out.contains("log                      log "));
    let run = cairn(dir.path(), "check l");
    assert!(run.code == 0 && run.out.contains("log \"log\": 7 records of 56 bytes"), "{run:?}");
    let log = log::Options::new().open(dir.path().join("l")).unwrap().0;
    log.append(b"one more").unwrap();
    log.abandon();
    assert_eq!(cairn(dir.path(), "check l").code, 2);
    let run = cairn(dir.path(), "check --recover l");
    assert!(run.code == 0 && run.out.contains("8 records"), "{run:?}");
    let run = cairn(dir.path(), "check l");
    assert!(run.code == 0 && run.out.contains("8 records"), "closed by the recovery: {run:?}");
}

#[test]
fn a_pool_without_a_log_is_told() {
    let dir = temp();
    assert_eq!(cairn(dir.path(), "create p --size 1M").code, 0);
    for command in ["cat p", "tail p", "stats p", "check p", "append p"] {
        let run = cairn(dir.path(), &format!("log {command}"));
        assert_eq!(run.code, 2, "{run:?}");
        run.failure();
    }
    let run = cairn(dir.path(), "log append nothing");
    assert!(run.failure().1.contains("cairn log create"), "{run:?}");
}

/// As `head` does.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = temp();
    assert_eq!(cairn(dir.path(), "log create l --bytes 4M --domain emulated").code, 0);
    let input = "a line that is a little longer than nothing at all\n".repeat(30_000);
    assert_eq!(feed(dir.path(), "log append l --frequency 64", input.as_bytes()).code, 0);
    let mut cat = start(dir.path(), &["log", "cat", "l"]);
    let mut first = String::new();
    BufReader::new(cat.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(cat.wait().unwrap().code(), Some(0));
}
