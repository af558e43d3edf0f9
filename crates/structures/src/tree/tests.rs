//! Shapes, how much a change writes, and damage that single nodes cannot show.

use std::ops::ControlFlow;

use conformance::Rng;
use pmem::PPtr;
use tx::{Engine, Error, Isolation, Keys, Reference, Result, Typed};

use super::find::link_of;
use super::{LEFT, RIGHT, SearchTree, SearchTreeOptions};
use crate::Map;

fn with<R>(engine: &Reference, f: impl FnMut(&mut <Reference as Engine>::Tx<'_>) -> Result<R>) -> R {
    engine.transact(Isolation::Strict, f).unwrap()
}

fn tree(engine: &Reference, options: SearchTreeOptions, keys: impl IntoIterator<Item = u32>) -> SearchTree {
    let tree = with(engine, |tx| SearchTree::create(tx, &options));
    let keys: Vec<u32> = keys.into_iter().collect();
    with(engine, |tx| keys.iter().try_for_each(|n| tree.put(tx, &n.to_be_bytes(), &n.to_le_bytes()).map(drop)));
    tree
}

/// Keys by depth, in order: the shape of a tree.
fn shape(engine: &Reference, tree: SearchTree) -> Vec<(Vec<u8>, usize)> {
    let keys: Vec<Vec<u8>> = with(engine, |tx| {
        let mut keys = Vec::new();
        tree.for_each(tx, |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(keys)
    });
    let depth = |key: &[u8]| {
        let steps = std::cell::Cell::new(0);
        with(engine, |tx| {
            tree.find(tx, key, |_| {
                steps.set(steps.get() + 1);
                false
            })
            .map(drop)
        });
        steps.get()
    };
    keys.into_iter().map(|key| (key.clone(), depth(&key))).collect()
}

/// The keys decide the shape, not the order in which they came or what has gone.
#[test]
fn a_balanced_tree_has_one_shape() {
    let engine = Reference::new();
    let rising = tree(&engine, SearchTreeOptions::new(), 0..400);
    let falling = tree(&engine, SearchTreeOptions::new(), (0..600).rev());
    with(&engine, |tx| (400..600u32).try_for_each(|n| falling.delete(tx, &n.to_be_bytes()).map(|was| assert!(was))));
    assert_eq!(shape(&engine, rising), shape(&engine, falling));
    let other = tree(&engine, SearchTreeOptions::new().seed(1), 0..400);
    assert_ne!(shape(&engine, rising), shape(&engine, other));
}

#[test]
fn keys_in_order_make_a_list_or_a_tree() {
    let engine = Reference::new();
    let (list, treap) = (
        tree(&engine, SearchTreeOptions::new().unbalanced(), 0..2000),
        tree(&engine, SearchTreeOptions::new(), 0..2000),
    );
    let depths = with(&engine, |tx| Ok((list.verify(tx)?.depth, treap.verify(tx)?.depth)));
    // 1.4 log2 n is 15 on average; the deepest node is about twice as deep.
    assert!(depths.0 == 2001 && depths.1 < 35, "{depths:?}");
    let average = shape(&engine, treap).iter().map(|(_, depth)| depth).sum::<usize>() as f64 / 2000.0;
    assert!((10.0..18.0).contains(&average), "{average}");
}

/// Words beside the one that leads to the node: on average 0.6 for insert and delete.
#[test]
fn a_balanced_tree_writes_few_words() {
    let engine = Reference::new();
    let treap = tree(&engine, SearchTreeOptions::new(), []);
    let (mut inserts, mut deletes) = (0, 0);
    let key = |n: u64| Rng::seeded(n).draw().to_be_bytes();
    for n in 0..1000 {
        let key = key(n);
        with(&engine, |tx| {
            let own = treap.priority(&key);
            let spot = treap.find(tx, &key, |other| treap.priority(other) < own)?;
            inserts += treap.split(tx, spot.at, spot.between, &key)?.1.len();
            treap.put(tx, &key, b"").map(drop)
        });
    }
    for n in 0..1000 {
        with(&engine, |tx| {
            deletes += treap.words_of_delete(tx, &key(n))?.map_or(0, |(_, words)| words.len()) - 1;
            treap.delete(tx, &key(n)).map(drop)
        });
    }
    assert_eq!((inserts, deletes), (648, 583));
}

/// A tree of 50 keys, and the places of all nodes in order.
fn fifty(engine: &Reference, options: SearchTreeOptions) -> (SearchTree, Vec<PPtr<u8>>) {
    let tree = tree(engine, options, (0..50).map(|n| n * 7 % 50));
    let blocks = with(engine, |tx| tree.all_blocks(tx));
    (tree, blocks[1..].to_vec())
}

/// Every link of every node, set to every node: whatever is looked for comes back, and `verify` notices.
#[test]
fn links_that_lead_elsewhere_are_errors() {
    for options in [SearchTreeOptions::new(), SearchTreeOptions::new().unbalanced()] {
        let engine = Reference::new();
        let (tree, nodes) = fifty(&engine, options);
        for (from, to, side) in (0..50)
            .flat_map(|from| (0..50).map(move |to| (from, to)))
            .flat_map(|(from, to)| [(from, to, LEFT), (from, to, RIGHT)])
        {
            let slot = link_of(nodes[from], side);
            let before = with(&engine, |tx| Ok(std::mem::replace(tx.write(slot)?, nodes[to].offset())));
            if before != nodes[to].offset() {
                let begin = || engine.begin(Isolation::Strict).unwrap();
                let edge = format!("{from} {to} {side}");
                let verified = tree.verify(&begin());
                let lost = verified.as_ref().map_or(0, |report| 50 - report.entries);
                // A link past some nodes leaves a tree that has lost them.
                assert!(matches!(verified, Err(Error::Damaged { .. })) || lost > 0, "{edge}: {verified:?}");
                let scanned = tree.scan(&begin(), &Keys::all().reverse(), &mut |_, _| ControlFlow::Continue(()));
                assert!(matches!(scanned, Err(Error::Damaged { .. })) || lost > 0 || tree.balanced, "{edge}");
                for n in (0..50u32).step_by(7) {
                    let _ = tree.get(&begin(), &n.to_be_bytes());
                    let _ = tree.put(&mut begin(), &[&n.to_be_bytes()[..], b"new"].concat(), b"");
                    let _ = tree.delete(&mut begin(), &n.to_be_bytes());
                }
            }
            with(&engine, |tx| Ok(std::mem::replace(tx.write(slot)?, before)));
        }
        with(&engine, |tx| tree.verify(tx));
    }
}

/// Keys in order at the wrong heights: only priorities tell.
#[test]
fn a_shape_that_priorities_forbid_is_an_error() {
    let engine = Reference::new();
    let tree = tree(&engine, SearchTreeOptions::new().unbalanced(), 0..50);
    let root = tree.root();
    with(&engine, |tx| tree.verify(tx));
    with(&engine, |tx| Ok(std::mem::replace(&mut tx.write(root)?.balanced, 1)));
    let tx = engine.begin(Isolation::Strict).unwrap();
    let verified = SearchTree::open(&tx, root).and_then(|tree| tree.verify(&tx));
    assert!(matches!(verified, Err(Error::Damaged { .. })), "{verified:?}");
}
