//! Reserve, complete and force under schedules that `shuttle` plays.

use std::sync::Arc;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use conformance::{explore, together};
use log::{Log, Options, Step};

fn log(frequency: u32) -> (tempfile::TempDir, Arc<Log>) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options::new().bytes(16 << 10).segment_bytes(1024).idle(None).frequency(frequency).threads(4);
    let log = options.create(dir.path().join("l")).unwrap();
    (dir, Arc::new(log))
}

/// Whatever the schedule: a force returns when all before it is durable, numbers have no gap, and no thread waits for ever.
#[test]
fn appends_and_reservations_together() {
    explore(1, 400, || {
        let (_dir, log) = log(1);
        let appends = |thread: u8| {
            let log = Arc::clone(&log);
            Box::new(move || {
                for n in 0..3 {
                    let lsn = log.append(&[thread; 40]).unwrap();
                    assert!(log.forced() >= lsn);
                    let mut record = log.reserve(10 + n).unwrap();
                    record.fill(thread);
                    let lsn = record.complete().unwrap();
                    log.force(lsn).unwrap();
                    assert!(log.forced() >= lsn);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![appends(1), appends(2), appends(3)]);
        assert_eq!(log.forced().get(), 18);
        assert_eq!(crate::basics::records(&log).len(), 18);
    });
}

/// What the watermark says on media: the LSN of either of its words, which are one behind the other where nothing goes wrong.
fn watermark(log: &Log) -> [u64; 2] {
    let bytes = std::fs::read(log.pool().path()).unwrap();
    let at = 4 * 4096; // behind both pages of the pool's header, and those of the superline
    [at, at + 8].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) & ((1 << 48) - 1))
}

fn watermarks(without: Option<Step>) {
    explore(4, 200, move || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options::new().bytes(16 << 10).segment_bytes(1024).idle(None).watermark_every(1);
        let options = without.into_iter().fold(options, Options::without);
        let log = Arc::new(options.create(dir.path().join("l")).unwrap());
        let most = Arc::new(AtomicU64::new(0));
        let appends = |thread: u8| {
            let (log, most) = (Arc::clone(&log), Arc::clone(&most));
            Box::new(move || {
                for _ in 0..3 {
                    log.append(&[thread; 20]).unwrap();
                    let [mark, twin] = watermark(&log);
                    assert_eq!(mark, twin, "one record at a time has it to write");
                    assert!(mark <= log.forced().get(), "the watermark is ahead");
                    assert!(most.fetch_max(mark, SeqCst) <= mark, "the watermark went back");
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![appends(1), appends(2), appends(3)]);
        assert!(most.load(SeqCst) > 0);
    });
}

#[test]
fn the_watermark_is_never_ahead_and_never_goes_back() {
    watermarks(None);
}

#[test]
#[should_panic = "the watermark went back"]
fn without_turns_the_watermark_goes_back() {
    watermarks(Some(Step::MarkAlone));
}

#[test]
#[should_panic = "the watermark is ahead"]
fn a_watermark_of_what_is_reserved_is_ahead() {
    watermarks(Some(Step::HonestMark));
}

/// Records that go past the cache between others that no thread has forced: the bound of the policy holds, and at the end all are there.
#[test]
fn long_records_by_a_frequency() {
    explore(5, 300, || {
        let (dir, log) = log(3);
        drop(log);
        let options = Options::new().bytes(16 << 10).segment_bytes(1024).idle(None).frequency(3).threads(2);
        let options = options.stream_from(30).watermark_every(2);
        let log = Arc::new(options.create(dir.path().join("long")).unwrap());
        let appends = |lengths: [usize; 5]| {
            let log = Arc::clone(&log);
            Box::new(move || {
                for len in lengths {
                    log.append(&vec![7; len]).unwrap();
                    let window = log.vulnerability_window();
                    assert!(window.now <= window.bound, "{window:?}");
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![appends([40, 10, 60, 10, 40]), appends([10, 50, 10, 10, 30])]);
        log.force_now(log::Lsn::new(10)).unwrap();
        assert_eq!(crate::basics::records(&log).len(), 10);
    });
}

/// The bound of the policy holds under every schedule, and leaders do not wait for each other for ever.
#[test]
fn leaders_of_a_frequency() {
    explore(2, 400, || {
        let (_dir, log) = log(2);
        let appends = || {
            let log = Arc::clone(&log);
            Box::new(move || {
                for _ in 0..6 {
                    log.append(&[7; 20]).unwrap();
                    let window = log.vulnerability_window();
                    assert!(window.now <= window.bound, "{window:?}");
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![appends(), appends(), appends()]);
        assert!(log.forced().get() >= 17, "{}", log.forced());
    });
}

/// Discarding, reclaiming and growth beside appends.
#[test]
fn space_is_made_beside_appends() {
    explore(3, 200, || {
        let (_dir, log) = log(1);
        let appends = {
            let log = Arc::clone(&log);
            Box::new(move || (0..12).for_each(|n| assert!(log.append(&[n; 900]).is_ok()))) as Box<dyn FnOnce() + Send>
        };
        let discards = {
            let log = Arc::clone(&log);
            Box::new(move || {
                for round in 0..6 {
                    log.truncate_to(log.forced()).unwrap();
                    if round % 3 == 1 {
                        log.grow(1024).unwrap();
                        log.reclaim().unwrap();
                    }
                    pmem::sync::switch_point();
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![appends, discards]);
        let all = crate::basics::records(&log);
        assert!(all.windows(2).all(|w| w[0].0 + 1 == w[1].0));
        assert!(all.iter().all(|(lsn, payload)| *payload == vec![*lsn as u8 - 1; 900]));
    });
}
