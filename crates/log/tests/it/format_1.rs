//! A log that an earlier build left without closing it, in a pool of format version 1, is used as it is.

use log::Options;

use crate::left::left;

#[test]
fn a_log_of_an_earlier_build_is_recovered_read_and_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = left(dir.path(), include_str!("format_1.txt"));
    let mut lengths = vec![5, 100, 300, 2000, 3000];
    for round in 0..3 {
        let (log, found) = Options::new().open(&path).unwrap();
        assert_eq!(found.records, lengths.len() as u64);
        let mut iter = log.iter();
        for len in &lengths {
            let record = iter.next().unwrap().expect("a record");
            assert_eq!((record.payload.len(), record.payload.iter().all(|byte| *byte == b'a')), (*len, true));
        }
        assert!(iter.next().unwrap().is_none());
        drop(iter);
        log.append(&vec![b'a'; 400 + round]).unwrap();
        lengths.push(400 + round);
        if round == 1 {
            log.close().unwrap();
        } else {
            log.abandon();
        }
    }
}
