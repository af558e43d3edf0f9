//! What records cost, and leave, on files.

use chain::{
    Body, Command, Driven, Entry, Event, Medium, Message, Mode, Moment, Node, Number, Object, Record, ReplicaId, Sizes,
    View, ViewId,
};
use structures::{BTree, BTreeOptions, KvMap};
use tx::{Engine, Isolation::Strict, Kv, KvTx, Transaction, Typed};

const SIZES: Sizes = Sizes { capacity: 1 << 20, queue: 1 << 20 };

pub(crate) fn id(machine: u32) -> ReplicaId {
    ReplicaId { machine, incarnation: 0 }
}

pub(crate) fn view(machines: &[u32]) -> View {
    View { id: ViewId(1), members: machines.iter().map(|&machine| id(machine)).collect(), f: 2, mode: Mode::Values }
}

/// Of the root cell.
fn record(n: u64) -> Record {
    let mut bytes = 64u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(&8u32.to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    bytes.extend_from_slice(&n.to_le_bytes());
    Record { entry: Entry { number: Number { view: ViewId(1), n }, objects: vec![Object(64)] }, bytes }
}

pub(crate) fn start(path: &std::path::Path, view: &View) -> Driven {
    let (medium, found) = Medium::open(path).unwrap();
    let (mut driven, asked) = Driven::start(medium, found).unwrap();
    assert_eq!(asked, [Command::FetchView]);
    driven.event(Moment(1), Event::View(view.clone())).unwrap();
    driven.event(Moment(1), Event::LeasesEnded(view.id)).unwrap();
    driven
}

/// A message of so many records, from the member before.
pub(crate) fn arrives(driven: &mut Driven, numbers: std::ops::RangeInclusive<u64>) -> Vec<Command> {
    let (to, from) = (driven.replica().id(), id(driven.replica().id().machine - 1));
    let body = Body::Records(numbers.map(record).collect());
    driven.event(Moment(2), Event::Message(Message { view: ViewId(1), from, to, body })).unwrap()
}

#[test]
fn a_replica_closes_its_file() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("one");
    Medium::create(&path, id(1), true, SIZES).unwrap();
    for round in 0..3_u8 {
        let (medium, found) = Medium::open(&path).unwrap();
        let node = Node::alone(medium, found).unwrap();
        if round > 0 {
            let last = node.transact(Strict, |tx| tx.read(tx.root::<u8>()?).copied()).unwrap();
            assert_eq!(last, round - 1);
        }
        node.transact(Strict, |tx| {
            let root = tx.alloc(&round)?;
            tx.set_root(root)
        })
        .unwrap();
        node.close().unwrap();
        pmem::Options::new().open_read_only(&path).unwrap(); // nothing is left to recover
    }
}

#[test]
fn a_batch_costs_a_replica_one_barrier() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for (machine, what) in [(2, "in the middle"), (3, "the tail")] {
        let path = dir.path().join(what);
        Medium::create(&path, id(machine), true, SIZES).unwrap();
        let mut driven = start(&path, &view(&[1, 2, 3]));
        for (first, last) in [(1, 1), (2, 33), (34, 40)] {
            let before = driven.medium().stats();
            let said = arrives(&mut driven, first..=last);
            assert_eq!((driven.medium().stats() - before).drains, 1, "{what}: {last}");
            assert_eq!(driven.replica().progress().executed, last, "{what}");
            let forwards = said.iter().any(|command| matches!(command, Command::Ship { .. }));
            assert_eq!(forwards, machine == 2, "{what}: {said:?}");
        }
        assert_eq!(driven.medium().heap().unwrap()[64], 40, "{what}");
    }
}

#[test]
fn what_comes_last_becomes_persistent_with_a_tick() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("r");
    Medium::create(&path, id(2), true, SIZES).unwrap();
    let mut driven = start(&path, &view(&[1, 2, 3]));
    arrives(&mut driven, 1..=9);
    for expected in [1, 0] {
        let before = driven.medium().stats();
        driven.event(Moment(3), Event::Tick).unwrap();
        assert_eq!((driven.medium().stats() - before).drains, expected);
    }
}

#[test]
fn a_transaction_costs_the_head_three_barriers() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("r");
    Medium::create(&path, id(1), true, SIZES).unwrap();
    let (medium, found) = Medium::open(&path).unwrap();
    let node = Node::alone(medium, found).unwrap();
    for _ in 0..3 {
        let before = node.stats();
        node.transact(Strict, |tx| tx.write(tx.root_cell()).map(|cell| cell[0] += 1)).unwrap();
        assert_eq!((node.stats() - before).drains, 3);
        // One that only reads, and one that is rolled back, cost none.
        node.transact(Strict, |tx| tx.read(tx.root_cell()).copied()).unwrap();
        let mut aborted = node.begin(Strict).unwrap();
        aborted.alloc(&7u64).unwrap();
        aborted.abort().unwrap();
        assert_eq!((node.stats() - before).drains, 3);
    }
}

#[test]
fn a_queue_is_carried_out_over_the_image_after_a_restart() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("r");
    Medium::create(&path, id(2), true, SIZES).unwrap();
    let mut driven = start(&path, &view(&[1, 2, 3]));
    arrives(&mut driven, 1..=20);
    let clean_up = Message { view: ViewId(1), from: id(3), to: id(2), body: Body::CleanUp(12) };
    driven.event(Moment(3), Event::Message(clean_up)).unwrap();
    arrives(&mut driven, 21..=25); // its barrier takes the effects of the first twenty along, and the next one the note
    arrives(&mut driven, 26..=26);
    drop(driven);
    let (medium, found) = Medium::open(&path).unwrap();
    assert_eq!((found.retired, found.entries.len()), (12, 14));
    drop(medium);
    let driven = start(&path, &view(&[1, 2, 3]));
    assert_eq!(driven.replica().progress().executed, 26);
    assert_eq!(driven.medium().heap().unwrap()[64], 26);
}

#[test]
fn a_queue_goes_round_for_ever() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("r");
    Medium::create(&path, id(2), true, Sizes { capacity: 64 << 10, queue: 64 << 10 }).unwrap();
    let mut driven = start(&path, &view(&[1, 2, 3]));
    for n in 1..3000 {
        arrives(&mut driven, n..=n);
        let clean_up = Message { view: ViewId(1), from: id(3), to: id(2), body: Body::CleanUp(n) };
        driven.event(Moment(3), Event::Message(clean_up)).unwrap();
    }
    assert!(driven.replica().progress().retired >= 2997);
}

/// What the head does is what its records say: they make the same heap elsewhere, to the byte.
#[test]
fn a_tree_at_the_head_is_the_same_tree_on_the_tail() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, other) = (dir.path().join("head"), dir.path().join("other"));
    Medium::create(&path, id(1), true, SIZES).unwrap();
    let (medium, found) = Medium::open(&path).unwrap();
    let node = Node::alone(medium, found).unwrap();
    let map = node.transact(Strict, |tx| BTree::create(tx, &BTreeOptions::new())).unwrap();
    let map = KvMap::new(&node, map);
    let key = |n: u64| (n * 7919 % 1000).to_be_bytes();
    for n in 0..500u64 {
        map.transact(Strict, |tx| tx.put(&key(n), &n.to_le_bytes())).unwrap();
    }
    for n in 0..200u64 {
        map.transact(Strict, |tx| tx.delete(&key(n))).unwrap();
    }
    let seen = map.transact(Strict, |tx| -> tx::Result<_> { Ok(tx.get(&key(300))?.map(<[u8]>::to_vec)) }).unwrap();
    assert_eq!(seen, Some(300u64.to_le_bytes().to_vec()));
    let heap = node.heap().unwrap();
    drop(node);

    let (medium, _) = Medium::open(&path).unwrap();
    let (copy, last) = medium.part(0).unwrap();
    assert!(last);
    Medium::create(&other, id(2), false, SIZES).unwrap();
    let (mut medium, _) = Medium::open(&other).unwrap();
    medium.carry_out(Command::Erase).unwrap();
    medium.carry_out(Command::Restore(copy)).unwrap();
    medium.barrier().unwrap();
    assert!(medium.heap().unwrap() == heap);
}

#[test]
fn a_head_that_is_opened_again_goes_on() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("head");
    Medium::create(&path, id(1), true, SIZES).unwrap();
    for round in 0..20u64 {
        let (medium, found) = Medium::open(&path).unwrap();
        let node = Node::alone(medium, found).unwrap();
        let count = node.transact(Strict, |tx| -> tx::Result<u64> {
            let cell = tx.root_cell();
            let made = tx.alloc(&round)?;
            let [count, last] = *tx.read(cell)?;
            if last != 0 {
                assert_eq!(*tx.read(pmem::PPtr::<u64>::from_raw(last))?, round - 1);
            }
            *tx.write(cell)? = [count + 1, made.raw()];
            Ok(count)
        });
        assert_eq!(count.unwrap(), round);
    }
}
