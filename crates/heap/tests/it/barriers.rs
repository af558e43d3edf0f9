//! What a transaction costs, counted.

use heap::{Heap, Options, Policy};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Isolation, ToRange, Transaction, Typed};

type Object = [u64; 8];

fn heap(policy: Policy, objects: usize) -> (tempfile::TempDir, Heap, Vec<PPtr<Object>>) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().policy(policy).bytes(4 << 20).slots(8).coordinator(false);
    let options = options.pool(pmem::Options::new().domain(DomainChoice::Emulated));
    let heap = Heap::create(dir.path().join("p"), &options).unwrap();
    let made = heap
        .transact(Isolation::Strict, |tx| (0..objects).map(|_| tx.alloc(&[0; 8])).collect::<tx::Result<Vec<_>>>())
        .unwrap();
    heap.settle().unwrap();
    (dir, heap, made)
}

fn cost(heap: &Heap, transactions: u64, mut one: impl FnMut(u64)) -> f64 {
    let before = heap.pool().stats();
    (0..transactions).for_each(&mut one);
    (heap.pool().stats() - before).drains as f64 / transactions as f64
}

fn bump(heap: &Heap, object: PPtr<Object>) {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        tx.write(object)?[0] += 1;
        Ok(())
    })
    .unwrap();
}

#[test]
fn independent_transactions_in_place_cost_one_barrier() {
    let (_dir, heap, objects) = heap(Policy::InPlace, 1000);
    objects.iter().for_each(|&o| bump(&heap, o)); // zones marked, pipeline full
    let barriers = cost(&heap, 1000, |i| bump(&heap, objects[i as usize * 7 % 1000]));
    assert_eq!(barriers, 1.0);
}

#[test]
fn the_same_object_again_and_again_costs_two() {
    let (_dir, heap, objects) = heap(Policy::InPlace, 1);
    bump(&heap, objects[0]);
    assert_eq!(cost(&heap, 1000, |_| bump(&heap, objects[0])), 2.0);
}

#[test]
fn none_costs_one_and_undo_three() {
    let (_dir, none, objects) = heap(Policy::None, 100);
    assert_eq!(cost(&none, 100, |i| bump(&none, objects[i as usize])), 1.0);
    let (_dir, undo, objects) = heap(Policy::Undo, 100);
    assert_eq!(cost(&undo, 100, |i| bump(&undo, objects[i as usize])), 3.0);
    let four = cost(&undo, 100, |i| {
        undo.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let some: Vec<_> = (0..4).map(|k| objects[(i as usize + k * 20) % 100]).collect();
            tx.intend(&some.iter().map(|o| o.range()).collect::<Vec<_>>())?;
            some.iter().try_for_each(|&o| {
                let _: () = tx.write(o)?[0] += 1;
                Ok(())
            })
        })
        .unwrap();
    });
    assert_eq!(four, 3.0);
}

#[test]
fn reading_costs_none() {
    for policy in Policy::ALL {
        let (_dir, heap, objects) = heap(policy, 10);
        let read = cost(&heap, 100, |i| {
            heap.transact(Isolation::Strict, |tx| tx.read(objects[i as usize % 10]).copied()).unwrap();
        });
        assert_eq!(read, 0.0);
    }
}
