//! What has expired is removed.

use std::time::{Duration, SystemTime};

use kv::{Isolation, Options};

fn key(n: u64) -> Vec<u8> {
    format!("session{n:06}").into_bytes()
}

#[expect(clippy::disallowed_methods, reason = "what expires does so by the time of day")]
fn soon(by: Duration) -> u64 {
    (SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + by).as_millis() as u64
}

#[test]
fn expired_keys_leave_the_index_and_the_file() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let options = Options::new().segment_bytes(64 << 10).background(false);
    let store = options.create(&path).unwrap();
    const KEYS: u64 = 3000;
    for n in 0..KEYS {
        match n % 3 {
            0 => store.put(&key(n), b"stays").unwrap(),
            1 => store.put_until(&key(n), &[7; 500], 1).unwrap(),
            _ => store.put_until(&key(n), b"for a year", soon(Duration::from_secs(365 * 86400))).unwrap(),
        };
    }
    let live = store.stats().live_bytes;
    // One that a transaction is writing is left to it.
    let mut tx = store.begin(Isolation::Serializable).unwrap();
    tx.put(&key(1), b"again").unwrap();
    assert_eq!(store.sweep().unwrap(), KEYS / 3 - 1);
    tx.commit().unwrap();
    assert_eq!(store.get(&key(1)).unwrap().as_deref(), Some(&b"again"[..]));
    assert_eq!((store.sweep().unwrap(), store.stats().swept), (0, KEYS / 3 - 1));
    (0..4).for_each(|_| store.checkpoint().unwrap());
    let stats = store.stats();
    assert_eq!(stats.entries, KEYS / 3 * 2 + 1);
    assert!(stats.live_bytes < live - KEYS / 3 * 500, "{} of {live}", stats.live_bytes);
    store.abandon();
    let store = options.open(&path).unwrap();
    assert!((0..KEYS).all(|n| store.get(&key(n)).unwrap().is_some() == (n % 3 != 1 || n == 1)));
    // What expires is known to do so after a restart.
    store.put_until(&key(2), b"", 1).unwrap();
    assert_eq!(store.sweep().unwrap(), 1);
}

#[test]
fn the_thread_of_the_store_sweeps() {
    let dir = crate::memory();
    let store = Options::new().create(dir.path().join("store")).unwrap();
    for n in 0..1000 {
        store.put_until(&key(n), b"", soon(Duration::from_millis(50))).unwrap();
    }
    for looks in 0.. {
        let swept = store.stats().swept;
        if swept == 1000 {
            break;
        }
        assert!(looks < 3000, "{swept} of 1000 in a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(store.snapshot().unwrap().scan(kv::Keys::all()).count(), 0);
}

/// Whether anything expires is known without reading all of it; the first that does is told by its commit.
#[test]
fn the_first_that_expires_is_noticed() {
    let dir = crate::memory();
    let store = Options::new().background(false).create(dir.path().join("store")).unwrap();
    store.put(&key(1), b"stays").unwrap();
    assert_eq!((store.sweep().unwrap(), store.sweep().unwrap()), (0, 0));
    store.put_until(&key(2), b"goes", 1).unwrap();
    assert_eq!(store.sweep().unwrap(), 1);
}
