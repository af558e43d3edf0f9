//! Several threads at once.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use kv::{Error, Isolation, Keys, Options, Store};
use pmem::DomainChoice;

#[test]
fn money_is_neither_made_nor_lost() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = Options::new().segment_bytes(64 << 10).checkpoint_bytes(1 << 20).create(&path).unwrap();
    const ACCOUNTS: u64 = 10;
    let key = |n: u64| format!("account{n:03}").into_bytes();
    for n in 0..ACCOUNTS {
        store.put(&key(n), &100u64.to_le_bytes()).unwrap();
    }
    let read = |value: Option<&[u8]>| u64::from_le_bytes(value.unwrap().try_into().unwrap());
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let store = &store;
            threads.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..5000 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let (from, to) = ((state >> 33) % ACCOUNTS, (state >> 40) % ACCOUNTS);
                    store
                        .transact(|tx| {
                            let balance = read(tx.get(&key(from))?);
                            if balance == 0 || from == to {
                                return Ok(());
                            }
                            let other = read(tx.get(&key(to))?);
                            tx.put(&key(from), &(balance - 1).to_le_bytes())?;
                            tx.put(&key(to), &(other + 1).to_le_bytes())?;
                            Ok(())
                        })
                        .unwrap();
                }
            });
        }
        let store = &store;
        threads.spawn(move || {
            for _ in 0..2000 {
                let snapshot = store.snapshot().unwrap();
                let sum: u64 = snapshot.scan(Keys::prefix(b"account")).map(|p| read(Some(p.unwrap().1))).sum();
                assert_eq!(sum, 100 * ACCOUNTS);
            }
        });
    });
    store.abandon();
    let store = Options::new().open(&path).unwrap();
    let tx = store.begin(Isolation::Snapshot).unwrap();
    assert_eq!(tx.scan(Keys::all()).map(|p| read(Some(p.unwrap().1))).sum::<u64>(), 100 * ACCOUNTS);
}

/// Each waits for the other, and neither can know but by the time it takes.
#[test]
fn a_transaction_within_another_on_the_same_key_gives_up() {
    let dir = crate::memory();
    let store = kv::Store::open(dir.path().join("store")).unwrap();
    let nested = store.transact(|outer| {
        outer.put(b"key", b"1")?;
        let within = store.transact(|inner| inner.put(b"key", b"2"));
        assert!(matches!(within, Err(Error::GaveUp { .. })), "{within:?}");
        Ok(())
    });
    nested.unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Says so however its thread ends: a thread that waits for it goes on.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Where commits take the time of a sync the clock is ahead of what a transaction begins at: it is not too old for that.
#[test]
fn who_begins_behind_an_expiry_is_not_too_old() {
    let dir = crate::memory();
    let options = Options::new().pool(pmem::Options::new().domain(DomainChoice::File));
    let store = options.create(dir.path().join("store")).unwrap();
    store.put(b"key", b"0").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for writer in 0..2u8 {
            let (store, done) = (&store, &done);
            threads.spawn(move || {
                let _done = Done(done);
                for n in 0..=u8::MAX {
                    // A put that is under way when everything is expired is, too, as any transaction.
                    match store.put(&[writer], &[n]) {
                        Ok(_) | Err(Error::Expired { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let mut rounds = 0;
        while !done.load(SeqCst) {
            rounds += 1;
            let limit = if rounds % 3 > 0 { store.stats().now } else { u64::MAX.into() };
            let open = store.snapshot().unwrap();
            store.expire_before(limit);
            if open.timestamp() < limit {
                assert!(matches!(open.get(b"key"), Err(Error::Expired { .. })), "round {rounds}");
            }
            // On the transaction slot that is free now, or on another.
            let _kept = (rounds % 2 > 0).then_some(open);
            let later = store.begin(Isolation::ALL[rounds % 3]).unwrap();
            assert!(later.get(b"key").is_ok_and(|found| found.is_some()), "round {rounds}, limit {limit}");
            assert!(store.transact(|tx| Ok(tx.get(b"key")?.is_some())).unwrap());
        }
        println!("{rounds} rounds");
    });
}

/// Uses the store when its thread's variables go: before the store's own have gone, or after.
struct AtEnd(std::sync::Arc<Store>, std::sync::mpsc::Sender<usize>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        let found = self.0.snapshot().unwrap().get(b"a").unwrap().map_or(0, |value| value.len());
        self.0.transact(|tx| tx.put(b"b", b"1")).unwrap();
        let _ = self.1.send(found);
    }
}

thread_local! {
    static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a scope does not wait for the variables of its threads")]
fn a_store_is_used_while_the_variables_of_a_thread_are_torn_down() {
    let dir = crate::memory();
    let store = std::sync::Arc::new(Store::open(dir.path().join("s")).unwrap());
    for is_first in [true, false] {
        let (told, hears) = std::sync::mpsc::channel();
        let store = store.clone();
        std::thread::spawn(move || {
            let at_end = AtEnd(store.clone(), told);
            if is_first {
                AT_END.set(Some(at_end));
                store.transact(|tx| tx.put(b"a", b"one")).unwrap();
            } else {
                store.transact(|tx| tx.put(b"a", b"one")).unwrap();
                AT_END.set(Some(at_end));
            }
        })
        .join()
        .unwrap();
        assert_eq!(hears.recv(), Ok(3), "is_first {is_first}");
    }
}
