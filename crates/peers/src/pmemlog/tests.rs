use super::*;

/// In memory: `msync` on a disk would take minutes.
fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn records(log: &Pmemlog, bytes: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    log.walk(bytes, |record| {
        all.push(record.to_vec());
        true
    });
    all
}

#[test]
fn what_was_appended_is_found_again() {
    let dir = temp();
    let path = dir.path().join("log");
    let log = Pmemlog::create(&path, Pmemlog::BYTES_MIN).unwrap();
    for number in 0..100_u8 {
        log.append(&[number; 64]).unwrap();
    }
    log.append(b"tail").unwrap();
    log.close();

    let log = Pmemlog::open(&path).unwrap();
    assert_eq!(log.tell(), 6404);
    let found = records(&log, 64);
    assert_eq!((found.len(), &found[99], &found[100]), (101, &vec![99; 64], &b"tail".to_vec()));
    let mut seen = 0;
    log.walk(64, |_| {
        seen += 1;
        seen < 3
    });
    assert_eq!(seen, 3, "a walk ends when it is told to");
    log.rewind();
    assert_eq!((log.tell(), records(&log, 64).len()), (0, 0));
}

#[test]
fn a_full_log_says_so_and_goes_on() {
    let dir = temp();
    let log = Pmemlog::create(&dir.path().join("log"), Pmemlog::BYTES_MIN).unwrap();
    let record = vec![7; 4096];
    let fitting = (0..).find(|_| log.append(&record).is_err()).unwrap();
    assert_eq!(fitting, log.capacity() / record.len());
    let error = log.append(&record).unwrap_err().to_string();
    assert!(error.starts_with("libpmemlog: "), "{error}");
    log.rewind();
    log.append(&record).unwrap();
}

#[test]
fn what_is_no_log_is_refused() {
    let dir = temp();
    let error = Pmemlog::open(&dir.path().join("none")).err().unwrap();
    assert!(error.to_string().contains("none"), "{error}");
    let small = dir.path().join("small");
    assert!(Pmemlog::create(&small, Pmemlog::BYTES_MIN - 1).is_err());
}

#[test]
fn threads_share_one() {
    let dir = temp();
    let log = Pmemlog::create(&dir.path().join("log"), Pmemlog::BYTES_MIN).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let log = &log;
            scope.spawn(move || (0..1000).for_each(|_| log.append(&[thread; 32]).unwrap()));
        }
    });
    let found = records(&log, 32);
    assert!(found.iter().all(|record| record.iter().all(|byte| *byte == record[0])), "nobody's record is torn");
    assert!((0..3).all(|thread| found.iter().filter(|record| record[0] == thread).count() == 1000));
}
