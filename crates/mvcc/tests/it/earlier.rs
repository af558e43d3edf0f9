//! Stores in the format of 2026-11, one left without closing it and one closed, are used as they are. Names of structs and fields are part of the format: what fails here is a store that
//! can no longer be opened.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such stores by this build, and write `earlier-*.txt` into that folder.

use std::path::Path;

use mvcc::{Mvcc, Options};
use pmem::{DomainChoice, HeapOptions, PPtr, Persist, bytes_of, from_bytes};
use tx::{Engine, Error, Isolation, Procedure, Result, Transaction, Typed};

use crate::fixture::earlier;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Shop {
    rounds: u64,
    first: PPtr<Item>,
    sums: PPtr<Sums>,
    long: PPtr<Long>,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Item {
    number: u64,
    price: u64,
    next: PPtr<Item>,
}

type Sums = [u64; 64];

/// A change of all of it does not fit into a log.
type Long = [u64; 1024];

/// Adds to all sums.
struct Add;

impl Procedure for Add {
    const NAME: &'static str = "add";
    type Args = (PPtr<Sums>, u64);
    type Output = ();

    fn run<X: Transaction>(tx: &mut X, &(sums, by): &Self::Args) -> Result<()> {
        tx.write(sums)?.iter_mut().for_each(|sum| *sum += by);
        Ok(())
    }

    fn encode((sums, by): &Self::Args, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(bytes_of(sums));
        out.extend_from_slice(bytes_of(by));
        true
    }

    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        let args = args.split_at_checked(8).and_then(|(at, by)| Some((from_bytes(at)?, from_bytes(by)?)));
        Self::run(tx, &args.ok_or(Error::Aborted { reason: "no arguments".into() })?)
    }
}

fn options() -> Options {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let blocks = HeapOptions::chunk_bytes(4096).unwrap();
    let options = Options::new().bytes(64 << 10).slots(2).log_bytes(4096).copy_bytes(4096).blocks(blocks);
    options.background(false).pool(pool).procedure::<Add>()
}

fn push(tx: &mut impl Transaction, number: u64) -> Result<()> {
    let shop = tx.root::<Shop>()?;
    let next = tx.read(shop)?.first;
    let item = tx.alloc(&Item { number, price: 100 * number, next })?;
    tx.write(shop)?.first = item;
    Ok(())
}

fn transact<R>(store: &Mvcc, f: impl FnMut(&mut mvcc::Tx<'_>) -> Result<R>) -> R {
    store.transact(Isolation::Serializable, f).unwrap()
}

/// Written back: items 0 to 7 without 6, a call. In the logs: a longer list, new prices, a long record, a call.
fn make(path: &Path) -> Mvcc {
    let store = Mvcc::create(path, &options()).unwrap();
    transact(&store, |tx| {
        let (sums, long) = (tx.alloc(&[0; 64])?, tx.alloc(&[1; 1024])?);
        let shop = tx.alloc(&Shop { rounds: 0, first: PPtr::NULL, sums, long })?;
        tx.set_root(shop)?;
        (0..8).try_for_each(|number| push(tx, number))
    });
    let shop = transact(&store, |tx| tx.read(tx.root::<Shop>()?).copied());
    transact(&store, |tx| {
        let seven = *tx.read(shop.first)?;
        let six = *tx.read(seven.next)?;
        tx.free(seven.next)?;
        tx.write(shop.first)?.next = six.next;
        Ok(())
    });
    store.call::<Add>(&(shop.sums, 5)).unwrap();
    assert!(store.write_back().unwrap());

    transact(&store, |tx| (8..10).try_for_each(|number| push(tx, number)));
    transact(&store, |tx| tx.write(shop.first).map(|seven| seven.price += 1));
    transact(&store, |tx| tx.write(shop.long).map(|long| *long = [2; 1024]));
    store.call::<Add>(&(shop.sums, 7)).unwrap();
    assert_eq!(store.stats().calls, 2);
    store
}

/// Holds what `make` has made, and what so many rounds have added.
fn check(store: &Mvcc, rounds: u64) {
    let tx = store.begin(Isolation::Snapshot).unwrap();
    let shop = *tx.read(tx.root::<Shop>().unwrap()).unwrap();
    assert_eq!(shop.rounds, rounds);
    assert_eq!(*tx.read(shop.sums).unwrap(), [12 + rounds; 64]);
    assert_eq!(*tx.read(shop.long).unwrap(), [2 + rounds; 1024]);
    let (mut at, mut found) = (shop.first, Vec::new());
    while !at.is_null() {
        let item = tx.read(at).unwrap();
        found.push((item.number, item.price));
        at = item.next;
    }
    let price = |number| 100 * number + u64::from(number == 7);
    let numbers = (0..10 + rounds).rev().filter(|number| *number != 6);
    assert_eq!(found, numbers.map(|number| (number, price(number))).collect::<Vec<_>>());
}

fn used_as_it_is(path: &Path, clean: bool) {
    for round in 0..4 {
        let store = Mvcc::open(path, &options()).unwrap();
        assert_eq!(store.recovery().was_clean(), if round == 0 { clean } else { round % 2 == 0 });
        check(&store, round);
        transact(&store, |tx| {
            let at = tx.root::<Shop>()?;
            tx.write(at)?.rounds += 1;
            let long = tx.read(at)?.long;
            tx.write(long)?.iter_mut().for_each(|word| *word += 1);
            push(tx, 10 + round)
        });
        let sums = transact(&store, |tx| Ok(tx.read(tx.root::<Shop>()?)?.sums));
        store.call::<Add>(&(sums, 1)).unwrap();
        check(&store, round + 1);
        if round % 2 == 1 { store.close().unwrap() } else { store.abandon() }
    }
}

#[test]
fn a_store_that_was_left_is_recovered_read_and_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let [path] = earlier(dir.path(), ["mvcc-left"], |[path]| {
        let store = make(path);
        let mut tx = store.begin(Isolation::Serializable).unwrap();
        push(&mut tx, 77).unwrap();
        std::mem::forget(tx);
        store.abandon();
    });
    used_as_it_is(&path, false);
}

#[test]
fn a_store_that_was_closed_is_read_and_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let [path] = earlier(dir.path(), ["mvcc-closed"], |[path]| make(path).close().unwrap());
    used_as_it_is(&path, true);
}
