//! A store that an earlier build left without closing it, in a pool of format version 1, is used as it is.

use std::path::{Path, PathBuf};

use kv::Options;

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
fn a_store_of_an_earlier_build_is_recovered_read_and_written() {
    let dir = crate::memory();
    let path = left(dir.path());
    let mut pairs = vec![
        (b"first".to_vec(), b"one".to_vec()),
        (b"long".to_vec(), vec![b'b'; 1500]),
        (b"second".to_vec(), b"two".to_vec()),
        (b"third".to_vec(), vec![b'c'; 700]),
    ];
    for round in 0..4 {
        let store = Options::new().background(false).open(&path).unwrap();
        for (key, value) in &pairs {
            assert_eq!(store.get(key).unwrap().as_deref(), Some(&value[..]), "{round}");
        }
        let pair = (format!("zz{round}").into_bytes(), vec![b'd'; 500]);
        store.put(&pair.0, &pair.1).unwrap();
        pairs.push(pair);
        if round % 2 == 1 {
            store.close().unwrap();
        } else {
            store.abandon();
        }
    }
}
