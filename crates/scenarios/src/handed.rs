//! Objects that go from engine to engine, in their pool: transactions on a heap and on a store with versions, and in between each takes the objects over from the other one. After a crash anywhere one
//! of the two has them, the old one or the new one, all of them as they were acknowledged; the other one has nothing.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use heap::{Heap, Policy};
use mvcc::Mvcc;
use pmem::{HeapOptions, PPtr, Pool};
use tx::{Engine, Isolation::Strict, Transaction, Typed};

/// One thread.
pub struct Handed {
    name: &'static str,
    script: Option<Vec<Op>>,
}

/// What has the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engines {
    /// A heap.
    Heap(Policy),
    /// A store with several versions of each.
    Versions,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A transaction.
    Commit,
    /// One that changes its mind.
    Abort,
    /// The other engine takes the objects over: a heap with this policy, if it is one.
    HandOver(Policy),
    /// Drop everything and open again.
    Restart,
    /// Close it, and open it again.
    Close,
}

enum Store {
    Heap(Box<Heap>),
    Versions(Box<Mvcc>),
}

/// `$do` with whichever it is.
macro_rules! on {
    ($store:expr, $engine:ident => $do:expr) => {
        match $store {
            Store::Heap($engine) => $do,
            Store::Versions($engine) => $do,
        }
    };
}

/// The program.
pub struct Live {
    sim: Arc<Sim>,
    /// The number of the last transaction.
    state: Mutex<(Option<Store>, u64)>,
}

impl Handed {
    /// Draws what happens.
    pub const fn new(name: &'static str) -> Self {
        Self { name, script: None }
    }

    /// Exactly this.
    pub fn script(ops: Vec<Op>) -> Self {
        Self { script: Some(ops), ..Self::new("mvcc-handover") }
    }
}

fn of_heap() -> Result<heap::Options, Error> {
    let blocks = HeapOptions::chunk_bytes(4096)?;
    let options = heap::Options::new().blocks(blocks).bytes(blocks.region_bytes(4)).slots(2);
    Ok(options.log_bytes(2048).zone_bytes(4096).alpha(0.25).coordinator(false))
}

fn of_versions() -> mvcc::Options {
    mvcc::Options::new().slots(2).log_bytes(4096).copy_bytes(4096).background(false)
}

fn is_in(pool: &Pool, region: &str) -> bool {
    pool.info().regions.iter().any(|found| found.name == region)
}

impl Store {
    fn open(sim: &Arc<Sim>) -> Result<Self, Error> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        match (is_in(&pool, "heap"), is_in(&pool, "mvcc")) {
            (true, false) => Ok(Self::Heap(Box::new(Heap::open_in(&pool, &of_heap()?)?))),
            (false, true) => Ok(Self::Versions(Box::new(Mvcc::open_in(&pool, &of_versions())?))),
            (heap, _) => Err(format!("both engines have objects, or none: {heap}").into()),
        }
    }

    fn who(&self) -> Engines {
        match self {
            Self::Heap(heap) => Engines::Heap(heap.policy()),
            Self::Versions(_) => Engines::Versions,
        }
    }

    fn hand_over(self, policy: Policy) -> Result<Self, Error> {
        Ok(match self {
            Self::Heap(heap) => Self::Versions(Box::new(Mvcc::take_over(heap.hand_over()?, &of_versions())?)),
            Self::Versions(store) => {
                Self::Heap(Box::new(Heap::take_over(store.hand_over()?, &of_heap()?.policy(policy))?))
            }
        })
    }
}

type Pair = [PPtr<[u64; 5]>; 2];

fn object(n: u64) -> [u64; 5] {
    [n, !n, n, n * n, n]
}

/// Two objects in place of two others; and one in their place, by turns.
fn change<X: Transaction>(tx: &mut X, n: u64) -> tx::Result<()> {
    let root = tx.root::<Pair>()?;
    let [first, second] = *tx.read(root)?;
    *tx.write(first)? = object(n);
    let new = tx.alloc(&object(n))?;
    tx.free(second)?;
    tx.write(root)?[1] = new;
    Ok(())
}

/// The number of the transaction that both objects are of.
fn read<X: Transaction>(tx: &X) -> tx::Result<Result<u64, String>> {
    let [first, second] = *tx.read(tx.root::<Pair>()?)?;
    let (first, second) = (*tx.read(first)?, *tx.read(second)?);
    let n = first[0];
    Ok(if (first, second) == (object(n), object(n)) { Ok(n) } else { Err(format!("{first:?} and {second:?}")) })
}

impl Scenario for Handed {
    type Op = Op;
    type Effect = (u64, Engines);
    type State = (u64, String);
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        256 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(16 << 10).create_on(sim.clone())?;
        let heap = Heap::create_in(&pool, &of_heap()?.policy(Policy::InPlace))?;
        drop(pool);
        heap.transact(Strict, |tx| -> tx::Result<()> {
            let pair: Pair = [tx.alloc(&object(0))?, tx.alloc(&object(0))?];
            let root = tx.alloc(&pair)?;
            tx.set_root(root)
        })?;
        Ok(heap.close()?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        Ok(Live { sim: sim.clone(), state: Mutex::new((Some(Store::open(sim)?), 0)) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let op = |rng: &mut Rng| match rng.below(12) {
            0..=4 => Op::Commit,
            5 => Op::Abort,
            6 => Op::Restart,
            7 => Op::Close,
            // No transaction is rolled back with policy none, and transactions that abort stay.
            _ => Op::HandOver(
                Policy::ALL.into_iter().filter(|p| *p != Policy::None).nth(rng.index(4)).unwrap_or_default(),
            ),
        };
        let random = || (0..8).map(|_| op(rng)).collect();
        self.script.clone().unwrap_or_else(random).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Self::Effect>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        let (open, last) = &mut *state;
        let store = open.take().ok_or("closed")?;
        let store = match *op {
            Op::Commit => {
                let ticket = ack.begin((*last + 1, store.who()));
                on!(&store, engine => engine.transact(Strict, |tx| change(tx, *last + 1)))?;
                ack.commit(ticket);
                *last += 1;
                store
            }
            Op::Abort => {
                on!(&store, engine => {
                    let mut tx = engine.begin(Strict)?;
                    change(&mut tx, 1000)?;
                    tx.abort()?;
                });
                store
            }
            Op::HandOver(policy) => {
                let who = match store.who() {
                    Engines::Heap(_) => Engines::Versions,
                    Engines::Versions => Engines::Heap(policy),
                };
                let ticket = ack.begin((*last, who));
                let store = store.hand_over(policy)?;
                ack.commit(ticket);
                store
            }
            Op::Restart => {
                drop(store);
                Store::open(&live.sim)?
            }
            Op::Close => {
                on!(store, engine => engine.close())?;
                Store::open(&live.sim)?
            }
        };
        *open = Some(store);
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let (store, _) = live.state.into_inner().map_err(|e| e.to_string())?;
        store.map_or(Ok(()), |store| Ok(on!(store, engine => engine.close())?))
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Self::Effect>) -> Result<Self::State, Violation> {
        let store = Store::open(sim).map_err(|error| Violation::detected(error.to_string()))?;
        let found = on!(&store, engine => engine.transact(Strict, |tx| read(tx))).map_err(Violation::detected)?;
        let n = found.map_err(|why| Violation::new(format!("of two transactions: {why}")))?;
        let (seen, who) = ((n, store.who()), format!("{:?}", store.who()));
        let _witness = Witness::of(n << 8 | who.len() as u64)?;
        let acknowledged = history.acknowledged.last().copied().unwrap_or((0, Engines::Heap(Policy::InPlace)));
        if seen != acknowledged && !history.in_doubt.contains(&seen) {
            return Err(Violation::new(format!("{seen:?} is there, and {acknowledged:?} was acknowledged")));
        }
        let mut blocks = 0;
        on!(&store, engine => engine.live_blocks(|_, _| blocks += 1)).map_err(Violation::detected)?;
        if blocks != 4 {
            return Err(Violation::new(format!("{blocks} blocks are there, in place of 4")));
        }
        if let Store::Heap(heap) = &store {
            heap.compare().map_err(Violation::detected)?;
        }
        Ok((n, who))
    }
}
