//! Commits that are under way: what is read meanwhile, and in which order they come out.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use kv::{Durability, Isolation, Keys, Options, Store};
use pmem::DomainChoice;

/// Much longer than anything takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn on_a_file(dir: &tempfile::TempDir, grouped: bool) -> Store {
    let pool = pmem::Options::new().domain(DomainChoice::File);
    let options = Options::new().pool(pool).background(false).group_commit(grouped);
    options.create(dir.path().join("store")).unwrap()
}

/// While a commit stands between its timestamp and its barrier, all who only read get what was committed before, at once.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a reader that waits for the commit would keep a scope from ending, and the test from failing"
)]
fn readers_do_not_wait_for_a_commit_under_way() {
    for grouped in [true, false] {
        let dir = crate::memory();
        let store = Arc::new(on_a_file(&dir, grouped));
        store.put(b"hot", b"old").unwrap();
        let read = |store: &Store, expected: &[u8]| {
            assert_eq!(store.get(b"hot").unwrap().as_deref(), Some(expected));
            assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count(), 1);
            let found = store.transact(|tx| Ok(tx.scan(Keys::all()).map(|pair| pair.unwrap().1.to_vec()).next()));
            assert_eq!(found.unwrap().as_deref(), Some(expected));
            let tx = store.begin(Isolation::Serializable).unwrap();
            assert_eq!(tx.get(b"hot").unwrap(), Some(expected));
            assert!(tx.commit().is_ok());
            store.stats()
        };
        let (done, is_done) = channel();
        let there = Arc::clone(&store);
        kv::at_next_commit(move || {
            let reader = std::thread::spawn(move || {
                let stats = read(&there, b"old");
                done.send(stats.commits).unwrap();
            });
            assert_eq!(is_done.recv_timeout(TIMEOUT), Ok(1), "a reader waits for somebody else's commit");
            reader.join().unwrap();
        });
        store.put(b"hot", b"new").unwrap();
        assert_eq!(read(&store, b"new").commits, 2);
    }
}

/// What was acknowledged is seen by a transaction that begins then, whatever else is under way.
#[test]
fn what_is_acknowledged_is_seen_at_once() {
    for grouped in [true, false] {
        let dir = crate::memory();
        let store = &on_a_file(&dir, grouped);
        std::thread::scope(|threads| {
            for thread in 0..4_u32 {
                threads.spawn(move || {
                    for n in 0..200_u32 {
                        let (key, value) = (((thread << 16) | (n % 8)).to_be_bytes(), n.to_be_bytes());
                        store.put(&key, &value).unwrap();
                        assert_eq!(store.get(&key).unwrap().as_deref(), Some(&value[..]));
                        let other = ((thread << 16) | ((n + 1) % 8)).to_be_bytes();
                        let mut tx = store.begin(Isolation::Snapshot).unwrap();
                        assert_eq!(tx.get(&key).unwrap(), Some(&value[..]));
                        tx.put(&other, &value).unwrap();
                        tx.commit().unwrap();
                    }
                });
            }
        });
    }
}

/// A reads what B then writes, so A comes first; while A stands between its timestamp and its number, B commits. Whether a reader that has a prefix of the
/// commits, which `look` asks for x and y, sees B without A; it is asked this often.
pub(crate) fn shows_a_gap(store: &Store, often: u32, look: impl Fn() -> [Vec<u8>; 2] + Send) -> bool {
    store.put(b"x", b"0").unwrap();
    store.put(b"y", b"0").unwrap();
    let ((begin, begun), (saw, looked_at)) = (channel(), channel());
    std::thread::scope(|threads| {
        let other = threads.spawn(move || {
            begun.recv_timeout(TIMEOUT).unwrap();
            let second = std::thread::scope(|threads| {
                let second = threads.spawn(|| store.put(b"x", b"1").map(drop));
                let seen = (0..often).find_map(|_| {
                    std::thread::sleep(Duration::from_millis(1));
                    let [x, y] = look();
                    (x == b"1").then(|| y == b"0")
                });
                saw.send(()).unwrap();
                second.join().unwrap().unwrap();
                seen
            });
            second == Some(true)
        });
        let mut tx = store.begin(Isolation::Serializable).unwrap();
        assert_eq!(tx.get(b"x").unwrap(), Some(&b"0"[..]));
        tx.put(b"y", b"1").unwrap();
        kv::at_next_commit(move || {
            begin.send(()).unwrap();
            let _ = looked_at.recv_timeout(TIMEOUT);
        });
        tx.commit().unwrap();
        other.join().unwrap()
    })
}

/// A crash of a store with bounded commits leaves a prefix of their numbers: it is one of their timestamps, too.
#[test]
fn numbers_are_in_the_order_of_timestamps() {
    let gap = |step: Option<kv::Step>, often: u32| {
        let dir = crate::memory();
        let (at, copy) = (dir.path().join("store"), dir.path().join("copy"));
        let options = Options::new().background(false).durability(Durability::Bounded(100)).segment_bytes(64 << 10);
        let options = step.into_iter().fold(options, Options::without);
        let store = options.create(&at).unwrap();
        let found = shows_a_gap(&store, often, || {
            std::fs::copy(&at, &copy).unwrap();
            let copy = options.open(&copy).unwrap();
            [b"x", b"y"].map(|key| copy.get(key).unwrap().unwrap_or_default())
        });
        assert_eq!([b"x", b"y"].map(|key| store.get(key).unwrap().unwrap()), [b"1", b"1"]);
        found
    };
    assert!(!gap(None, 20));
    assert!(gap(Some(kv::Step::NumbersInOrder), 10_000), "commits are numbered as they come");
}
