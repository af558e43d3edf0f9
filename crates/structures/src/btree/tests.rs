//! Damage that single nodes cannot show.

use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Engine, Error, Isolation, Keys, Reference, Result, Typed};

use super::{BTree, BTreeOptions};
use crate::Map;
use crate::media::behind;

fn with<R>(engine: &Reference, f: impl FnMut(&mut <Reference as Engine>::Tx<'_>) -> Result<R>) -> R {
    engine.transact(Isolation::Strict, f).unwrap()
}

/// A tree of two levels, and where its top node keeps its children.
fn two_levels(engine: &Reference) -> (BTree, Vec<PPtr<u64>>) {
    let tree = with(engine, |tx| BTree::create(tx, &BTreeOptions::new().key_max(16).node_bytes(256, 512)));
    with(engine, |tx| (0..100u8).try_for_each(|n| tree.put(tx, &[n], b"value").map(drop)));
    let children = with(engine, |tx| {
        let node = tree.top_node(tx)?;
        assert_eq!(node.header.level, 1);
        let slots = (0..node.count()).map(|index| node.slot(index).unwrap());
        let ends = slots.map(|slot| u64::from(slot.at + slot.key_len));
        Ok(std::iter::once(16).chain(ends).map(|at| behind(tree.top, at)).collect())
    });
    (tree, children)
}

fn bytes(pointer: PPtr<u64>) -> PPtr<[u8; 8]> {
    pointer.cast() // records begin at any byte
}

#[test]
fn a_leaf_that_is_reached_twice_is_an_error() {
    let engine = Reference::new();
    let (tree, children) = two_levels(&engine);
    with(&engine, |tx| {
        let second = *tx.read(bytes(children[1]))?;
        *tx.write(bytes(children[3]))? = second;
        Ok(())
    });
    let damaged = |result: Result<()>| assert!(matches!(result, Err(Error::Damaged { .. })), "{result:?}");
    for keys in [Keys::all(), Keys::all().reverse()] {
        let tx = engine.begin(Isolation::Strict).unwrap();
        damaged(tree.scan(&tx, &keys, &mut |_, _| ControlFlow::Continue(())));
    }
    damaged(tree.verify(&engine.begin(Isolation::Strict).unwrap()).map(drop));
    damaged(tree.len(&engine.begin(Isolation::Strict).unwrap()).map(drop));
}

#[test]
fn a_node_that_leads_to_itself_is_an_error() {
    let engine = Reference::new();
    let (tree, children) = two_levels(&engine);
    with(&engine, |tx| {
        *tx.write(bytes(children[2]))? = tree.top.raw().to_le_bytes();
        Ok(())
    });
    for n in 0..100u8 {
        let mut tx = engine.begin(Isolation::Strict).unwrap();
        let _ = tree.get(&tx, &[n]).map(drop);
        let _ = tree.put(&mut tx, &[n, n], b"value");
    }
    let scan =
        tree.scan(&engine.begin(Isolation::Strict).unwrap(), &Keys::all(), &mut |_, _| ControlFlow::Continue(()));
    assert!(matches!(scan, Err(Error::Damaged { .. })), "{scan:?}");
}

#[test]
fn nodes_as_large_as_they_get_hold_the_longest_keys() {
    let engine = Reference::new();
    let options = BTreeOptions::new().key_max(15 << 10).inline_max(500);
    let tree = with(&engine, |tx| BTree::create(tx, &options));
    let key = |n: u8| [vec![7; (15 << 10) - 1], vec![n]].concat();
    with(&engine, |tx| (0..40u8).rev().try_for_each(|n| tree.put(tx, &key(n), &[n; 500]).map(drop)));
    let report = with(&engine, |tx| tree.verify(tx));
    assert_eq!(report.entries, 40);
    with(&engine, |tx| (0..40u8).try_for_each(|n| tree.delete(tx, &key(n)).map(|was| assert!(was))));
    let too_long = BTree::create(&mut engine.begin(Isolation::Strict).unwrap(), &options.key_max(u32::MAX));
    assert!(matches!(too_long, Err(Error::Limit { .. })), "{too_long:?}");
}
