//! Three nodes in one process, whose messages are delivered at once: writers at the head, readers at the tail.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use chain::{Command, Error, Event, Medium, Message, Moment, Node, NodeTx, Outside, ReplicaId, Sizes, Stage, ViewId};
use pmem::PPtr;
use structures::{BTree, BTreeOptions, BTreeRoot, HashMap, HashMapOptions, HashRoot, Map as _};
use tx::{Engine as _, Isolation::Strict, RetryPolicy, Transaction as _, Typed as _};

use crate::media::{id, view};

const SIZES: Sizes = Sizes { capacity: 4 << 20, queue: 1 << 20 };
const KEYS: u64 = 60;
/// Transactions of the writer.
const COUNT: u64 = 400;
/// The writer waits at each of these until a reader has got so far.
const MEET: u64 = 20;

type Nodes = Vec<Arc<Node>>;

/// Views are a test's to tell; messages go to the node that they name.
#[derive(Default)]
struct Direct(Arc<OnceLock<Vec<Weak<Node>>>>);

impl Outside for Direct {
    fn send(&self, message: Message) {
        let to = self.0.get().and_then(|nodes| nodes[message.to.machine as usize - 1].upgrade());
        if let Some(to) = to {
            drop(to.deliver(message)); // one that has ended takes none
        }
    }

    fn ask(&self, _: Command) {}
}

/// Ends the nodes' threads, also when an assertion fails.
struct Ends<'n>(&'n Nodes);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|node| node.end());
    }
}

/// Ends the readers.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs `f` beside three nodes that serve: head, middle, tail.
fn with_chain(f: impl FnOnce(&Nodes)) {
    let (dir, all) = (tempfile::tempdir_in("/dev/shm").unwrap(), Arc::default());
    let start = |id: ReplicaId| {
        let path = dir.path().join(id.machine.to_string());
        Medium::create(&path, id, true, SIZES).unwrap();
        let (medium, found) = Medium::open(&path).unwrap();
        Arc::new(Node::start(medium, found, Arc::new(Direct(Arc::clone(&all)))))
    };
    let nodes: Nodes = (1..=3).map(|machine| start(id(machine))).collect();
    all.set(nodes.iter().map(Arc::downgrade).collect()).unwrap();
    std::thread::scope(|threads| {
        let _ends = Ends(&nodes);
        for node in &nodes {
            threads.spawn(|| node.drive(Duration::from_millis(5)));
        }
        for node in &nodes {
            node.event(Event::View(view(&[1, 2, 3]))).unwrap();
            eventually("it serves", || node.status().stage == Stage::Serving);
            node.event(Event::Lease { id: node.status().id, until: Moment(u64::MAX) }).unwrap();
            node.event(Event::LeasesEnded(ViewId(1))).unwrap();
        }
        f(&nodes);
    });
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for other threads")]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "not in time: {what}");
        std::thread::yield_now();
    }
}

/// A tree, a hash map, and a number that says what both have.
#[derive(Clone, Copy)]
struct Tables {
    tree: BTree,
    map: HashMap,
    count: PPtr<[u64; 2]>,
}

impl Tables {
    fn create(tx: &mut NodeTx<'_>) -> tx::Result<()> {
        let tree = BTree::create(tx, &BTreeOptions::new())?.root().raw();
        // So small that it grows while it is read.
        let map = HashMap::create(tx, &HashMapOptions::new().capacity(4))?.root().raw();
        let count = tx.alloc(&[0u64; 2])?.raw();
        let table = tx.alloc(&[tree, map, count])?;
        tx.set_root(table)
    }

    fn open(tx: &NodeTx<'_>) -> tx::Result<Self> {
        let [tree, map, count] = *tx.read(tx.root::<[u64; 3]>()?)?;
        Ok(Self {
            tree: BTree::open(tx, PPtr::<BTreeRoot>::from_raw(tree))?,
            map: HashMap::open(tx, PPtr::<HashRoot>::from_raw(map))?,
            count: PPtr::from_raw(count),
        })
    }
}

/// What transaction `n` sets, and removes.
fn change(n: u64) -> (u64, u64) {
    (n * 7919 % KEYS, n * 31 % KEYS)
}

/// What is there after each transaction.
fn states() -> Vec<BTreeMap<u64, u64>> {
    let mut all = vec![BTreeMap::new()];
    for n in 1..=COUNT {
        let (mut next, (sets, removes)) = (all[n as usize - 1].clone(), change(n));
        next.remove(&removes);
        next.insert(sets, n);
        all.push(next);
    }
    all
}

fn write(node: &Node, n: u64) {
    let written: tx::Result<()> = node.transact(Strict, |tx| {
        let Tables { tree, map, count } = Tables::open(tx)?;
        let (sets, removes) = change(n);
        for key in [removes, sets].map(u64::to_be_bytes) {
            tree.delete(tx, &key)?;
            map.delete(tx, &key)?;
        }
        // Of different lengths, so that blocks are freed and used again.
        let value = [n.to_le_bytes().as_slice(), &vec![7; (n % 5 * 40) as usize]].concat();
        tree.put(tx, &sets.to_be_bytes(), &value)?;
        map.put(tx, &sets.to_be_bytes(), &value)?;
        *tx.write(count)? = [n, n];
        Ok(())
    });
    written.unwrap();
}

/// Everything that there is, which must be what one transaction has left; its number. None: it was overtaken again and again.
fn look(node: &Node, states: &[BTreeMap<u64, u64>]) -> Option<u64> {
    let policy = RetryPolicy::default().deadline(Duration::from_millis(200));
    let seen = node.transact_with(Strict, policy, |tx| -> tx::Result<_> {
        let Tables { tree, map, count } = Tables::open(tx)?;
        let [first, second] = *tx.read(count)?;
        let (mut ordered, mut hashed) = (BTreeMap::new(), BTreeMap::new());
        for (to, is_tree) in [(&mut ordered, true), (&mut hashed, false)] {
            let visit = |key: &[u8], value: &[u8]| {
                to.insert(
                    u64::from_be_bytes(*key.first_chunk().unwrap()),
                    u64::from_le_bytes(*value.first_chunk().unwrap()),
                );
                ControlFlow::Continue(())
            };
            if is_tree { tree.for_each(tx, visit)? } else { map.for_each(tx, visit)? }
        }
        Ok((first, second, ordered, hashed))
    });
    match seen {
        Ok((first, second, ordered, hashed)) => {
            assert_eq!(first, second);
            assert_eq!(ordered, states[first as usize], "the tree after transaction {first}");
            assert_eq!(hashed, states[first as usize], "the map after transaction {first}");
            Some(first)
        }
        Err(tx::Error::GaveUp { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A look at the tail sees a whole state, which is no older than what was acknowledged, or seen by another reader, when it began; and none that was not yet begun.
#[test]
fn readers_at_the_tail_see_whole_and_current_states() {
    let states = states();
    with_chain(|nodes| {
        let [head, middle, tail] = &nodes[..] else { panic!() };
        head.transact(Strict, Tables::create).unwrap();
        let (begun, floor, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|threads| {
            for node in [tail, tail, head] {
                let (begun, floor, stop, states) = (&begun, &floor, &stop, &states);
                threads.spawn(move || {
                    while !stop.load(SeqCst) && floor.load(SeqCst) < COUNT {
                        let least = floor.load(SeqCst);
                        let Some(seen) = look(node, states) else { continue };
                        assert!(seen >= least, "{seen} is stale: {least} was acknowledged, or seen");
                        assert!(seen <= begun.load(SeqCst), "{seen} was not begun");
                        floor.fetch_max(seen, SeqCst);
                    }
                });
            }
            // They end, too, when an assertion fails here.
            let _stops = Stops(&stop);
            for n in 1..=COUNT {
                begun.store(n, SeqCst);
                write(head, n);
                if n % MEET == 0 {
                    eventually("a look at the tail ends", || look(tail, &states) == Some(n));
                }
                floor.fetch_max(n, SeqCst);
            }
        });
        for node in [head, tail] {
            assert_eq!(look(node, &states), Some(COUNT));
        }
        let error = middle.transact(Strict, |tx| tx.read(tx.root_cell()).copied()).unwrap_err();
        let tx::Error::Engine { source, .. } = &error else { panic!("{error}") };
        assert!(matches!(source.downcast_ref(), Some(Error::NotHead)), "{error}");
        assert!(tail.status().reads && head.status().reads && !middle.status().reads);
    });
}
