//! What programs rely on.

use std::time::Duration;

use log::{Error, Log, Lsn, Options, Tail};

pub fn records(log: &Log) -> Vec<(u64, Vec<u8>)> {
    let mut iter = log.iter();
    let mut all = Vec::new();
    while let Some(record) = iter.next().unwrap() {
        all.push((record.lsn.get(), record.payload.to_vec()));
    }
    all
}

fn small() -> Options {
    Options::new().bytes(64 << 10).segment_bytes(4096).idle(None)
}

#[test]
fn what_is_appended_is_there_after_a_close_and_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    for close in [true, false] {
        let path = dir.path().join(format!("l{close}"));
        let log = small().create(&path).unwrap();
        let payloads: Vec<Vec<u8>> = (0..50usize).map(|n| vec![n as u8; n * 7]).collect();
        for (n, payload) in payloads.iter().enumerate() {
            assert_eq!(log.append(payload).unwrap().get(), n as u64 + 1);
        }
        assert_eq!(log.forced(), Lsn::new(50));
        if close {
            log.close().unwrap();
        } else {
            log.abandon();
        }
        let (log, found) = small().open(&path).unwrap();
        assert_eq!((found.records, found.tail, found.was_closed), (50, Tail::Clean, close));
        let expected: Vec<_> = payloads.into_iter().enumerate().map(|(n, p)| (n as u64 + 1, p)).collect();
        assert_eq!(records(&log), expected);
        assert_eq!(log.append(b"next").unwrap().get(), 51);
    }
}

#[test]
fn reservations_are_completed_in_any_order_and_durable_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().stall_timeout(Duration::from_millis(30)).create(dir.path().join("l")).unwrap();
    let (mut first, mut second) = (log.reserve(5).unwrap(), log.reserve(6).unwrap());
    second.copy(0, b"second");
    let second = second.complete().unwrap();
    let stalled = log.force(second).unwrap_err();
    assert!(matches!(stalled, Error::Stalled { lsn, .. } if lsn == Lsn::new(1)), "{stalled}");
    assert_eq!(records(&log), []);
    first.copy_from_slice(b"first");
    first.complete().unwrap();
    log.force(second).unwrap();
    assert_eq!(records(&log), [(1, b"first".to_vec()), (2, b"second".to_vec())]);
}

#[test]
fn a_dropped_reservation_is_skipped_and_a_forgotten_one_blocks_the_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().stall_timeout(Duration::from_millis(30)).create(&path).unwrap();
    drop(log.reserve(100).unwrap());
    log.append(b"data").unwrap();
    assert_eq!(records(&log), [(2, b"data".to_vec())]);
    std::mem::forget(log.reserve(8).unwrap());
    assert!(matches!(log.append(b"later").unwrap_err(), Error::Stalled { lsn, .. } if lsn == Lsn::new(3)));
    assert!(matches!(log.close().unwrap_err(), Error::Unfinished { lsn } if lsn == Lsn::new(3)));
    let (log, found) = small().open(&path).unwrap();
    assert!(matches!(found.tail, Tail::InDoubt { lsn, .. } if lsn == Lsn::new(3)), "{found:?}");
    assert_eq!(records(&log), [(2, b"data".to_vec())]);
    log.close().unwrap();
}

#[test]
fn the_frequency_bounds_what_is_not_durable() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().frequency(8).threads(2).create(dir.path().join("l")).unwrap();
    for n in 1..=100u64 {
        log.append(b"x").unwrap();
        let window = log.vulnerability_window();
        assert_eq!(window.bound, 16);
        assert_eq!(window.now, n % 8, "after {n}");
        assert_eq!(log.forced().get(), n / 8 * 8);
    }
    log.force_now(Lsn::new(97)).unwrap();
    assert_eq!(log.forced().get(), 100, "what is complete goes along");
}

#[test]
fn time_limits_the_frequency() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().frequency(64).within(Duration::from_millis(1)).create(dir.path().join("l")).unwrap();
    let lsn = log.append(b"x").unwrap();
    while log.forced() < lsn {
        std::thread::yield_now(); // the test's own time limit is the runner's
    }
}

#[test]
fn an_idle_log_leaves_nothing_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().idle(Some(Duration::from_millis(1))).create(dir.path().join("l")).unwrap();
    log.append(b"x").unwrap();
    while log.stats().next.get() < 3 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(log.stats().next.get(), 3, "one watermark is enough");
    assert_eq!(records(&log), [(1, b"x".to_vec())]);
}

#[test]
fn many_threads_append_without_gaps() {
    let dir = tempfile::tempdir().unwrap();
    for (frequency, bytes) in [(1, 4 << 20), (4, 4 << 20)] {
        let path = dir.path().join(format!("l{frequency}"));
        let log = Options::new().bytes(bytes).frequency(frequency).threads(8).create(&path).unwrap();
        std::thread::scope(|threads| {
            for thread in 0..8u64 {
                let log = &log;
                threads.spawn(move || {
                    for n in 0..500u64 {
                        let payload = [thread.to_le_bytes(), n.to_le_bytes()].concat();
                        if n % 3 == 0 {
                            let mut record = log.reserve(16).unwrap();
                            record.copy(0, &payload);
                            let lsn = record.complete().unwrap();
                            log.force(lsn).unwrap();
                        } else {
                            log.append(&payload).unwrap();
                        }
                        let window = log.vulnerability_window();
                        assert!(frequency == 1 || window.now <= window.bound);
                    }
                });
            }
        });
        log.force_now(Lsn::new(4000)).unwrap();
        log.abandon();
        let (log, found) = Options::new().open(&path).unwrap();
        assert_eq!((found.records, found.tail), (4000, Tail::Clean));
        let mut next = [0u64; 8];
        for (n, (lsn, payload)) in records(&log).into_iter().enumerate() {
            assert_eq!(lsn, n as u64 + 1);
            let (thread, number) = payload.split_at(8);
            let thread = u64::from_le_bytes(thread.try_into().unwrap()) as usize;
            assert_eq!(number, next[thread].to_le_bytes(), "each thread's in its order");
            next[thread] += 1;
        }
    }
}

#[test]
fn errors_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().create(dir.path().join("l")).unwrap();
    let long = log.append(&[0; 4073]).unwrap_err();
    assert_eq!(
        long.to_string(),
        "a record of 4073 bytes is longer than this log takes (4072); make the log with larger segments"
    );
    log.append(&[0; 4072]).unwrap();
    assert!(matches!(log.force(Lsn::new(9)).unwrap_err(), Error::Limit { found: 9, max: 1, .. }));
    assert!(matches!(log.discard(Lsn::new(2)).unwrap_err(), Error::NotForced { .. }));
    assert!(matches!(small().segment_bytes(100).create(dir.path().join("m")).unwrap_err(), Error::Limit { .. }));
    assert!(matches!(small().segment_bytes(260).create(dir.path().join("m")).unwrap_err(), Error::Limit { .. }));
}

#[test]
fn a_closed_log_is_read_by_readers_that_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().create(&path).unwrap();
    log.append(b"x").unwrap();
    log.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let (a, _) = small().open_read_only(&path).unwrap();
    let (b, _) = small().open_read_only(&path).unwrap();
    assert_eq!((records(&a), records(&b)), (vec![(1, b"x".to_vec())], vec![(1, b"x".to_vec())]));
    assert!(matches!(a.append(b"y").unwrap_err(), Error::Pool(pmem::Error::ReadOnly)));
    drop((a, b));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// A length for which there can be no room is refused, and no record is made of it.
#[test]
fn lengths_that_are_no_lengths_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = small().create(dir.path().join("l")).unwrap();
    for _ in 0..20 {
        log.append(&[7; 300]).unwrap();
    }
    for len in [usize::MAX, 0usize.wrapping_sub(24), 0usize.wrapping_sub(1000), 1 << 40] {
        assert!(matches!(log.reserve(len), Err(Error::TooLong { .. })), "{len}");
    }
    assert!(matches!(log.grow(u64::MAX), Err(Error::Limit { .. })));
    assert_eq!(log.append(b"x").unwrap(), Lsn::new(21));
    assert_eq!(records(&log).len(), 21);
}

/// The timekeeper waits for no room, so a full log closes.
#[test]
fn a_full_log_that_waits_can_be_closed() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().bytes(1024).segment_bytes(512).idle(Some(Duration::from_millis(1)));
    let options = options.when_full(log::WhenFull::Wait(Duration::from_secs(3600)));
    let log = options.create(dir.path().join("l")).unwrap();
    (0..2).for_each(|_| assert!(log.append(&[1; 480]).is_ok()));
    std::thread::sleep(Duration::from_millis(20));
    log.close().unwrap();
}

/// What is discarded does not come back because a thread still reads.
#[test]
fn a_reader_keeps_its_bytes_and_not_the_head() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = small().create(&path).unwrap();
    (0..10u8).for_each(|n| assert!(log.append(&[n; 1000]).is_ok()));
    let mut iter = log.iter();
    assert!(iter.next().unwrap().is_some());
    log.truncate_all().unwrap();
    assert_eq!(iter.next().unwrap().unwrap().payload, [1; 1000]);
    drop(iter);
    log.abandon();
    assert_eq!(small().open(&path).unwrap().1.records, 0);
}

/// A crash while a log is made leaves a region that opening explains and making finishes; damage to both superlines is called damage.
#[test]
fn half_made_logs_are_told_from_damaged_ones() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p")).unwrap();
    for (name, words) in [("nothing", 0), ("a few words", 3)] {
        let region = pool.add_region_as(name, 3 * 4096 + (64 << 10), log::REGION_KIND, 0).unwrap();
        let mut area = region.into_area().unwrap();
        (0..words).for_each(|n| area.put(n * 16, &7u64).unwrap());
        drop(area);
        let error = small().open_in(&pool, name).unwrap_err();
        assert!(matches!(error, Error::NotALog { .. }), "{name}: {error}");
        let log = small().create_in(&pool, name).unwrap();
        log.append(b"x").unwrap();
        log.abandon();
        assert_eq!(small().open_in(&pool, name).unwrap().1.records, 1, "{name}");
    }
    let mut area = pool.region("nothing").unwrap().into_area().unwrap();
    area.bytes_mut(0, 3 * 4096).unwrap().iter_mut().for_each(|b| *b ^= 1);
    drop(area);
    let error = small().open_in(&pool, "nothing").unwrap_err();
    assert!(matches!(error, Error::Pool(pmem::Error::Damaged { .. })), "{error}");
    assert!(matches!(small().create_in(&pool, "nothing").unwrap_err(), Error::Pool(pmem::Error::RegionExists { .. })));
    // Whatever was found, no log keeps the region.
    assert!(pool.region("nothing").is_ok());
}
