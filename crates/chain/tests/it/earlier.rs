//! Files of replicas in the format of 2026-11, of a head and of a member in the middle, left without closing them, are used as they are. Names of structs and fields are part of the
//! format: what fails here is a replica that can no longer be opened.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such files by this build, and write `earlier-*.txt` into that folder.

use std::path::Path;

use chain::{Body, Event, Medium, Message, Moment, Node, NodeTx, ReplicaId, Sizes, ViewId};
use pmem::{PPtr, Persist};
use structures::{BTree, BTreeOptions, BTreeRoot, Map};
use tx::{Engine, Isolation::Strict, Result, Typed};

use crate::fixture::earlier;
use crate::media::{arrives, id, start, view};

const SIZES: Sizes = Sizes { capacity: 64 << 10, queue: 32 << 10 };

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Shop {
    rounds: u64,
    first: PPtr<Item>,
    tree: PPtr<BTreeRoot>,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Item {
    number: u64,
    next: PPtr<Item>,
}

// ---- the head -------------------------------------------------------------------------------------------------------

fn open(path: &Path, starts: u64) -> Node {
    let (mut medium, found) = Medium::open(path).unwrap();
    assert_eq!((found.id, found.whole, medium.starts()), (id(1), true, Some(starts)));
    medium.set_starts(starts + 1).unwrap();
    Node::alone(medium, found).unwrap()
}

fn transact<R>(node: &Node, f: impl FnMut(&mut NodeTx<'_>) -> Result<R>) -> R {
    node.transact(Strict, f).unwrap()
}

fn add(tx: &mut NodeTx<'_>, number: u64) -> Result<()> {
    let at = tx.root::<Shop>()?;
    let Shop { first, tree, .. } = *tx.read(at)?;
    let item = tx.alloc(&Item { number, next: first })?;
    tx.write(at)?.first = item;
    let tree = BTree::open(tx, tree)?;
    assert!(!tree.put(tx, &number.to_be_bytes(), &vec![number as u8; number as usize])?);
    Ok(())
}

/// Items and pairs 0 to 9 without 6.
fn make(path: &Path) -> Node {
    Medium::create(path, id(1), true, SIZES).unwrap();
    let node = open(path, 0);
    transact(&node, |tx| {
        let tree = BTree::create(tx, &BTreeOptions::new().key_max(16).node_bytes(256, 256))?.root();
        let shop = tx.alloc(&Shop { rounds: 0, first: PPtr::NULL, tree })?;
        tx.set_root(shop)
    });
    for number in 0..10 {
        transact(&node, |tx| {
            add(tx, number)?;
            let Shop { first, tree, .. } = *tx.read(tx.root::<Shop>()?)?;
            let second = tx.read(first)?.next;
            if number == 7 {
                let third = tx.read(second)?.next;
                tx.free(second)?;
                tx.write(first)?.next = third;
                BTree::open(tx, tree)?.delete(tx, &6u64.to_be_bytes())?;
            }
            Ok(())
        });
    }
    node
}

fn check(node: &Node, rounds: u64) {
    transact(node, |tx| {
        let shop = *tx.read(tx.root::<Shop>()?)?;
        assert_eq!(shop.rounds, rounds);
        let (mut at, mut found) = (shop.first, Vec::new());
        while !at.is_null() {
            let item = tx.read(at)?;
            found.push(item.number);
            at = item.next;
        }
        let numbers: Vec<u64> = (0..10 + rounds).rev().filter(|&number| number != 6).collect();
        assert_eq!(found, numbers);
        let tree = BTree::open(tx, shop.tree)?;
        assert_eq!(tree.verify(tx)?.entries, numbers.len() as u64);
        for number in numbers {
            let value = vec![number as u8; number as usize];
            assert_eq!(tree.get(tx, &number.to_be_bytes())?, Some(&value[..]));
        }
        Ok(())
    });
}

fn used_as_it_is(path: &Path) {
    for round in 0..4 {
        let node = open(path, 1 + round);
        check(&node, round);
        transact(&node, |tx| {
            let at = tx.root::<Shop>()?;
            tx.write(at)?.rounds += 1;
            add(tx, 10 + round)
        });
        check(&node, round + 1);
    }
}

#[test]
fn a_head_that_was_left_goes_on() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let [path] = earlier(dir.path(), ["head-left"], |[path]| drop(make(path)));
    used_as_it_is(&path);
}

// ---- a member in the middle -----------------------------------------------------------------------------------------

const MIDDLE: ReplicaId = ReplicaId { machine: 2, incarnation: 0 };

/// Records 1 to 26 have arrived, of which the first 12 are done with.
#[test]
fn a_queue_in_the_middle_that_was_left_is_carried_out_and_goes_on() {
    let (dir, members) = (tempfile::tempdir_in("/dev/shm").unwrap(), view(&[1, 2, 3]));
    let [path] = earlier(dir.path(), ["middle-left"], |[path]| {
        Medium::create(path, MIDDLE, true, SIZES).unwrap();
        let mut driven = start(path, &members);
        arrives(&mut driven, 1..=20);
        let clean_up = Message { view: ViewId(1), from: id(3), to: MIDDLE, body: Body::CleanUp(12) };
        driven.event(Moment(3), Event::Message(clean_up)).unwrap();
        // The barrier of the first takes the effects along, that of the second the note.
        arrives(&mut driven, 21..=25);
        arrives(&mut driven, 26..=26);
    });
    for n in 27..31 {
        let (medium, found) = Medium::open(&path).unwrap();
        assert_eq!((found.id, found.retired, found.entries.len() as u64), (MIDDLE, 12, n - 13));
        drop(medium);
        let mut driven = start(&path, &members);
        assert_eq!((driven.replica().progress().executed, driven.medium().heap().unwrap()[64]), (n - 1, n as u8 - 1));
        arrives(&mut driven, n..=n);
        assert_eq!(driven.medium().heap().unwrap()[64], n as u8);
    }
}
