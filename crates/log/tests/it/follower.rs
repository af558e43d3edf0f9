//! A log read while it is written: by another thread, by another process, beside crashes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use log::{Error, Follower, Log, Lsn, Options, Tail};
use pmem::DomainChoice;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn small() -> Options {
    small_in(DomainChoice::Emulated)
}

fn small_in(domain: DomainChoice) -> Options {
    Options::new().bytes(64 << 10).segment_bytes(4096).idle(None).pool(pmem::Options::new().domain(domain))
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// What the program's record `n` is: its number, and bytes that follow from it.
fn payload(n: u64) -> Vec<u8> {
    let mut state = n;
    let len = 8 + random(&mut state) % if n.is_multiple_of(5) { 3000 } else { 200 };
    let mut bytes = vec![state as u8; len as usize];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

/// Appends, and truncates behind the reader when the log is full.
fn append(log: &Log, n: u64, read: &AtomicU64) -> Lsn {
    loop {
        match log.append(&payload(n)) {
            Ok(lsn) => return lsn,
            Err(Error::Full { .. }) => {
                log.force_now(Lsn::new(log.stats().next.get() - 1)).unwrap();
                log.idle().ok(); // or it is full of what the reader waits for
                log.truncate_to(Lsn::new(read.load(Relaxed).min(log.forced().get()))).unwrap();
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn put(log: &Log, n: u64) {
    log.append(&payload(n)).unwrap();
}

/// Takes records until number `last`, each once and in order. Says how far it is.
fn read_all(follower: &mut Follower, last: u64, read: &AtomicU64) {
    let mut lsn_before = Lsn::default();
    for n in 1..=last {
        let (lsn, bytes) =
            follower.wait(LONG).unwrap().unwrap_or_else(|| panic!("record {n} never came: {follower:?}"));
        assert_eq!(number(&bytes), n, "{lsn}");
        assert_eq!(bytes, payload(n), "{lsn}");
        assert!(lsn > lsn_before);
        lsn_before = lsn;
        read.store(lsn.get(), Relaxed);
    }
}

#[test]
fn every_record_once_beside_closes_crashes_growth_and_reclaims() {
    let dir = tempfile::tempdir().unwrap();
    for (round, (frequency, domain)) in
        [(1, DomainChoice::Emulated), (8, DomainChoice::Emulated), (1, DomainChoice::File), (4, DomainChoice::File)]
            .into_iter()
            .enumerate()
    {
        let path = dir.path().join(format!("l{round}"));
        let options = small_in(domain).frequency(frequency).threads(1);
        let last = if domain == DomainChoice::File { 300 } else { 4000 };
        let mut log = Some(options.create(&path).unwrap());
        let mut follower = Follower::open(&path).unwrap();
        let read = AtomicU64::new(0);
        std::thread::scope(|threads| {
            let read = &read;
            threads.spawn(move || read_all(&mut follower, last, read));
            let mut rng = round as u64;
            for n in 1..=last {
                append(log.as_ref().unwrap(), n, read);
                match random(&mut rng) % 150 {
                    0 if log.as_ref().unwrap().stats().growths < 8 => {
                        log.as_ref().unwrap().grow(8192).unwrap();
                    }
                    what @ 1..=2 => {
                        let old = log.take().unwrap();
                        if what == 1 {
                            old.close().unwrap();
                        } else {
                            drop(old); // as if killed
                        }
                        log = Some(options.open(&path).unwrap().0);
                    }
                    _ => {}
                }
            }
            log.take().unwrap().close().unwrap();
        });
    }
}

// ---- another process ------------------------------------------------------------------------------------------------

/// Not a test of its own: what the test below starts, and kills. Goes on behind the last record there is.
#[test]
fn writer() {
    let Ok(work) = std::env::var("CAIRN_LOG_WRITER") else { return };
    let [dir, last] = work.splitn(2, ' ').collect::<Vec<_>>()[..] else { panic!("{work:?}") };
    let (dir, last): (&Path, u64) = (dir.as_ref(), last.parse().unwrap());
    let (log, _) = small().frequency(2).threads(1).open(dir.join("l")).unwrap();
    let mut next = 1;
    let mut records = log.iter();
    while let Some(record) = records.next().unwrap() {
        next = number(record.payload) + 1;
    }
    drop(records);
    let read = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Relaxed) {
                if let Some(lsn) = std::fs::read(dir.join("read")).ok().filter(|b| b.len() == 8) {
                    read.store(number(&lsn), Relaxed);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        println!();
        for n in next..=last {
            append(&log, n, &read);
            if n % 16 == 0 {
                std::io::stdout().write_all(b"at work\n").unwrap();
            }
        }
        stop.store(true, Relaxed);
    });
    log.close().unwrap();
}

/// Runs the writer until it has said that often that it is at work, and kills it; or to its end.
fn live_and_die(dir: &Path, last: u64, lines: usize) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "follower::writer", "--nocapture", "--test-threads", "1"])
        .env("CAIRN_LOG_WRITER", format!("{} {last}", dir.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    told.filter(|line| line == "at work").take(lines).for_each(drop);
    let _ = child.kill();
    child.wait().unwrap().success()
}

#[test]
fn every_record_once_beside_a_process_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    small().create(&path).unwrap().close().unwrap();
    let mut follower = Follower::open(&path).unwrap();
    let last = 1500;
    let read = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            read_all(&mut follower, last, &read);
            done.store(true, Relaxed);
        });
        threads.spawn(|| {
            while !done.load(Relaxed) {
                std::fs::write(dir.path().join("read.new"), read.load(Relaxed).to_le_bytes()).unwrap();
                std::fs::rename(dir.path().join("read.new"), dir.path().join("read")).unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let mut rng = 7;
        let mut kills = 0;
        while !live_and_die(dir.path(), last, (random(&mut rng) % 40) as usize) {
            kills += 1;
        }
        assert!(kills > 2, "only {kills} kills");
    });
}

// ---- case by case ---------------------------------------------------------------------------------------------------

#[test]
fn what_is_not_known_to_be_durable_is_not_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().frequency(8).create(&path).unwrap();
    let (mut patient, mut eager) = (Follower::open(&path).unwrap(), Follower::open(&path).unwrap().eager());
    for n in 1..=3 {
        log.append(&payload(n)).unwrap();
        assert_eq!(eager.next().unwrap(), Some((Lsn::new(n), payload(n))));
        assert_eq!(eager.next().unwrap(), None);
        assert_eq!(patient.next().unwrap(), None);
    }
    assert_eq!((patient.ahead(), patient.position()), (3, Lsn::new(1)));
    log.force_now(Lsn::new(3)).unwrap();
    assert_eq!(patient.next().unwrap(), None, "durable, and nothing on media says so");
    log.append(&payload(4)).unwrap();
    for n in 1..=3 {
        assert_eq!(patient.next().unwrap(), Some((Lsn::new(n), payload(n))));
    }
    assert_eq!(patient.next().unwrap(), None);
    log.idle().unwrap();
    assert_eq!(patient.next().unwrap(), Some((Lsn::new(4), payload(4))));
    log.append(&payload(6)).unwrap();
    assert_eq!(patient.next().unwrap(), None);
    log.close().unwrap();
    assert_eq!(patient.next().unwrap(), Some((Lsn::new(6), payload(6))));
    assert!(patient.next().unwrap().is_none() && patient.is_closed());
    assert_eq!(eager.next().unwrap(), Some((Lsn::new(4), payload(4))));
}

/// What a crash left is durable once the log is open again.
#[test]
fn an_open_makes_durable_what_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().frequency(8).create(&path).unwrap();
    log.append(&payload(1)).unwrap();
    log.abandon();
    let mut follower = Follower::open(&path).unwrap();
    assert_eq!(follower.next().unwrap(), None);
    let (log, _) = small().open(&path).unwrap();
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(1), payload(1))));
    log.abandon();
}

#[test]
fn a_reader_that_is_too_slow_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().create(&path).unwrap();
    let mut follower = Follower::open(&path).unwrap();
    (1..=3).for_each(|n| put(&log, n));
    assert_eq!(follower.next().unwrap().unwrap().0, Lsn::new(1));
    log.truncate_all().unwrap();
    (4..=300).for_each(|n| {
        append(&log, n, &AtomicU64::new(u64::MAX));
    });
    let overtaken = loop {
        match follower.next() {
            Ok(Some((lsn, bytes))) => assert_eq!(bytes, payload(lsn.get())),
            Ok(None) => panic!("records are missing"),
            Err(error) => break error,
        }
    };
    let Error::Overtaken { wanted, head } = overtaken else { panic!("{overtaken}") };
    assert!(wanted > Lsn::new(1) && head > Lsn::new(3) && wanted < head);
    assert!(matches!(follower.next(), Err(Error::Overtaken { .. })), "until it is told where to go on");
    follower.from(head).unwrap();
    let (lsn, bytes) = follower.next().unwrap().unwrap();
    assert!(lsn >= head && bytes == payload(number(&bytes)));
    assert!(matches!(follower.from(Lsn::new(1)), Err(Error::Overtaken { .. })));
}

#[test]
fn it_goes_on_wherever_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().create(&path).unwrap();
    (1..=40).for_each(|n| put(&log, n));
    let mut follower = Follower::open(&path).unwrap();
    for n in [7, 30, 31, 3, 1, 39] {
        follower.from(Lsn::new(n)).unwrap();
        assert_eq!(follower.position(), Lsn::new(n));
        assert_eq!(follower.next().unwrap(), Some((Lsn::new(n), payload(n))));
    }
    follower.from(Lsn::new(42)).unwrap();
    (41..=42).for_each(|n| put(&log, n));
    log.idle().unwrap();
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(42), payload(42))));
}

#[test]
fn a_record_that_was_skipped_is_given_to_who_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().create(&path).unwrap();
    log.append(b"1").unwrap();
    log.append(b"2").unwrap();
    let (mut third, mut fourth) = (log.reserve(1).unwrap(), log.reserve(1).unwrap());
    fourth.copy(0, b"4");
    fourth.complete().unwrap();
    let mut follower = Follower::open(&path).unwrap();
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(1), b"1".to_vec())));
    assert_eq!(follower.next().unwrap(), None); // nothing says yet that the second is durable: it is read ahead
    assert_eq!(follower.skip_lost().unwrap(), Some(Lsn::new(4)));
    third.copy(0, b"3");
    third.complete().unwrap();
    log.force(Lsn::new(4)).unwrap();
    log.append(b"5").unwrap();
    follower.from(Lsn::new(3)).unwrap();
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(3), b"3".to_vec())));
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(4), b"4".to_vec())));
}

#[test]
fn a_torn_record_is_never_given_and_what_replaces_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().frequency(8).create(&path).unwrap();
    log.append(&payload(1)).unwrap();
    std::mem::forget(log.reserve(100).unwrap());
    log.append(&payload(3)).unwrap();
    let (mut patient, mut eager) = (Follower::open(&path).unwrap(), Follower::open(&path).unwrap().eager());
    assert_eq!(eager.next().unwrap(), Some((Lsn::new(1), payload(1))));
    assert_eq!((eager.next().unwrap(), patient.next().unwrap()), (None, None), "the third is whole, and not the next");
    log.abandon();
    let (log, found) = small().open(&path).unwrap();
    assert!(matches!(found.tail, Tail::InDoubt { lsn, .. } if lsn == Lsn::new(2)));
    assert_eq!(patient.next().unwrap(), Some((Lsn::new(1), payload(1))));
    (2..=4).for_each(|n| put(&log, n + 100));
    log.close().unwrap();
    for n in 2..=4 {
        assert_eq!(patient.next().unwrap(), Some((Lsn::new(n), payload(n + 100))));
    }
    // It cannot know that the first is what it was.
    assert_eq!(eager.next().unwrap(), Some((Lsn::new(1), payload(1))));
    for n in 2..=4 {
        assert_eq!(eager.next().unwrap(), Some((Lsn::new(n), payload(n + 100))));
    }
}

/// A whole record that stood behind a torn one does not come back when the torn one's space is written again.
#[test]
fn what_an_open_threw_away_stays_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().frequency(8).create(&path).unwrap();
    log.append(&[1; 100]).unwrap();
    std::mem::forget(log.reserve(100).unwrap());
    log.append(&[3; 100]).unwrap();
    log.abandon();
    let (log, _) = small().frequency(8).open(&path).unwrap();
    log.append(&[2; 100]).unwrap();
    let mut follower = Follower::open(&path).unwrap().eager();
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(1), vec![1; 100])));
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(2), vec![2; 100])));
    assert_eq!(follower.next().unwrap(), None);
}

/// The end of a log read ahead is replaced behind the reader's back, as by a medium that forgets what was not forced.
#[test]
fn what_was_read_ahead_is_read_again_when_the_log_was_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().frequency(8).create(&path).unwrap();
    log.append(&payload(1)).unwrap();
    log.force_now(Lsn::new(1)).unwrap();
    let old = std::fs::read(&path).unwrap();
    (2..=4).for_each(|n| put(&log, n));
    let mut follower = Follower::open(&path).unwrap();
    assert_eq!(follower.next().unwrap(), Some((Lsn::new(1), payload(1))));
    assert_eq!((follower.next().unwrap(), follower.ahead()), (None, 3));
    log.abandon();
    std::fs::write(&path, old).unwrap();
    let (log, _) = small().open(&path).unwrap();
    (2..=5).for_each(|n| put(&log, n + 100));
    for n in 2..=4 {
        assert_eq!(follower.next().unwrap(), Some((Lsn::new(n), payload(n + 100))));
    }
}

// ---- damage ---------------------------------------------------------------------------------------------------------

fn flip(path: &Path, what: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(what.len()).position(|w| w == what).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_record_is_lost_and_the_rest_can_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    for close in [true, false] {
        let path = dir.path().join(format!("l{close}"));
        let log = small().create(&path).unwrap();
        (1..=60).for_each(|n| put(&log, n));
        if close {
            log.close().unwrap();
        } else {
            log.abandon();
        }
        [3, 4, 50].into_iter().for_each(|n| flip(&path, &payload(n)));
        let mut follower = Follower::open(&path).unwrap();
        let mut given = Vec::new();
        let mut lost = Vec::new();
        loop {
            match follower.wait(Duration::ZERO) {
                Ok(Some((lsn, bytes))) => {
                    assert_eq!(bytes, payload(lsn.get()));
                    given.push(lsn.get());
                }
                Ok(None) => break,
                Err(Error::Lost { lsn, through, .. }) => {
                    assert!(through >= lsn);
                    let next = follower.skip_lost().unwrap().expect("there is more");
                    lost.extend(lsn.get()..next.get());
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(lost, [3, 4, 50]);
        let last = if close { 60 } else { 59 }; // of the last nothing says that it is durable
        assert_eq!(given, (1..=last).filter(|n| ![3, 4, 50].contains(n)).collect::<Vec<_>>());
    }
}

#[test]
fn no_flipped_bit_makes_a_wrong_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = Options::new().bytes(8192).segment_bytes(4096).idle(None).create(&path).unwrap();
    (1..=20).for_each(|n| put(&log, 5 * n + 1));
    log.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut rng = 11;
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(&mut rng) % 3 {
            let at = random(&mut rng) as usize % bytes.len();
            bytes[at] ^= 1 << (random(&mut rng) % 8);
        }
        std::fs::write(&path, bytes).unwrap();
        let Ok(mut follower) = Follower::open(&path) else { continue };
        loop {
            match follower.wait(Duration::ZERO) {
                Ok(Some((lsn, bytes))) => assert_eq!(bytes, payload(5 * lsn.get() + 1)),
                Ok(None) => break assert_eq!(follower.position(), Lsn::new(21)),
                Err(Error::Lost { .. }) => {
                    if follower.skip_lost().unwrap().is_none() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
    }
}
