//! A log that an earlier build left without closing it, in a pool of format version 1, is used as it is.

use std::path::{Path, PathBuf};

use log::Options;

/// The bytes that an earlier build left: lines of 64 bytes that are not zero, in hexadecimal, and where they are.
fn left(dir: &Path) -> PathBuf {
    let mut lines = include_str!("format_1.txt").lines();
    let size = lines.next().and_then(|line| line.strip_prefix("size ")).unwrap();
    let mut bytes = vec![0; size.parse().unwrap()];
    for line in lines {
        let (at, text) = line.split_once(' ').unwrap();
        let at: usize = at.parse().unwrap();
        if text == "again" {
            bytes.copy_within(at - 64..at, at);
            continue;
        }
        for (to, hex) in bytes[at..].iter_mut().zip(text.as_bytes().chunks(2)) {
            *to = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
        }
    }
    let path = dir.join("left");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_log_of_an_earlier_build_is_recovered_read_and_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = left(dir.path());
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
