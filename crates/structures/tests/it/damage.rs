//! Bytes that no structure wrote.

use pmem::PPtr;
use structures::{
    BTree, BTreeOptions, BTreeRoot, Graph, GraphOptions, HashMap, Map, SearchTree, SortedList, Structure,
};
use structures_testing::{Random, damage};
use tx::{Engine, Error, Isolation, Reference, Transaction, Typed};

use crate::support::{bst, list, map, small_map, small_tree, treap, tree, with};

fn fill(engine: &Reference, map: impl Map) {
    let mut random = Random(1);
    with(engine, |tx| (0..250).try_for_each(|_| map.put(tx, &random.key(), &random.bytes(60)).map(drop)));
}

#[test]
fn a_damaged_tree_is_an_error() {
    let engine = Reference::new();
    // All values in their leaves, so that every block is a node.
    let tree = tree(&engine, &BTreeOptions::new().key_max(300).inline_max(60));
    fill(&engine, tree);
    let noticed = damage(&engine, tree, 3, 400).unwrap();
    assert!(noticed > 150, "{noticed}");
}

#[test]
fn a_damaged_map_is_an_error() {
    let engine = Reference::new();
    let map = map(&engine, &small_map());
    fill(&engine, map);
    let noticed = damage(&engine, map, 3, 400).unwrap();
    assert!(noticed > 150, "{noticed}");
}

#[test]
fn a_damaged_chain_is_an_error() {
    let engine = Reference::new();
    let map = map(&engine, &small_map().fixed());
    fill(&engine, map);
    let noticed = damage(&engine, map, 3, 400).unwrap();
    assert!(noticed > 150, "{noticed}");
}

#[test]
fn a_damaged_list_is_an_error() {
    let engine = Reference::new();
    let list = list(&engine);
    fill(&engine, list);
    let noticed = damage(&engine, list, 3, 400).unwrap();
    assert!(noticed > 150, "{noticed}");
}

#[test]
fn damaged_search_trees_are_errors() {
    let engine = Reference::new();
    for tree in [treap(&engine), bst(&engine)] {
        fill(&engine, tree);
        let noticed = damage(&engine, tree, 3, 400).unwrap();
        assert!(noticed > 150, "{noticed}");
    }
}

/// Every word of a root block, set to every kind of nonsense: what opens must not do harm later.
#[test]
fn damaged_roots_do_not_open_or_do_no_harm() {
    let engine = Reference::new();
    let (map, tree) = (map(&engine, &small_map()), small_tree(&engine));
    fill(&engine, map);
    fill(&engine, tree);
    let mut random = Random(9);
    let mut refused = 0;
    let (list, treap) = (list(&engine), treap(&engine));
    fill(&engine, list);
    fill(&engine, treap);
    for round in 0..600 {
        let (root, words): (PPtr<u8>, u64) = match round % 4 {
            0 => (tree.root().cast(), 4),
            1 => (map.root().cast(), 67),
            2 => (list.root().cast(), 2),
            _ => (treap.root().cast(), 4),
        };
        let at = PPtr::new(root.tag(), root.offset() + 8 * random.below(words));
        let before = with(&engine, |tx| {
            let word: &mut u64 = tx.write(at)?;
            let before = *word;
            *word = if random.below(2) == 0 { before ^ 1 << random.below(64) } else { random.number() };
            Ok(before)
        });
        let mut tx = engine.begin(Isolation::Strict).unwrap();
        let outcome = match round % 4 {
            0 => BTree::open(&tx, tree.root()).and_then(|tree| use_it(&mut tx, tree)),
            1 => HashMap::open(&tx, map.root()).and_then(|map| use_it(&mut tx, map)),
            2 => SortedList::open(&tx, list.root()).and_then(|list| use_it(&mut tx, list)),
            _ => SearchTree::open(&tx, treap.root()).and_then(|treap| use_it(&mut tx, treap)),
        };
        refused += usize::from(outcome.is_err());
        tx.abort().unwrap();
        with(&engine, |tx| {
            *tx.write(at)? = before;
            Ok(())
        });
    }
    assert!(refused > 350, "{refused}");
}

fn use_it(tx: &mut impl Transaction, map: impl Map) -> tx::Result<()> {
    map.verify(tx)?;
    map.put(tx, b"new", b"value")?;
    map.delete(tx, b"user:1")?;
    Ok(())
}

#[test]
fn opening_something_else_is_refused() {
    let engine = Reference::new();
    let (map, tree) = (map(&engine, &small_map()), small_tree(&engine));
    let tx = engine.begin(Isolation::Strict).unwrap();
    let damaged = |e: Option<Error>| assert!(matches!(e, Some(Error::Damaged { .. })), "{e:?}");
    damaged(HashMap::open(&tx, tree.root().cast()).err());
    drop(tx);
    let (list, treap) = (list(&engine), treap(&engine));
    let tx = engine.begin(Isolation::Strict).unwrap();
    damaged(SortedList::open(&tx, treap.root().cast()).err());
    drop(tx);
    let tx = engine.begin(Isolation::Strict).unwrap();
    damaged(SearchTree::open(&tx, list.root().cast()).err());
    drop(tx);
    let tx = engine.begin(Isolation::Strict).unwrap();
    damaged(BTree::open(&tx, map.root().cast()).err());
    drop(tx);
    let tx = engine.begin(Isolation::Strict).unwrap();
    damaged(BTree::open(&tx, PPtr::NULL).err());
}

/// An error in the middle of a change dooms the transaction, even if the caller ignores it.
#[test]
fn half_a_change_never_commits() {
    let engine = Reference::new();
    let tree = small_tree(&engine);
    fill(&engine, tree);
    let mut tx = engine.begin(Isolation::Strict).unwrap();
    assert!(tree.put(&mut tx, &[0; 400], b"").is_err());
    assert!(tx.doom().is_some());
    assert!(matches!(tx.commit(), Err(Error::Doomed { .. })));
}

/// By the type of the root alone, whatever kind it is; and damage behind it is an error, not another structure.
#[test]
fn a_structure_is_found_by_its_root() {
    let engine = Reference::new();
    let (map, tree, list, treap) = (map(&engine, &small_map()), small_tree(&engine), list(&engine), treap(&engine));
    fill(&engine, map);
    fill(&engine, tree);
    fill(&engine, list);
    fill(&engine, treap);
    let graph = with(&engine, |tx| {
        let graph = Graph::create(tx, &GraphOptions::new())?;
        (0..9).try_for_each(|node| graph.add_node(tx, node).map(drop))?;
        Ok(graph)
    });
    let found = |engine: &Reference| {
        let tx = engine.begin(Isolation::Strict).unwrap();
        Structure::at_root(&tx)?.map(|found| Ok::<_, Error>((found.name(), found.verify(&tx)?))).transpose()
    };
    assert_eq!(found(&engine).unwrap(), None);
    let count = with(&engine, |tx| map.len(tx));
    with(&engine, |tx| tx.set_root(map.root()));
    assert_eq!(found(&engine).unwrap(), Some(("hash map", count)));
    with(&engine, |tx| tx.set_root(tree.root()));
    assert_eq!(found(&engine).unwrap(), Some(("B+tree", count)));
    with(&engine, |tx| tx.set_root(list.root()));
    assert_eq!(found(&engine).unwrap(), Some(("sorted list", count)));
    with(&engine, |tx| tx.set_root(treap.root()));
    assert_eq!(found(&engine).unwrap(), Some(("search tree", count)));
    with(&engine, |tx| tx.set_root(graph.root()));
    assert_eq!(found(&engine).unwrap(), Some(("graph", 9)));
    with(&engine, |tx| {
        let number = tx.alloc(&7u64)?;
        tx.set_root(number)
    });
    assert_eq!(found(&engine).unwrap(), None, "of another type");
    // A root that leads to a block of another kind.
    with(&engine, |tx| tx.set_root::<BTreeRoot>(list.root().cast()));
    assert!(matches!(found(&engine), Err(Error::Damaged { .. })));
    with(&engine, |tx| tx.set_root::<BTreeRoot>(PPtr::from_raw(8)));
    assert!(matches!(found(&engine), Err(Error::Damaged { .. })));
}
