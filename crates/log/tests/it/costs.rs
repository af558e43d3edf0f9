//! What each path costs, counted exactly.

use log::{Log, Lsn, Options};
use pmem::{DomainChoice, Stats};

fn log(dir: &tempfile::TempDir, options: Options, domain: DomainChoice) -> Log {
    let options = options.idle(None).pool(pmem::Options::new().domain(domain));
    options.create(dir.path().join(format!("{:?}", std::thread::current().id()))).unwrap()
}

fn cost(log: &Log, work: impl FnOnce()) -> Stats {
    let before = log.pool().stats();
    work();
    log.pool().stats() - before
}

#[test]
fn an_append_is_one_barrier_and_its_own_lines() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir, Options::new().bytes(1 << 20), DomainChoice::Emulated);
    for len in [0usize, 1, 40, 41, 64, 100, 1000, 1024, 4096, 40] {
        let cost = cost(&log, || {
            log.append(&vec![7; len]).unwrap();
        });
        let lines = (24 + len as u64).div_ceil(64);
        assert_eq!((cost.drains, cost.media_bytes()), (1, lines * 64), "{len} bytes");
        assert_eq!(cost.flushed_lines, 0, "all of it past the cache");
    }
}

#[test]
fn a_force_is_one_barrier_however_many_records() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir, Options::new().bytes(1 << 20), DomainChoice::Emulated);
    for records in [1u64, 2, 10, 100, 1000] {
        let payload = 40 + records % 7;
        let cost = cost(&log, || {
            let mut last = Lsn::new(0);
            for _ in 0..records {
                let mut record = log.reserve(payload as usize).unwrap();
                record.fill(3);
                last = record.complete().unwrap();
            }
            log.force(last).unwrap();
        });
        assert_eq!(cost.drains, 1, "{records} records");
        assert!(cost.media_bytes() <= records * (payload + 32) + 2 * 63 + 64, "{records}: {}", cost.media_bytes());
    }
}

#[test]
fn with_a_frequency_so_many_appends_share_a_barrier() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir, Options::new().bytes(1 << 20).frequency(8), DomainChoice::Emulated);
    let cost = cost(&log, || {
        (0..800).for_each(|_| {
            log.append(&[1; 104]).unwrap();
        })
    });
    assert_eq!(cost.drains, 100);
    // 128 bytes each, on whole lines by chance of the numbers; and the watermark's line, with the next barrier behind 16 records.
    assert_eq!(cost.media_bytes(), 800 * 128 + 799 / 16 * 64);
}

/// Long records go past the cache whatever the frequency, with a barrier each; they force nothing, and leave the others to the policy.
#[test]
fn a_long_record_has_a_barrier_of_its_own_whatever_the_frequency() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir, Options::new().bytes(1 << 20).frequency(8), DomainChoice::Emulated);
    for (len, drains) in [(1499, 0), (1500, 1), (4096, 1), (100, 0), (1500, 1)] {
        let cost = cost(&log, || {
            log.append(&vec![7; len]).unwrap();
        });
        assert_eq!(cost.drains, drains, "{len} bytes");
        if drains > 0 {
            // At most the line that it shares with the record before is flushed.
            assert!(
                cost.flushed_lines <= 1 && cost.media_bytes() <= (24 + len as u64).div_ceil(64) * 64 + 64,
                "{cost:?}"
            );
        }
    }
    assert_eq!(log.forced().get(), 0, "the first record waits");
    log.force_now(Lsn::new(5)).unwrap();
    assert_eq!(log.forced().get(), 5);
}

#[test]
fn nothing_but_the_watermark_is_written_between_reclaims() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir, Options::new().bytes(64 << 10).segment_bytes(4096), DomainChoice::Emulated);
    let (mut reclaims, mut watermarks) = (0, 0);
    for n in 0..2000u64 {
        let cost = cost(&log, || {
            let lsn = log.append(&[1; 104]).unwrap();
            log.discard(lsn).unwrap();
        });
        let reclaimed = log.stats().reclaims - reclaims;
        reclaims += reclaimed;
        assert!(reclaimed <= 1);
        assert_eq!(cost.drains, 1 + 2 * reclaimed, "append {n}");
        assert!(cost.flushed_lines <= 2 * 7 * reclaimed, "append {n}");
        // The record and the watermark go past the cache.
        let watermark = cost.media_bytes() - 64 * cost.flushed_lines - 128;
        assert!(watermark == 0 || watermark == 64, "append {n}");
        watermarks += watermark / 64;
    }
    assert_eq!(watermarks, 1999 / 16);
    assert_eq!(reclaims, (2000u64 * 128 / 4096 - 16).div_ceil(16), "all sixteen segments at a time");
}

#[test]
fn in_a_file_a_record_costs_its_bytes_and_forces_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir, Options::new().bytes(1 << 20), DomainChoice::File);
    let one = cost(&log, || {
        log.append(&[7; 100]).unwrap();
    });
    assert_eq!((one.drains, one.syncs), (1, 1));
    let before = log.stats().live_bytes;
    log.append(&[7; 104]).unwrap();
    assert_eq!(log.stats().live_bytes - before, 128, "no rounding to lines");
    let many = cost(&log, || {
        let mut last = Lsn::new(0);
        for _ in 0..50 {
            last = log.reserve(10).unwrap().complete().unwrap();
        }
        log.force(last).unwrap();
    });
    assert_eq!((many.drains, many.syncs), (1, 1));
    // All records of a round are complete before the first is forced: whichever thread comes first has one sync for all.
    let all_there = std::sync::Barrier::new(16);
    let threads = cost(&log, || {
        std::thread::scope(|s| {
            for _ in 0..16 {
                s.spawn(|| {
                    for _ in 0..20 {
                        let lsn = log.reserve(100).unwrap().complete().unwrap();
                        all_there.wait();
                        log.force(lsn).unwrap();
                        all_there.wait();
                    }
                });
            }
        });
    });
    assert_eq!((threads.drains, threads.syncs), (20, 20), "for 320 records of 16 threads");
}

#[test]
fn opening_costs_three_barriers() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p")).unwrap();
    let options = Options::new().bytes(64 << 10).idle(None);
    let before = pool.stats();
    drop(pool.add_region("like it", 4096 + (64 << 10)).unwrap());
    let region = (pool.stats() - before).drains;
    let before = pool.stats();
    let log = options.create_in(&pool, "l").unwrap();
    assert_eq!((pool.stats() - before).drains, region + 3, "making one");
    log.append(b"x").unwrap();
    log.abandon();
    let open = |expected: u64| {
        let before = pool.stats();
        let (log, _) = options.open_in(&pool, "l").unwrap();
        assert_eq!((pool.stats() - before).drains, expected);
        log
    };
    let log = open(3);
    let before = pool.stats();
    log.close().unwrap();
    assert_eq!((pool.stats() - before).drains, 2, "a close");
    drop(open(3));
}
