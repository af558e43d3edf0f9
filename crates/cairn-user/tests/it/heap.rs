//! A list of one's own in a heap.

use std::error::Error;

use cairn::prelude::*;
use cairn::{Heap, HeapOptions};

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Node {
    value: u64,
    next: PPtr<Node>,
}

/// Where all is found again.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct List {
    first: PPtr<Node>,
    len: u64,
}

fn begin(heap: &Heap) -> tx::Result<()> {
    heap.transact(Serializable, |tx| {
        let list = tx.alloc(&List { first: PPtr::NULL, len: 0 })?;
        tx.set_root(list)
    })
}

fn push(heap: &Heap, value: u64) -> tx::Result<()> {
    heap.transact(Serializable, |tx| {
        let root = tx.root::<List>()?;
        let next = tx.read(root)?.first;
        let node = tx.alloc(&Node { value, next })?;
        let list = tx.write(root)?;
        list.first = node;
        list.len += 1;
        Ok(())
    })
}

fn pop(heap: &Heap) -> tx::Result<Option<u64>> {
    heap.transact(Serializable, |tx| {
        let root = tx.root::<List>()?;
        let first = tx.read(root)?.first;
        if first.is_null() {
            return Ok(None);
        }
        let Node { value, next } = *tx.read(first)?;
        let list = tx.write(root)?;
        list.first = next;
        list.len -= 1;
        tx.free(first)?;
        Ok(Some(value))
    })
}

fn values(heap: &Heap) -> tx::Result<Vec<u64>> {
    heap.transact(Serializable, |tx| {
        let mut values = Vec::new();
        let mut at = tx.read(tx.root::<List>()?)?.first;
        while !at.is_null() {
            let node = tx.read(at)?;
            values.push(node.value);
            at = node.next;
        }
        Ok(values)
    })
}

#[test]
fn a_list_is_there_again() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("list.cairn");
    let options = HeapOptions::new().bytes(1 << 20);
    let heap = Heap::open_or_create(&path, &options)?;
    begin(&heap)?;
    for value in 1..=5 {
        push(&heap, value)?;
    }
    assert_eq!(pop(&heap)?, Some(5));
    drop(heap); // closes it

    let heap = Heap::open_or_create(&path, &options)?;
    assert!(heap.recovery().was_clean());
    assert_eq!(values(&heap)?, [4, 3, 2, 1]);
    for value in [Some(4), Some(3), Some(2), Some(1), None] {
        assert_eq!(pop(&heap)?, value);
    }
    assert!(Heap::create(&path, &options).is_err(), "there is one");
    Ok(())
}
