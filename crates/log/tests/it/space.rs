//! Space: full, discarded, reclaimed, grown.

use std::time::Duration;

use log::{Error, Log, Lsn, Options, WhenFull};

use crate::basics::records;

fn small() -> Options {
    Options::new().bytes(16 << 10).segment_bytes(4096).idle(None)
}

fn fill(log: &Log) -> u64 {
    let mut n = 0;
    loop {
        match log.append(&[n as u8; 1000]) {
            Ok(_) => n += 1,
            Err(Error::Full { .. }) => return n,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_log_refuses_until_something_is_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().create(&path).unwrap();
    let held = fill(&log);
    assert_eq!(held, 16, "four of 1024, four times");
    assert_eq!(records(&log).len(), 16);
    log.discard(Lsn::new(2)).unwrap();
    assert!(matches!(log.append(&[0; 1000]), Err(Error::Full { head, .. }) if head == Lsn::new(1)));
    log.discard(Lsn::new(1)).unwrap();
    assert!(
        matches!(log.append(&[0; 1000]), Err(Error::Full { head, .. }) if head == Lsn::new(3)),
        "a segment at a time"
    );
    log.truncate_to(Lsn::new(4)).unwrap();
    log.append(&[9; 1000]).unwrap();
    assert_eq!(records(&log).first().unwrap().0, 5);
    log.close().unwrap();
    let (log, found) = small().open(&path).unwrap();
    assert_eq!((found.head, found.records), (Lsn::new(5), 13));
    assert_eq!(records(&log).last().unwrap(), &(17, vec![9; 1000]));
}

#[test]
fn a_full_log_waits_if_it_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().when_full(WhenFull::Wait(Duration::from_secs(60))).create(dir.path().join("l")).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            (0..200).for_each(|_| {
                log.append(&[1; 1000]).unwrap();
            })
        });
        threads.spawn(|| {
            while log.forced() < Lsn::new(200) {
                log.truncate_to(log.forced()).unwrap();
                std::thread::yield_now();
            }
        });
    });
    let impatient = small().when_full(WhenFull::Wait(Duration::from_millis(5))).create(dir.path().join("m")).unwrap();
    assert_eq!(fill(&impatient), 16);
}

#[test]
fn discarded_records_do_not_come_back_after_a_close_or_a_reclaim() {
    let dir = tempfile::tempdir().unwrap();
    for how in ["close", "reclaim", "all"] {
        let path = dir.path().join(how);
        let log = small().create(&path).unwrap();
        (0..8).for_each(|n| {
            log.append(&[n; 500]).unwrap();
        });
        log.truncate_to(Lsn::new(5)).unwrap();
        let left = if how == "all" { 0 } else { 3 };
        match how {
            "close" => log.close().unwrap(),
            "reclaim" => log.reclaim().map(|()| log.abandon()).unwrap(),
            _ => log.truncate_all().map(|()| log.abandon()).unwrap(),
        }
        let (log, found) = small().open(&path).unwrap();
        assert_eq!(found.records, left, "{how}");
        assert_eq!(records(&log).len() as u64, left);
        assert_eq!(log.append(b"x").unwrap(), Lsn::new(9), "numbers go on");
    }
}

#[test]
fn it_wraps_around_many_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let mut log = small().create(&path).unwrap();
    let mut expected = std::collections::VecDeque::<(u64, Vec<u8>)>::new();
    for n in 0..3000u64 {
        let payload = vec![n as u8; (n * 37 % 900) as usize];
        while expected.len() > 5 {
            log.discard(Lsn::new(expected.pop_front().unwrap().0)).unwrap();
        }
        let lsn = log.append(&payload).unwrap();
        expected.push_back((lsn.get(), payload));
        if n % 97 == 0 {
            log.close().unwrap();
            log = small().open(&path).unwrap().0;
            assert_eq!(records(&log), Vec::from(expected.clone()));
        } else if n % 101 == 0 {
            log.abandon();
            log = small().open(&path).unwrap().0;
            let found = records(&log);
            assert!(found.ends_with(&Vec::from(expected.clone())));
            let oldest = found.first().unwrap().0;
            expected = found.into();
            assert!(oldest > 0);
        }
    }
}

#[test]
fn it_grows_while_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let mut log = small().create(&path).unwrap();
    let mut expected = Vec::new();
    for round in 0..12u8 {
        loop {
            match log.append(&[round; 700]) {
                Ok(lsn) => expected.push((lsn.get(), vec![round; 700])),
                Err(Error::Full { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        // Some room is made by truncating, so that the circle stands elsewhere at each growth.
        let discarded = expected.len() / 3;
        log.truncate_to(Lsn::new(expected[discarded - 1].0)).unwrap();
        expected.drain(..discarded);
        let before = log.stats().capacity;
        assert_eq!(log.grow(4096 * u64::from(round % 3 + 1)).unwrap(), before + 4096 * u64::from(round % 3 + 1));
        assert_eq!(records(&log), expected);
        if round % 2 == 0 {
            log.abandon();
            log = small().open(&path).unwrap().0;
            let found = records(&log);
            assert!(found.ends_with(&expected), "round {round}");
            expected = found;
        }
    }
    let mut grown = 12;
    let refused = loop {
        while log.append(&[1; 700]).is_ok() {}
        log.truncate_to(log.forced()).unwrap();
        log.append(&[1; 4000]).unwrap();
        match log.grow(1) {
            Ok(_) => grown += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::GrownTooOften { max: 15 }), "{refused}");
    assert_eq!(grown, 15);
    log.close().unwrap();
    assert_eq!(small().open(&path).unwrap().0.stats().growths, 15);
}

#[test]
fn what_a_reader_has_not_passed_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().create(dir.path().join("l")).unwrap();
    fill(&log);
    let mut iter = log.iter();
    assert_eq!(iter.next().unwrap().unwrap().payload, [0; 1000]);
    log.truncate_to(log.forced()).unwrap();
    assert!(matches!(log.append(&[0; 1000]), Err(Error::Full { .. })));
    for n in 1..5u8 {
        assert_eq!(iter.next().unwrap().unwrap().payload, [n; 1000]);
    }
    log.append(&[99; 1000]).unwrap();
    for n in 5..16u8 {
        assert_eq!(iter.next().unwrap().unwrap().payload, [n; 1000]);
    }
    assert_eq!(iter.next().unwrap().unwrap().payload, [99; 1000]);
    assert!(iter.next().unwrap().is_none());
}
