//! Two threads in the middle of each other's commits: what is written together is seen together, no change is lost, and no two serializable transactions each miss what the other does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use mvcc::{Mvcc, Options};
use pmem::{PPtr, Persist};
use tx::{Engine, Isolation, Transaction, Typed};

use crate::opened::Opened;

/// Cells; the first two are always written together, of the last two one is on at most.
const CELLS: usize = 5;
const PAIR: [usize; 2] = [0, 1];
const SWITCHES: [usize; 2] = [3, 4];
/// A transaction that meets conflicts is tried so often.
const TRIES: usize = 6;

/// What a thread does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Writes the first two cells, at this level.
    Pair(Isolation),
    /// Looks at them, in a transaction or in a snapshot that is held, twice.
    Look(bool),
    /// Adds to the third cell.
    Add,
    /// Turns this one of the last two on if the other one is off, and off otherwise.
    Switch(usize),
    /// Makes a node, and frees the one that the third cell had.
    Node,
    /// Writes back what can be.
    WriteBack,
}

/// What a commit has changed: cells, and the number that each had before.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    number: u64,
    cells: Vec<(usize, u64)>,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Cell {
    /// Of the transaction that wrote it last.
    number: u64,
    is_on: u64,
    node: u64,
    fill: [u64; 5],
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Root {
    cells: [PPtr<Cell>; CELLS],
}

/// Workloads of two threads.
#[derive(Clone, Debug)]
pub struct Crossed {
    name: &'static str,
    script: Option<Vec<(usize, Op)>>,
    adjust: fn(Options) -> Options,
}

impl Crossed {
    /// Drawn ones.
    pub fn new(name: &'static str) -> Self {
        Self { name, script: None, adjust: |options| options }
    }

    /// Exactly these operations, each on its thread.
    #[must_use]
    pub fn script(self, ops: Vec<(usize, Op)>) -> Self {
        Self { script: Some(ops), ..self }
    }

    /// Changes how the store is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    fn options(&self) -> Result<Options, Error> {
        Ok((self.adjust)(super::options()?))
    }
}

/// The open store and what its threads share.
pub struct Live {
    open: Opened<Mvcc>,
    root: Root,
    next: AtomicU64,
}

fn root_of(store: &Mvcc) -> tx::Result<Root> {
    store.transact(Isolation::Snapshot, |tx| -> tx::Result<Root> { Ok(*tx.read(tx.root::<Root>()?)?) })
}

/// Writes cells; tells what they were.
fn change(
    tx: &mut mvcc::Tx<'_>,
    root: &Root,
    number: u64,
    cells: &[usize],
    set: impl Fn(&mut Cell),
) -> tx::Result<Vec<(usize, u64)>> {
    let mut before = Vec::new();
    for &at in cells {
        let cell = tx.write(root.cells[at])?;
        before.push((at, cell.number));
        cell.number = number;
        cell.fill = [number; 5];
        set(cell);
    }
    Ok(before)
}

/// One attempt; what it has changed, to be committed.
fn attempt(tx: &mut mvcc::Tx<'_>, root: &Root, op: &Op, number: u64) -> tx::Result<Vec<(usize, u64)>> {
    match op {
        Op::Pair(_) => change(tx, root, number, &PAIR, |_| ()),
        Op::Add => change(tx, root, number, &[2], |_| ()),
        Op::Switch(one) => {
            let (own, other) = (SWITCHES[*one], SWITCHES[1 - *one]);
            let is_on = u64::from(tx.read(root.cells[other])?.is_on == 0);
            change(tx, root, number, &[own], |cell| cell.is_on = is_on)
        }
        Op::Node => {
            let node = tx.alloc(&[number; 12])?.raw();
            let old = tx.read(root.cells[2])?.node;
            if old != 0 {
                tx.free(PPtr::<[u64; 12]>::from_raw(old))?;
            }
            change(tx, root, number, &[2], |cell| cell.node = node)
        }
        Op::Look(_) | Op::WriteBack => Ok(Vec::new()),
    }
}

fn conflict(error: &tx::Error) -> bool {
    matches!(error, tx::Error::Conflict { .. })
}

fn run(live: &Live, store: &Mvcc, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
    let level = if let Op::Pair(level) = op { *level } else { Isolation::Serializable };
    for _ in 0..TRIES {
        let mut tx = store.begin(level)?;
        let number = live.next.fetch_add(1, Relaxed);
        let cells = match attempt(&mut tx, &live.root, op, number) {
            Ok(cells) => cells,
            Err(e) if conflict(&e) => {
                tx.abort()?;
                pmem::sync::switch_point();
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let ticket = ack.begin(Effect { number, cells });
        match tx.commit() {
            Ok(()) => {
                ack.commit(ticket);
                return Ok(());
            }
            Err(e) if conflict(&e) => ack.abort(ticket),
            Err(e) => return Err(e.into()),
        }
        pmem::sync::switch_point();
    }
    Ok(())
}

/// What is written together is seen together, and stays.
fn look(live: &Live, store: &Mvcc, held: bool) -> Result<(), Error> {
    let cells = PAIR.map(|at| live.root.cells[at]);
    let seen = if held {
        let snapshot = store.snapshot();
        let first = [snapshot.read(cells[0])?, snapshot.read(cells[1])?];
        pmem::sync::switch_point();
        let second = [snapshot.read(cells[1])?, snapshot.read(cells[0])?];
        [first[0], first[1], second[0], second[1]]
    } else {
        let tx = store.begin(Isolation::Snapshot)?;
        let first = [*tx.read(cells[0])?, *tx.read(cells[1])?];
        pmem::sync::switch_point();
        [first[0], first[1], *tx.read(cells[1])?, *tx.read(cells[0])?]
    };
    let numbers = seen.map(|cell| cell.number);
    let torn = seen.iter().any(|cell| cell.fill != [cell.number; 5]);
    if torn || numbers != [numbers[0]; 4] {
        return Err(Error::from(format!("one snapshot shows {numbers:?} in cells that are written together")));
    }
    Ok(())
}

impl Scenario for Crossed {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<u64>;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        512 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(16 << 10).create_on(sim.clone())?;
        let store = Mvcc::create_in(&pool, &self.options()?)?;
        drop(pool);
        store.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let mut cells = [PPtr::NULL; CELLS];
            for cell in &mut cells {
                *cell = tx.alloc(&Cell { number: 0, is_on: 0, node: 0, fill: [0; 5] })?;
            }
            let root = tx.alloc(&Root { cells })?;
            tx.set_root(root)
        })?;
        store.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let (store, pool) = super::open(sim, &self.options()?)?;
        let root = root_of(&store)?;
        Ok(Live { open: Opened::new((store, pool)), root, next: 1.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let drawn = |rng: &mut Rng| match rng.below(10) {
            0..=2 => Op::Pair(Isolation::ALL[rng.index(3)]),
            3 | 4 => Op::Look(rng.chance(1, 2)),
            5 => Op::Add,
            6 | 7 => Op::Switch(rng.index(2)),
            8 => Op::Node,
            _ => Op::WriteBack,
        };
        self.script.clone().unwrap_or_else(|| (0..10).map(|_| (rng.index(2), drawn(rng))).collect())
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let store = live.open.get()?;
        match op {
            Op::Look(held) => look(live, &store, *held),
            Op::WriteBack => Ok(store.write_back().map(|_| ())?),
            _ => run(live, &store, op, ack),
        }
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        live.open.close(Mvcc::close)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
        let options = self.options().map_err(|e| Violation::detected(e.to_string()))?;
        let open = || super::open(sim, &options).map_err(|e| Violation::detected(e.to_string()));
        let (store, pool) = open()?;
        let (cells, root) = see(&store).map_err(Violation::detected)?;
        whole(&cells, history)?;
        if SWITCHES.iter().all(|&at| cells[at].is_on != 0) {
            return Err(Violation::new("two serializable transactions each missed what the other one did"));
        }
        no_leaks(&store, &cells, &root)?;
        let numbers: Vec<u64> = cells.iter().map(|cell| cell.number).collect();
        let seen = numbers.iter().fold(7u64, |hash, number| (hash ^ number).wrapping_mul(0x1_0000_01b3));
        let _witness = Witness::of(seen >> 1)?;
        drop(pool);
        store.abandon();
        let (store, pool) = open()?;
        let (again, _) = see(&store).map_err(Violation::detected)?;
        if again.iter().map(|cell| cell.number).ne(numbers.iter().copied()) {
            return Err(Violation::new("a second recovery shows something else"));
        }
        drop(pool);
        store.abandon();
        Ok(numbers)
    }
}

fn see(store: &Mvcc) -> tx::Result<([Cell; CELLS], (u64, Root))> {
    let tx = store.begin(Isolation::Snapshot)?;
    let at = tx.root::<Root>()?;
    let root = *tx.read(at)?;
    let mut cells = Vec::new();
    for cell in root.cells {
        let cell = *tx.read(cell)?;
        if cell.node != 0 {
            tx.read(PPtr::<[u64; 12]>::from_raw(cell.node))?;
        }
        cells.push(cell);
    }
    let cells = cells.try_into().map_err(|_| tx::Error::Overlap { offset: 0 })?; // as many as there are
    Ok((cells, (at.offset(), root)))
}

/// All acknowledged transactions and some of those in doubt, each whole: what each saw in the cells that it changed is one line from zero to what is there now.
fn whole(cells: &[Cell; CELLS], history: &History<Effect>) -> Result<(), Violation> {
    let doubt = &history.in_doubt;
    let mut first = None;
    for chosen in 0..1u32 << doubt.len().min(8) {
        let some = doubt.iter().enumerate().filter(|(at, _)| chosen >> at & 1 != 0).map(|(_, effect)| effect);
        match line(cells, history.acknowledged.iter().chain(some)) {
            None => return Ok(()),
            Some(wrong) => first = first.or(Some(wrong)),
        }
    }
    Err(Violation::new(first.unwrap_or_default()))
}

fn line<'a>(cells: &[Cell; CELLS], effects: impl Iterator<Item = &'a Effect>) -> Option<String> {
    let mut behind: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); CELLS];
    for effect in effects {
        for &(cell, before) in &effect.cells {
            if let Some(other) = behind[cell].insert(before, effect.number) {
                return Some(format!("{other} and {} both changed {before} in cell {cell}", effect.number));
            }
        }
    }
    for (at, cell) in cells.iter().enumerate() {
        let (mut number, mut count) = (0, 0);
        while let Some(&next) = behind[at].get(&number) {
            (number, count) = (next, count + 1);
        }
        if count != behind[at].len() || number != cell.number || cell.fill != [number; 5] {
            let found = cell.number;
            return Some(format!(
                "cell {at} holds {found}, and the last of {count} that follow each other is {number}"
            ));
        }
    }
    None
}

fn no_leaks(store: &Mvcc, cells: &[Cell; CELLS], root: &(u64, Root)) -> Result<(), Violation> {
    let mut reachable = vec![root.0];
    reachable.extend(root.1.cells.iter().map(|cell| cell.offset()));
    reachable.extend(cells.iter().filter(|cell| cell.node != 0).map(|cell| PPtr::<u8>::from_raw(cell.node).offset()));
    reachable.push(store.begin(Isolation::Snapshot).map_err(Violation::detected)?.root_cell().offset());
    let mut live = Vec::new();
    store.live_blocks(|at, _| live.push(at)).map_err(Violation::detected)?;
    live.sort_unstable();
    reachable.sort_unstable();
    if live == reachable {
        return Ok(());
    }
    Err(Violation::new(format!("allocated {live:?}, reachable {reachable:?}")))
}
