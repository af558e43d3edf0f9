//! The head of a chain of one, as an engine: each transaction makes two objects in place of two others. After a crash anywhere: what was acknowledged is there, both objects are of one
//! transaction, and no other block is.

use std::sync::{Arc, Mutex};

use chain::{Medium, Node, ReplicaId, Sizes};
use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use pmem::{Options, PPtr};
use tx::{Engine, Isolation::Strict, Transaction, Typed};

use crate::chained::OnMedium;

const SIZES: Sizes = Sizes { capacity: 16 << 10, queue: 8 << 10 };
const LEN: u64 = 128 << 10;

/// One head, one thread.
pub type Headed = OnMedium<Op>;

/// What it does.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A transaction.
    Commit,
    /// One that changes its mind.
    Abort,
    /// Drop everything and open again.
    Restart,
}

/// The head.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<(Option<Node>, u64)>,
}

impl Headed {
    fn open(&self, sim: &Arc<Sim>) -> Result<Node, Error> {
        let (medium, found) = self.medium(sim)?;
        Ok(Node::alone(medium, found)?)
    }
}

fn object(n: u64) -> [u64; 5] {
    [n, !n, n, n * n, n]
}

/// The number of the transaction that both objects are of.
fn read<X: Transaction>(tx: &X) -> tx::Result<Result<u64, String>> {
    let offsets = *tx.read(tx.root_cell())?;
    if offsets == [0, 0] {
        return Ok(Ok(0));
    }
    let [first, second] = offsets.map(PPtr::<[u64; 5]>::from_raw);
    let (first, second) = (*tx.read(first)?, *tx.read(second)?);
    let n = first[0];
    Ok(if (first, second) == (object(n), object(n)) { Ok(n) } else { Err(format!("{first:?} and {second:?}")) })
}

fn change<X: Transaction>(tx: &mut X, n: u64) -> tx::Result<()> {
    let old = *tx.read(tx.root_cell())?;
    let new = [tx.alloc(&object(n))?.raw(), tx.alloc(&object(n))?.raw()];
    for offset in old.into_iter().filter(|offset| *offset != 0) {
        tx.free(PPtr::<[u64; 5]>::from_raw(offset))?;
    }
    *tx.write(tx.root_cell())? = new;
    Ok(())
}

impl Scenario for Headed {
    type Op = Op;
    type Effect = u64;
    type State = u64;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        LEN
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(Medium::file_len(SIZES)).create_on(sim.clone())?;
        Medium::format(&pool, ReplicaId { machine: 1, incarnation: 0 }, true, SIZES)?;
        Ok(pool.close()?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        Ok(Live { sim: sim.clone(), state: Mutex::new((Some(self.open(sim)?), 0)) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let op = |rng: &mut Rng| match rng.below(8) {
            0..=4 => Op::Commit,
            5 => Op::Abort,
            _ => Op::Restart,
        };
        let random = || (0..10).map(|_| op(rng)).collect();
        self.script.clone().unwrap_or_else(random).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<u64>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        let (node, last) = &mut *state;
        if let Op::Restart = op {
            *node = None;
            *node = Some(self.open(&live.sim)?);
        }
        let Some(running) = node else { return Err("closed".into()) };
        match op {
            Op::Commit => {
                let ticket = ack.begin(*last + 1);
                match running.transact(Strict, |tx| change(tx, *last + 1)) {
                    Ok(()) => ack.commit(ticket),
                    Err(_) => {
                        // The drain has failed: nothing more is taken, and the caller that opens the replica again is told what it is.
                        if running.transact(Strict, |tx| change(tx, 1000)).is_ok() {
                            return Err("a head commits behind a failed drain".into());
                        }
                        *node = None;
                        let opened = node.insert(self.open(&live.sim)?);
                        match opened.transact(Strict, |tx| read(tx))?? {
                            n if n == *last => {
                                ack.abort(ticket);
                                return Ok(());
                            }
                            n if n == *last + 1 => ack.commit(ticket),
                            n => return Err(format!("{n} is there, and {last} was acknowledged").into()),
                        }
                    }
                }
                *last += 1;
            }
            Op::Abort => {
                let mut tx = running.begin(Strict)?;
                change(&mut tx, 1000)?;
                tx.abort()?;
            }
            Op::Restart => {}
        }
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let (node, _) = live.state.into_inner().map_err(|e| e.to_string())?;
        node.map_or(Ok(()), |node| Ok(node.close()?))
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<u64>) -> Result<u64, Violation> {
        let node = self.open(sim).map_err(Violation::detected)?;
        let found = node.transact(Strict, |tx| read(tx)).map_err(Violation::detected)?;
        let n = found.map_err(|why| Violation::new(format!("of two transactions: {why}")))?;
        let _witness = Witness::of(n)?;
        let acknowledged = history.acknowledged.last().copied().unwrap_or(0);
        if n != acknowledged && !history.in_doubt.contains(&n) {
            return Err(Violation::new(format!("{n} is there, and {acknowledged} was acknowledged")));
        }
        let blocks = node.blocks().len();
        if blocks != if n == 0 { 0 } else { 2 } {
            return Err(Violation::new(format!("{blocks} blocks are there, after {n}")));
        }
        Ok(n)
    }
}
