//! The same for a [`Graph`]: a plain model is a set of nodes and a set of edges.
//!
//! ```
//! use structures::{Graph, GraphOptions};
//! use structures_testing::graph;
//! use tx::{Engine, Isolation, Reference};
//!
//! let engine = Reference::new();
//! let made = engine.transact(Isolation::Strict, |tx| Graph::create(tx, &GraphOptions::new()))?;
//! graph::against_model(&engine, made, &graph::steps(7, 200), true)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow::{Break, Continue};

use pmem::PPtr;
use structures::{Direction, Graph};
use tx::{Engine, Error, Isolation, Result, Transaction};

use crate::failure::{Failure, same};
use crate::random::Random;

/// Nodes that steps know. Some of them, the hubs, get most of the edges: more than a page has room for.
pub const NODES: u64 = 90;
const HUBS: u64 = 3;

/// One step of a model test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Adds a node.
    AddNode(u64),
    /// Removes a node and its edges.
    RemoveNode(u64),
    /// Adds an edge, if there are both nodes.
    AddEdge(u64, u64),
    /// Removes an edge.
    RemoveEdge(u64, u64),
    /// Compares all that can be reached from here over so many edges.
    Reach(u64, u32),
    /// Compares paths between two nodes of at most so many edges.
    Path(u64, u64, u32),
    /// Ends the transaction with a commit.
    Commit,
    /// Ends the transaction with an abort.
    Abort,
}

/// `count` steps from a seed.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random(seed);
    let node = |random: &mut Random| match random.below(2) {
        0 => random.below(HUBS),
        _ => random.below(NODES),
    };
    let step = |random: &mut Random| match random.below(100) {
        0..25 => Step::AddNode(random.below(NODES)),
        25..26 => Step::RemoveNode(random.below(NODES)),
        26..70 => Step::AddEdge(node(random), node(random)),
        70..82 => Step::RemoveEdge(node(random), node(random)),
        82..87 => Step::Reach(node(random), random.below(4) as u32),
        87..93 => Step::Path(node(random), node(random), random.below(7) as u32),
        93..98 => Step::Commit,
        _ => Step::Abort,
    };
    (0..count).map(|_| step(&mut random)).collect()
}

/// Nodes, and where their edges lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model(pub BTreeMap<u64, BTreeSet<u64>>);

impl Model {
    /// Does a step; true if something changed.
    pub fn apply(&mut self, step: Step) -> bool {
        let nodes = &mut self.0;
        match step {
            Step::AddNode(id) if !nodes.contains_key(&id) => nodes.insert(id, BTreeSet::new()).is_none(),
            Step::RemoveNode(id) => {
                nodes.values_mut().for_each(|ends| _ = ends.remove(&id));
                nodes.remove(&id).is_some()
            }
            Step::AddEdge(from, to) if nodes.contains_key(&to) => {
                nodes.get_mut(&from).is_some_and(|ends| ends.insert(to))
            }
            Step::RemoveEdge(from, to) => nodes.get_mut(&from).is_some_and(|ends| ends.remove(&to)),
            _ => false,
        }
    }

    fn has(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    /// All nodes that can be reached from one, and over how many edges at least.
    fn reach(&self, from: u64) -> BTreeMap<u64, u32> {
        let mut reached = BTreeMap::new();
        let mut edge: BTreeSet<u64> = self.0.contains_key(&from).then_some(from).into_iter().collect();
        for distance in 0.. {
            edge.retain(|id| !reached.contains_key(id));
            if edge.is_empty() {
                break;
            }
            reached.extend(edge.iter().map(|&id| (id, distance)));
            edge = edge.iter().filter_map(|id| self.0.get(id)).flatten().copied().collect();
        }
        reached
    }
}

/// Does a step that changes something, if its nodes are there; true if it did.
///
/// # Errors
/// Those of the transaction.
pub fn run<X: Transaction>(tx: &mut X, graph: Graph, step: Step) -> Result<bool> {
    match step {
        Step::AddNode(id) => graph.add_node(tx, id),
        Step::RemoveNode(id) => graph.remove_node(tx, id),
        Step::AddEdge(from, to) if graph.has_node(tx, from)? && graph.has_node(tx, to)? => graph.add_edge(tx, from, to),
        Step::RemoveEdge(from, to) => graph.remove_edge(tx, from, to),
        _ => Ok(false),
    }
}

/// What the graph holds, as a model; its own checks pass.
///
/// # Errors
/// Those of the transaction; [`Error::Aborted`] if two ways to look contradict each other.
pub fn read<X: Transaction>(tx: &X, graph: Graph) -> Result<Model> {
    let report = graph.verify(tx)?;
    let (mut model, mut into) = (Model::default(), BTreeSet::new());
    let mut ids = Vec::new();
    graph.nodes(tx, |id| {
        ids.push(id);
        Continue(())
    })?;
    for id in ids {
        let ends = model.0.entry(id).or_default();
        graph.neighbours(tx, id, Direction::Out, |end| {
            ends.insert(end);
            Continue(())
        })?;
        graph.neighbours(tx, id, Direction::In, |end| {
            into.insert((end, id));
            Continue(())
        })?;
    }
    let out: BTreeSet<_> = model.0.iter().flat_map(|(&id, ends)| ends.iter().map(move |&end| (id, end))).collect();
    let counts = (model.0.len() as u64, out.len() as u64);
    if out != into || counts != (report.nodes, report.edges) {
        let reason = format!("verified {report:?}; found {counts:?} nodes and edges, {} edges from behind", into.len());
        return Err(Error::Aborted { reason });
    }
    Ok(model)
}

/// Runs the steps on the graph and on the model, and compares. Without `aborts` every transaction commits.
///
/// # Errors
/// The first difference.
pub fn against_model<E: Engine>(engine: &E, graph: Graph, steps: &[Step], aborts: bool) -> Result<(), Failure> {
    let mut committed = Model::default();
    for group in steps.split_inclusive(|step| matches!(step, Step::Commit | Step::Abort)) {
        let mut model = committed.clone();
        let mut tx = engine.begin(Isolation::Strict)?;
        for (at, &step) in group.iter().enumerate() {
            same_step(&mut tx, graph, &mut model, step).map_err(|e| format!("{e}\nstep {at}: {step:?}"))?;
        }
        same("all", read(&tx, graph)?, model.clone())?;
        if aborts && group.last() == Some(&Step::Abort) {
            tx.abort()?;
        } else {
            tx.commit()?;
            committed = model;
        }
        let tx = engine.begin(Isolation::Strict)?;
        same("what is committed", read(&tx, graph)?, committed.clone())?;
        tx.commit()?;
    }
    Ok(())
}

fn same_step<X: Transaction>(tx: &mut X, graph: Graph, model: &mut Model, step: Step) -> Result<(), Failure> {
    same("changed", run(tx, graph, step)?, model.apply(step))?;
    match step {
        Step::AddNode(id) | Step::RemoveNode(id) => {
            same("node", graph.has_node(tx, id)?, model.has(id))?;
            let degree = |direction| graph.degree(tx, id, direction);
            let (out, into) = (degree(Direction::Out)?, degree(Direction::In)?);
            same("out degree", out, model.0.get(&id).map(|ends| ends.len() as u64))?;
            let sources = model.0.values().filter(|ends| ends.contains(&id)).count() as u64;
            same("in degree", into, model.has(id).then_some(sources))
        }
        Step::AddEdge(from, to) | Step::RemoveEdge(from, to) => {
            let expected = model.0.get(&from).is_some_and(|ends| ends.contains(&to));
            same("edge", graph.has_edge(tx, from, to)?, expected)
        }
        Step::Reach(from, depth) => {
            let mut found = Vec::new();
            graph.breadth_first(tx, from, depth, |id, distance| {
                found.push((distance, id));
                Continue(())
            })?;
            same("in order", found.is_sorted_by_key(|(distance, _)| *distance), true)?;
            let count = found.len();
            let found: BTreeMap<u64, u32> = found.into_iter().map(|(distance, id)| (id, distance)).collect();
            same("each once", found.len(), count)?;
            same("reach", found, model.reach(from).into_iter().filter(|(_, far)| *far <= depth).collect())
        }
        Step::Path(from, to, edges) => {
            let far = model.reach(from).get(&to).copied().filter(|far| *far <= edges);
            let path = graph.path(tx, from, to, edges)?;
            same("length of path", path.as_ref().map(|path| path.len() as u32 - 1), far)?;
            let path = path.unwrap_or_default();
            let steps = path.windows(2).all(|pair| model.0.get(&pair[0]).is_some_and(|ends| ends.contains(&pair[1])));
            let ends = path.is_empty() || path.first() == Some(&from) && path.last() == Some(&to);
            same("a path", steps && ends, true)
        }
        Step::Commit | Step::Abort => Ok(()),
    }
}

/// What a thread does in its rounds: edges of a ring of its own and to and from a hub that all share come, and a time around the ring later go; a
/// node comes, and the next round goes with its edges.
fn round(thread: u64, round: u64) -> Vec<Step> {
    const OWN: u64 = 8;
    let id = |n: u64| 1 + thread * (OWN + 1) + n % OWN;
    let (from, to, extra) = (id(round), id(round + 1), 1 + thread * (OWN + 1) + OWN);
    let ring = [(from, to), (from, 0), (0, from)];
    let mut steps: Vec<_> = match round / OWN {
        0 => vec![Step::AddNode(from), Step::AddNode(to)],
        _ => Vec::new(),
    };
    let comes = (round / OWN).is_multiple_of(2);
    steps.extend(ring.map(|(from, to)| if comes { Step::AddEdge(from, to) } else { Step::RemoveEdge(from, to) }));
    if round.is_multiple_of(2) {
        steps.extend([
            Step::AddNode(extra),
            Step::AddEdge(extra, 0),
            Step::AddEdge(0, extra),
            Step::AddEdge(to, extra),
        ]);
    } else {
        steps.push(Step::RemoveNode(extra));
    }
    steps
}

/// Threads that change edges of their own nodes and of one that all share: each finds what it left, and in the end everything is there.
///
/// # Errors
/// The first thing that is wrong.
pub fn concurrently<E: Engine + Sync>(engine: &E, graph: Graph, threads: u64, rounds: u64) -> Result<(), Failure> {
    engine.transact(Isolation::Strict, |tx| graph.add_node(tx, 0))?;
    let run_all = |thread: u64| -> Result<(), Error> {
        let mut own = Model::default();
        own.apply(Step::AddNode(0));
        (0..rounds).try_for_each(|at| {
            let steps: Vec<_> = round(thread, at).into_iter().map(|step| (step, own.apply(step))).collect();
            engine.transact(Isolation::Strict, |tx| {
                steps.iter().try_for_each(|&(step, changes)| match run(tx, graph, step)? == changes {
                    true => Ok(()),
                    false => Err(tx::Typed::refuse(tx, format!("{step:?} is not as its thread left it"))),
                })
            })
        })
    };
    std::thread::scope(|scope| {
        let run_all = &run_all;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run_all(thread))).collect();
        handles
            .into_iter()
            .try_for_each(|handle| handle.join().unwrap_or(Err(Error::Aborted { reason: "a panic".into() })))
    })?;
    let mut expected = Model::default();
    expected.apply(Step::AddNode(0));
    for step in (0..threads).flat_map(|thread| (0..rounds).flat_map(move |at| round(thread, at))) {
        expected.apply(step);
    }
    same("all", engine.transact(Isolation::Strict, |tx| read(tx, graph))?, expected)
}

/// Damages a word of some block, then does everything with the graph: each operation succeeds or fails, and if `verify` finds nothing, what it
/// counts can be read. Each damage is undone. Returns how many `verify` found.
///
/// # Errors
/// The first thing that is wrong.
pub fn damage<E: Engine>(engine: &E, graph: Graph, seed: u64, rounds: usize) -> Result<usize, Failure> {
    let mut random = Random(seed);
    let blocks = engine.transact(Isolation::Strict, |tx| graph.blocks(tx))?;
    let mut noticed = 0;
    for round in 0..rounds {
        let block = blocks[random.below(blocks.len() as u64) as usize];
        let other = blocks[random.below(blocks.len() as u64) as usize];
        let (kind, bit, value) = (random.below(4), random.below(64), random.number());
        let (at, before) = engine.transact(Isolation::Strict, |tx| -> Result<_> {
            let at = PPtr::new(block.tag(), block.offset() + 8 * random.below((tx.room(block)? / 8).min(33)));
            let word: &mut u64 = tx::Typed::write(tx, at)?;
            let before = *word;
            *word = match kind {
                0 | 1 => before ^ 1 << bit,
                2 => before & !pmem::OFFSET_MAX | other.offset(),
                _ => value,
            };
            Ok((at, before))
        })?;
        let place = format!("round {round}, seed {seed}, {at:?}");
        noticed += usize::from(!consistent(engine, graph, &mut random).map_err(|e| format!("{place}: {e}"))?);
        engine.transact(Isolation::Strict, |tx| -> Result<()> {
            *tx::Typed::write(tx, at)? = before;
            Ok(())
        })?;
    }
    engine.transact(Isolation::Strict, |tx| graph.verify(tx))?;
    Ok(noticed)
}

/// True if `verify` finds nothing.
fn consistent<E: Engine>(engine: &E, graph: Graph, random: &mut Random) -> Result<bool, Failure> {
    let tx = engine.begin(Isolation::Strict)?;
    let verified = graph.verify(&tx);
    tx.abort()?;
    if verified.is_ok() {
        let tx = engine.begin(Isolation::Strict)?;
        read(&tx, graph)?;
        tx.abort()?;
    }
    for _ in 0..3 {
        let (one, other) = (random.below(NODES), random.below(NODES));
        // Whatever these say: they come back.
        let tx = engine.begin(Isolation::Strict)?;
        let _ = graph.path(&tx, one, other, 6);
        tx.abort()?;
        let tx = engine.begin(Isolation::Strict)?;
        let mut met = 0;
        let _ = graph.breadth_first(&tx, one, u32::MAX, |_, _| {
            met += 1;
            if met < 10 * NODES { Continue(()) } else { Break(()) }
        });
        tx.abort()?;
        same("nodes met at most", met < 10 * NODES, true)?;
        let changes =
            [Step::AddEdge(one, other), Step::RemoveEdge(one, other), Step::RemoveNode(one), Step::AddNode(NODES)];
        for step in changes {
            let mut tx = engine.begin(Isolation::Strict)?;
            let _ = run(&mut tx, graph, step);
            tx.abort()?;
        }
    }
    Ok(verified.is_ok())
}
