//! From one layout to the next, with a crash in the middle of every batch.

use heap::{Heap, Options, Policy, Tx};
use pmem::{DomainChoice, PPtr, Persist};
use tx::{Batch, Engine, Evolving, Isolation, Typed, evolve};

use crate::support::{ATOMIC, memory, quiet};

mod v1 {
    use pmem::{PPtr, Persist};

    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    pub struct List {
        pub first: PPtr<Node>,
    }

    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    pub struct Node {
        pub value: u64,
        pub next: PPtr<Node>,
    }
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct List {
    first: PPtr<Node>,
    version: u64,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Node {
    value: u64,
    squared: u64,
    next: PPtr<Node>,
}

const NODES: u64 = 40;
const BATCH: u64 = 4;

fn begin(_: &mut Tx<'_>, _: PPtr<v1::List>) -> tx::Result<List> {
    Ok(List { first: PPtr::NULL, version: 2 })
}

fn step(tx: &mut Tx<'_>, at: &Evolving<v1::List, List>) -> tx::Result<Batch> {
    for moved in 0..BATCH {
        let old = tx.read(at.old)?.first;
        if old.is_null() {
            return Ok(if moved == 0 { Batch::Last } else { Batch::More(moved) });
        }
        let (after, first) = (tx.read(old)?.next, tx.read(at.new)?.first);
        tx.write(at.old)?.first = after;
        let new = tx.replace(old, |node| Node { value: node.value, squared: node.value * node.value, next: first })?;
        tx.write(at.new)?.first = new;
    }
    Ok(Batch::More(BATCH))
}

fn options(policy: Policy) -> Options {
    quiet(policy, DomainChoice::Emulated).bytes(1 << 20).slots(2)
}

fn made(dir: &tempfile::TempDir, policy: Policy) -> Heap {
    let heap = Heap::create(dir.path().join("p"), &options(policy)).unwrap();
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        let mut first = PPtr::NULL;
        for value in 0..NODES {
            first = tx.alloc(&v1::Node { value, next: first })?;
        }
        let list = tx.alloc(&v1::List { first })?;
        tx.set_root(list)
    })
    .unwrap();
    heap
}

fn check(heap: &Heap) {
    let tx = heap.begin(Isolation::Strict).unwrap();
    let list = *tx.read(tx.root::<List>().unwrap()).unwrap();
    let (mut at, mut value) = (list.first, 0);
    while !at.is_null() {
        let node = tx.read(at).unwrap();
        assert_eq!((list.version, node.value, node.squared), (2, value, value * value));
        (at, value) = (node.next, value + 1);
    }
    assert_eq!(value, NODES);
    drop(tx);
    assert_eq!(
        heap.live_blocks(|_, _| {}).unwrap().live_blocks,
        NODES + 2,
        "list, nodes and root: nothing is left over"
    );
}

/// The process "dies" in each batch: what it has stored is there, and is not taken back.
#[test]
fn a_crash_in_every_batch_is_gone_on_from() {
    for policy in ATOMIC {
        let dir = memory();
        made(&dir, policy).abandon();
        for survived in 0..NODES / BATCH {
            let heap = Heap::open(dir.path().join("p"), &options(policy)).unwrap();
            let mut batches = 0;
            let died = evolve(&heap, begin, |tx, at| {
                assert_eq!(at.done, (survived + batches) * BATCH, "{policy}");
                let batch = step(tx, at)?;
                batches += 1;
                if batches == 2 {
                    // As a crash leaves it: a copy of the file from the middle of the transaction.
                    std::fs::copy(dir.path().join("p"), dir.path().join("crashed")).unwrap();
                    return Err(tx.refuse("dies here"));
                }
                Ok(batch)
            });
            assert_eq!(died.is_err(), batches == 2, "{policy}: {died:?}");
            heap.abandon();
            std::fs::rename(dir.path().join("crashed"), dir.path().join("p")).unwrap();
        }
        let heap = Heap::open(dir.path().join("p"), &options(policy)).unwrap();
        assert!(
            matches!(heap.begin(Isolation::Strict).unwrap().root::<List>(), Err(tx::Error::Pool(_))),
            "not there yet"
        );
        assert_eq!(evolve(&heap, begin, step).unwrap(), 1, "{policy}: the end alone is left");
        check(&heap);
        assert_eq!(evolve(&heap, begin, step).unwrap(), 0, "{policy}");
        heap.close().unwrap();
    }
}

#[test]
fn a_pool_on_its_way_elsewhere_is_refused() {
    let dir = memory();
    let heap = made(&dir, Policy::InPlace);
    let stopped = evolve(&heap, begin, |tx, _| Err(tx.refuse("not yet")));
    assert!(matches!(stopped, Err(tx::Error::Aborted { .. })));
    let refused = |taken: tx::Result<u64>| match taken {
        Err(tx::Error::Pool(e @ pmem::Error::WrongLayout { .. })) => e.to_string(),
        other => panic!("{other:?}"),
    };
    // To another layout than was begun; from one that never was.
    let elsewhere = evolve(&heap, |_, _: PPtr<v1::List>| Ok(0u64), |_, _| Ok(Batch::Last));
    assert!(refused(elsewhere).contains("on its way from "));
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        let number = tx.alloc(&7u32)?;
        tx.set_root(number)
    })
    .unwrap();
    refused(evolve(&heap, begin, step));
    // A new pool has nothing to be brought over.
    let new = Heap::create(dir.path().join("new"), &options(Policy::Undo)).unwrap();
    assert_eq!(evolve(&new, begin, step).unwrap(), 0);
}
