//! Heaps in the format of 2026-11, of every policy, left with a transaction under way and closed, are used as they are. Names of structs and fields are part of the format: what fails here
//! is a heap that can no longer be opened.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such heaps by this build, and write `earlier-*.txt` into that folder.

use std::path::Path;

use heap::{Heap, Options, Policy, Tx};
use pmem::{DomainChoice, HeapOptions, PPtr, Persist};
use tx::{Engine, Isolation, Result, Transaction, Typed};

use crate::fixture::earlier;
use crate::support::{memory, quiet};

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Shop {
    rounds: u64,
    first: PPtr<Item>,
    long: PPtr<Long>,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Item {
    number: u64,
    price: u64,
    next: PPtr<Item>,
}

/// Longer than what a checksum of one piece is over.
type Long = [u64; 320];

fn options(policy: Policy) -> Options {
    let blocks = HeapOptions::chunk_bytes(4096).unwrap();
    let options = quiet(policy, DomainChoice::Emulated).bytes(64 << 10).slots(2).log_bytes(8192).zone_bytes(4096);
    let options = options.blocks(blocks);
    if policy == Policy::InPlacePartial { options.alpha(0.25) } else { options }
}

fn transact<R>(heap: &Heap, f: impl FnMut(&mut Tx<'_>) -> Result<R>) -> R {
    heap.transact(Isolation::Strict, f).unwrap()
}

fn push(tx: &mut Tx<'_>, number: u64) -> Result<()> {
    let shop = tx.root::<Shop>()?;
    let next = tx.read(shop)?.first;
    let item = tx.alloc(&Item { number, price: 100 * number, next })?;
    tx.write(shop)?.first = item;
    Ok(())
}

/// Applied: items 0 to 7 without 6. In the logs, where there are any: a longer list, a new price, a long object that was changed, and then overwritten unseen.
fn make(path: &Path, policy: Policy) -> Heap {
    let heap = Heap::create(path, &options(policy)).unwrap();
    transact(&heap, |tx| {
        let long = tx.alloc(&[1; 320])?;
        let shop = tx.alloc(&Shop { rounds: 0, first: PPtr::NULL, long })?;
        tx.set_root(shop)?;
        (0..8).try_for_each(|number| push(tx, number))
    });
    let shop = transact(&heap, |tx| tx.read(tx.root::<Shop>()?).copied());
    transact(&heap, |tx| {
        let seven = *tx.read(shop.first)?;
        let six = *tx.read(seven.next)?;
        tx.free(seven.next)?;
        tx.write(shop.first)?.next = six.next;
        Ok(())
    });
    heap.apply_pending().unwrap();

    transact(&heap, |tx| (8..10).try_for_each(|number| push(tx, number)));
    transact(&heap, |tx| tx.write(shop.first).map(|seven| seven.price += 1));
    transact(&heap, |tx| tx.write(shop.long).map(|long| *long = [9; 320]));
    transact(&heap, |tx| tx.put_bytes(shop.long.cast(), pmem::bytes_of(&[2u64; 320])));
    heap
}

/// Holds what `make` has made, and what so many rounds have added.
fn check(heap: &Heap, rounds: u64) {
    let tx = heap.begin(Isolation::Strict).unwrap();
    let shop = *tx.read(tx.root::<Shop>().unwrap()).unwrap();
    assert_eq!(shop.rounds, rounds);
    assert_eq!(*tx.read(shop.long).unwrap(), [2 + rounds; 320]);
    let (mut at, mut found) = (shop.first, Vec::new());
    while !at.is_null() {
        let item = tx.read(at).unwrap();
        found.push((item.number, item.price));
        at = item.next;
    }
    let price = |number| 100 * number + u64::from(number == 7);
    let numbers = (0..10 + rounds).rev().filter(|number| *number != 6);
    assert_eq!(found, numbers.map(|number| (number, price(number))).collect::<Vec<_>>());
    drop(tx);
    let (_, unclear) = heap.compare_all().unwrap();
    assert!(unclear.is_empty(), "{unclear:?}");
}

fn used_as_it_is(path: &Path, policy: Policy, clean: bool) {
    for round in 0..4 {
        let heap = Heap::open(path, &Options::new().coordinator(false)).unwrap();
        assert_eq!(heap.policy(), policy);
        assert_eq!(heap.pool().was_clean(), if round == 0 { clean } else { round % 2 == 0 }, "{policy}, {round}");
        check(&heap, round);
        transact(&heap, |tx| {
            let at = tx.root::<Shop>()?;
            tx.write(at)?.rounds += 1;
            let long = tx.read(at)?.long;
            tx.write(long)?.iter_mut().for_each(|word| *word += 1);
            push(tx, 10 + round)
        });
        check(&heap, round + 1);
        // The root's block, the shop, the long object, and the items: nothing of what had not ended.
        assert_eq!(heap.live_blocks(|_, _| ()).unwrap().live_blocks, 3 + 9 + round + 1, "{policy}, {round}");
        if round % 2 == 1 { heap.close().unwrap() } else { heap.abandon() }
    }
}

#[test]
fn heaps_that_were_left_are_recovered_read_and_written() {
    for policy in Policy::ALL {
        let dir = memory();
        let [path] = earlier(dir.path(), [&format!("{policy}-left")], |[path]| {
            let heap = make(path, policy);
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            if policy != Policy::None {
                push(&mut tx, 77).unwrap();
                let shop = *tx.read(tx.root::<Shop>().unwrap()).unwrap();
                tx.write(shop.long).unwrap().fill(77);
            }
            std::mem::forget(tx);
            heap.abandon();
        });
        used_as_it_is(&path, policy, false);
    }
}

#[test]
fn heaps_that_were_closed_are_read_and_written() {
    for policy in Policy::ALL {
        let dir = memory();
        let [path] = earlier(dir.path(), [&format!("{policy}-closed")], |[path]| make(path, policy).close().unwrap());
        used_as_it_is(&path, policy, true);
    }
}
