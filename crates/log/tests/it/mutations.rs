//! Damage of every kind, to logs that were closed and to logs whose writer was killed. What comes of it is an error, all records, or, of a log that was
//! not closed, all but the last few, as docs/limits.md says; never other records, and never fewer with no word of it.
//!
//! `CAIRN_DAMAGE=100000` makes so many mutations of each log, `CAIRN_SEED` others.

use std::path::Path;

use log::{Error, Follower, Lsn, Options, Tail};

use crate::basics::records;
use crate::mutate::{PAGE, Rng, Tally, mutate, mutate_twice, number};

/// Records at the end of a log that was not closed, of which nothing may tell that they were there.
const UNNOTICED: usize = 16;

/// LSN and payload of each record.
type Records = Vec<(u64, Vec<u8>)>;

/// A file, what is in it, and what it was before.
struct Made {
    closed: bool,
    bytes: Vec<u8>,
    older: Vec<Vec<u8>>,
    records: Records,
}

fn options() -> Options {
    Options::new().bytes(64 << 10).segment_bytes(8 << 10).idle(None)
}

/// A log that goes on for `laps` of its space, opened several times.
fn made(laps: usize, closed: bool) -> Made {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    let mut log = options().create(&path).unwrap();
    let mut older = vec![std::fs::read(&path).unwrap()];
    for n in 0..laps * 500 {
        let lsn = log.append(&vec![n as u8; 24 + n % 9 * 19]).unwrap();
        if lsn.get() > 150 && n % 20 == 0 {
            log.truncate_to(Lsn::new(lsn.get() - 150)).unwrap();
            log.reclaim().unwrap();
        }
        if n % 90 == 7 {
            older.push(std::fs::read(&path).unwrap());
        }
        if n % 190 == 100 {
            if n % 380 == 100 {
                log.close().unwrap()
            } else {
                log.abandon()
            }
            older.push(std::fs::read(&path).unwrap());
            log = options().open(&path).unwrap().0;
        }
    }
    let records = records(&log);
    if closed {
        log.close().unwrap()
    } else {
        log.abandon()
    }
    Made { closed, bytes: std::fs::read(path).unwrap(), older, records }
}

/// Damages the bytes; says how.
fn damaged(made: &Made, rng: &mut Rng) -> (&'static str, String, Vec<u8>) {
    let pages = made.bytes.len() / PAGE;
    // Half of the time what is at the beginning: headers, the superline, the watermark.
    let page = |rng: &mut Rng| if rng.below(3) == 0 { rng.below(5) } else { rng.below(pages) };
    let damage = if rng.below(3) == 0 { mutate_twice } else { mutate };
    damage(&made.bytes, &made.older, rng, page, 400)
}

/// Why an outcome is none that docs/limits.md names.
type Wrong = String;

/// Reads it beside, opens it, appends, and opens it again.
fn outcome(path: &Path, made: &Made, kind: &str, bytes: &[u8]) -> Result<&'static str, Wrong> {
    std::fs::write(path, bytes).map_err(|e| e.to_string())?;
    // What tells of a page that is lost may be lost with it.
    let unnoticed = if kind == "two" { usize::MAX } else { UNNOTICED };
    let judge = |found: &Records, tail, how: &str| judge(made, unnoticed, found, tail, how);
    let followed = follow(path);
    let opened = open(path, None);
    if let Ok((records, _)) = &followed {
        judge(records, Tail::Clean, "read beside")?;
    }
    let (found, tail) = match opened {
        Ok(found) => found,
        Err(error) => {
            // What was refused is refused again, or all there: not taken for a log that was killed.
            if let Ok((records, tail)) = open(path, None) {
                judge(&records, tail, &format!("opened behind {error}"))?;
            }
            return named(made, error);
        }
    };
    let equal = judge(&found, tail, "opened")?;
    // What is appended now is there, whatever was damaged.
    let (again, _) = open(path, Some(found.last().map_or(0, |r| r.0))).map_err(|e| format!("opened again: {e}"))?;
    if again.len() != found.len() + 1 || again[..found.len()] != found[..] {
        return Err(format!("{} records, one appended, {} records", found.len(), again.len()));
    }
    Ok(if equal { "equal" } else { "limit" })
}

fn named(made: &Made, error: Error) -> Result<&'static str, Wrong> {
    match error {
        Error::Pool(
            pmem::Error::OutOfBounds { .. } | pmem::Error::RegionExists { .. } | pmem::Error::NoSpace { .. },
        ) => Err(format!("this is not what happened: {error}")),
        // Without a record, one whose superlines are both lost looks like that, and loses nothing.
        error if error.to_string().contains("make it again") && !made.records.is_empty() => {
            Err(format!("it was made: {error}"))
        }
        error if error.to_string().len() > 20 => Ok("error"),
        error => Err(format!("it says nothing: {error}")),
    }
}

fn follow(path: &Path) -> Result<(Records, ()), Error> {
    let mut follower = Follower::open(path)?.eager();
    let mut all = Vec::new();
    while let Some((lsn, payload)) = follower.wait(std::time::Duration::ZERO)? {
        all.push((lsn.get(), payload));
    }
    Ok((all, ()))
}

/// All records, before which one is appended if it says behind which.
fn open(path: &Path, append: Option<u64>) -> Result<(Records, Tail), Error> {
    let (log, found) = options().open(path)?;
    if append.is_some() {
        let lsn = log.append(b"one more")?;
        assert_eq!(lsn.get(), found.next.get());
    }
    let mut iter = log.iter();
    let mut all = Vec::new();
    while let Some(record) = iter.next()? {
        all.push((record.lsn.get(), record.payload.to_vec()));
    }
    Ok((all, found.tail))
}

/// True if all are there; an error unless they are, or a limit says what is not.
fn judge(made: &Made, unnoticed: usize, found: &Records, tail: Tail, how: &str) -> Result<bool, Wrong> {
    if *found == made.records {
        return Ok(true);
    }
    if made.records.starts_with(found) && !made.closed && found.len().saturating_add(unnoticed) >= made.records.len() {
        return Ok(false);
    }
    Err(format!("{how}: {} of {} records, {tail:?}", found.len(), made.records.len()))
}

#[test]
fn damage_is_an_error_or_repaired_or_within_the_limits() {
    let (count, seed) = (number("CAIRN_DAMAGE", 700), number("CAIRN_SEED", 20));
    println!("seed {seed}, {count} mutations of each log");
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    let mut tally = Tally::default();
    let kinds = [("new", 0), ("short", 1), ("laps", 3)];
    let all = kinds.into_iter().flat_map(|(name, laps)| [(name, laps, true), (name, laps, false)]);
    for (n, (name, laps, closed)) in all.enumerate() {
        let made = made(laps, closed);
        let mut rng = Rng((seed << 8 | n as u64) + 1);
        for _ in 0..count {
            let (kind, what, bytes) = damaged(&made, &mut rng);
            tally.note(name, closed, (kind, &what), outcome(&path, &made, kind, &bytes));
        }
    }
    tally.judge(seed, count / 2);
}
