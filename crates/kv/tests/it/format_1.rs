//! A store that an earlier build left without closing it, in a pool of format version 1, is used as it is.

use kv::Options;

use crate::left::left;

#[test]
fn a_store_of_an_earlier_build_is_recovered_read_and_written() {
    let dir = crate::memory();
    let path = left(dir.path(), include_str!("format_1.txt"));
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
