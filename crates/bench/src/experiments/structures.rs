//! `structures`: every structure on every engine, each half asked and half changed.
//!
//! Of a map a key is looked up, then one is removed if it is there and put if it is not (as MARS does with its hash table and B+tree, §5.3): half of
//! the keys are there at any time. Of a graph a path of up to six edges between two nodes is searched, then an edge comes or goes (its *six
//! degrees*). Keys and nodes are drawn uniformly. Each operation is a transaction.

use std::fmt;
use std::str::FromStr;

use structures::{
    BTree, BTreeOptions, Graph, GraphOptions, HashMap, HashMapOptions, Map, SearchTree, SearchTreeOptions, SortedList,
};
use tx::{Engine, Typed};

use crate::contest::{Contest, share};
use crate::crew::{Crew, Worker};
use crate::engines::{Contestant, Made, Room};
use crate::latency::Sampler;
use crate::target::{Aborts, ISOLATION};
use crate::workload::Random;
use crate::{Batch, Error, Result, Row, Side, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "structures";

/// A structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Sorted list.
    List,
    /// Hash map.
    HashMap,
    /// Binary search tree, as keys come.
    Bst,
    /// Binary search tree, balanced.
    Treap,
    /// B+tree.
    BTree,
    /// Directed graph.
    Graph,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::List, Self::HashMap, Self::Bst, Self::Treap, Self::BTree, Self::Graph];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::HashMap => "hashmap",
            Self::Bst => "bst",
            Self::Treap => "treap",
            Self::BTree => "btree",
            Self::Graph => "graph",
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|shape| shape.name() == name).ok_or_else(|| format!("choose from: {}", names()))
    }
}

/// A share of it has room for what one transaction changes: a handful of a B+tree's nodes.
const STORED_MIN: u64 = 64 << 10;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Structures {
    /// Structures.
    pub shapes: Vec<Shape>,
    /// Keys that are there, of twice as many; of a graph nodes.
    pub keys: u64,
    /// The same of a list, where each operation goes past half of them.
    pub list_keys: u64,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Edges of a graph that leave a node, on average.
    pub degree: u64,
}

impl Default for Structures {
    fn default() -> Self {
        Self { shapes: Shape::ALL.to_vec(), keys: 100_000, list_keys: 100, value_bytes: 100, degree: 8 }
    }
}

impl Structures {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants; [`Error::Parameter`] for one that has no transactions of ours.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        if let Some(who) = contest.who.iter().find(|who| {
            !matches!(who, Contestant::Heap(_) | Contestant::Partial(_) | Contestant::Mvcc | Contestant::Reference)
        }) {
            return Err(Error::Parameter(format!("{who} does not run the structures of crate `structures`")));
        }
        contest.announce(EXPERIMENT, self.shapes.len(), watch);
        let mut rows = Vec::new();
        for shape in &self.shapes {
            rows.extend(self.compare(contest, *shape, watch)?);
        }
        Ok(rows)
    }

    /// On one structure for each contestant, which stays as full as it is.
    fn compare(&self, contest: &Contest, shape: Shape, watch: &dyn Watch) -> Result<Vec<Row>> {
        let threads_max = contest.threads.iter().copied().max().unwrap_or(1);
        let arena = contest.arena(self.room(shape, threads_max))?;
        let made = arena.made().map(|made| self.make(made, shape)).collect::<Result<Vec<_>>>()?;
        let mut rows = Vec::new();
        for threads in &contest.threads {
            let row = self.row(shape, *threads);
            rows.extend(contest.compare(&arena, &row, watch, |at, made_in, crew, row| {
                let subject = made[at].clone();
                let work = match made_in {
                    Made::Heap(heap) => self.work(crew, heap, &subject, contest.seed),
                    Made::Mvcc(engine) => self.work(crew, engine, &subject, contest.seed),
                    Made::Reference(engine) => self.work(crew, engine, &subject, contest.seed),
                    _ => return Err(Error::Parameter("no engine of ours".into())),
                };
                Ok(Side::new(row, work))
            })?);
        }
        Ok(rows)
    }

    fn row(&self, shape: Shape, threads: usize) -> Row {
        let row = Row::new(EXPERIMENT, "").structure(shape.name()).threads(threads).param("keys", self.keys_of(shape));
        match shape {
            Shape::Graph => row.param("degree", self.degree),
            _ => row.param("value_bytes", self.value_bytes),
        }
    }

    fn keys_of(&self, shape: Shape) -> u64 {
        if shape == Shape::List { self.list_keys } else { self.keys }
    }

    fn room(&self, shape: Shape, threads: usize) -> Room {
        let keys = self.keys_of(shape);
        match shape {
            // Two pages and more for each node.
            Shape::Graph => {
                let pages = keys * (2 + 2 * self.degree / Graph::PAGE_EDGES as u64);
                let bytes = 64 * keys + 256 * pages;
                Room { bytes, stored: bytes, blocks: keys + pages, threads }
            }
            _ => {
                // Half of the keys are there at any time, each in a block with key and links.
                let stored = (keys * (u64::from(self.value_bytes) + 56)).max(STORED_MIN);
                Room { bytes: 2 * keys * (u64::from(self.value_bytes) + 128), stored, blocks: 2 * keys, threads }
            }
        }
    }

    fn make(&self, made: &Made, shape: Shape) -> Result<Subject> {
        match made {
            Made::Heap(heap) => self.make_in(heap, shape),
            Made::Mvcc(engine) => self.make_in(engine, shape),
            Made::Reference(engine) => self.make_in(engine, shape),
            _ => Err(Error::Parameter("no engine of ours".into())),
        }
    }

    /// A structure with half of its keys.
    fn make_in<E: Engine>(&self, engine: &E, shape: Shape) -> Result<Subject> {
        let keys = self.keys_of(shape);
        let subject = engine.transact(ISOLATION, |tx| -> tx::Result<_> {
            Ok(match shape {
                Shape::List => Subject::List(SortedList::create(tx)?),
                Shape::HashMap => Subject::HashMap(HashMap::create(tx, &HashMapOptions::new().capacity(keys))?),
                Shape::Bst => Subject::Tree(SearchTree::create(tx, &SearchTreeOptions::new().unbalanced())?),
                Shape::Treap => Subject::Tree(SearchTree::create(tx, &SearchTreeOptions::new())?),
                Shape::BTree => Subject::BTree(BTree::create(tx, &BTreeOptions::new().key_max(8))?),
                Shape::Graph => Subject::Graph(Graph::create(tx, &GraphOptions::new().capacity(keys))?),
            })
        })?;
        match &subject {
            Subject::List(map) => self.fill(engine, *map, keys),
            Subject::HashMap(map) => self.fill(engine, *map, keys),
            Subject::Tree(map) => self.fill(engine, *map, keys),
            Subject::BTree(map) => self.fill(engine, *map, keys),
            Subject::Graph(graph) => self.connect(engine, *graph),
        }?;
        Ok(subject)
    }

    fn fill<E: Engine>(&self, engine: &E, map: impl Map, keys: u64) -> Result<()> {
        let value = self.value();
        let numbers: Vec<u64> = (0..keys).map(|n| 2 * n).collect();
        numbers.chunks(AT_ONCE).try_for_each(|numbers| {
            let put = |tx: &mut E::Tx<'_>| numbers.iter().try_for_each(|n| map.put(tx, &key(*n), &value).map(drop));
            Ok(engine.transact(ISOLATION, put)?)
        })
    }

    /// Each end of an edge is a node or an end of an earlier edge: a node that has many gets more (Barabási, Albert 1999).
    fn connect<E: Engine>(&self, engine: &E, graph: Graph) -> Result<()> {
        let ids: Vec<u64> = (0..self.keys).collect();
        ids.chunks(AT_ONCE).try_for_each(|ids| {
            let add = |tx: &mut E::Tx<'_>| ids.iter().try_for_each(|id| graph.add_node(tx, *id).map(drop));
            engine.transact(ISOLATION, add).map(drop)
        })?;
        let (mut random, mut ends) = (Random::new(0), Vec::new());
        let mut edges = Vec::new();
        for _ in 0..self.keys * self.degree {
            let mut end = || match (random.below(2), ends.len() as u64) {
                (0, 1..) => ends[random.below(ends.len() as u64) as usize],
                _ => random.below(self.keys),
            };
            let edge = [end(), end()];
            ends.extend(edge);
            edges.push(edge);
        }
        edges.chunks(AT_ONCE).try_for_each(|edges| {
            let add = |tx: &mut E::Tx<'_>| edges.iter().try_for_each(|[a, b]| graph.add_edge(tx, *a, *b).map(drop));
            Ok(engine.transact(ISOLATION, add)?)
        })
    }

    fn value(&self) -> Vec<u8> {
        vec![7; self.value_bytes as usize]
    }

    fn work<'c, 'env, E: Engine + Sync>(
        &self,
        crew: &'c Crew<'env>,
        engine: &'env E,
        subject: &Subject,
        seed: u64,
    ) -> Box<dyn FnMut(u64) -> Result<Batch> + 'c> {
        let (keys, value) = (self.keys, self.value());
        match *subject {
            Subject::List(map) => run(crew, engine, seed, OnMap { map, keys: self.list_keys, value }),
            Subject::HashMap(map) => run(crew, engine, seed, OnMap { map, keys, value }),
            Subject::Tree(map) => run(crew, engine, seed, OnMap { map, keys, value }),
            Subject::BTree(map) => run(crew, engine, seed, OnMap { map, keys, value }),
            Subject::Graph(graph) => run(crew, engine, seed, OnGraph { graph, nodes: keys }),
        }
    }
}

/// Keys put in one transaction before anything is measured.
const AT_ONCE: usize = 32;
/// Edges of the longest path that is searched.
const DEGREES: u32 = 6;

/// A structure that was made.
#[derive(Clone)]
enum Subject {
    List(SortedList),
    HashMap(HashMap),
    Tree(SearchTree),
    BTree(BTree),
    Graph(Graph),
}

/// A key's bytes: neighbours in number are none in order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// What is asked and changed.
trait Mix: Clone + Send {
    fn ask<X: tx::Transaction>(&self, tx: &X, random: &mut Random) -> tx::Result<()>;
    fn change<X: tx::Transaction>(&self, tx: &mut X, random: &mut Random) -> tx::Result<()>;
}

#[derive(Clone)]
struct OnMap<M> {
    map: M,
    keys: u64,
    value: Vec<u8>,
}

impl<M: Map + Send> Mix for OnMap<M> {
    #[inline]
    fn ask<X: tx::Transaction>(&self, tx: &X, random: &mut Random) -> tx::Result<()> {
        let found = self.map.get(tx, &key(random.below(2 * self.keys)))?;
        std::hint::black_box(found);
        Ok(())
    }

    #[inline]
    fn change<X: tx::Transaction>(&self, tx: &mut X, random: &mut Random) -> tx::Result<()> {
        let key = key(random.below(2 * self.keys));
        if !self.map.delete(tx, &key)? {
            self.map.put(tx, &key, &self.value)?;
        }
        Ok(())
    }
}

#[derive(Clone)]
struct OnGraph {
    graph: Graph,
    nodes: u64,
}

impl Mix for OnGraph {
    #[inline]
    fn ask<X: tx::Transaction>(&self, tx: &X, random: &mut Random) -> tx::Result<()> {
        let path = self.graph.path(tx, random.below(self.nodes), random.below(self.nodes), DEGREES)?;
        std::hint::black_box(path);
        Ok(())
    }

    #[inline]
    fn change<X: tx::Transaction>(&self, tx: &mut X, random: &mut Random) -> tx::Result<()> {
        let (from, to) = (random.below(self.nodes), random.below(self.nodes));
        let done = self.graph.remove_edge(tx, from, to)? || self.graph.add_edge(tx, from, to)?;
        if done { Ok(()) } else { Err(tx.refuse("an edge neither came nor went")) }
    }
}

/// One thread.
struct Thread<'e, E, M> {
    engine: &'e E,
    mix: M,
    random: Random,
    sampler: Sampler,
    ops: u64,
    aborts: Aborts,
}

impl<E: Engine + Sync, M: Mix> Thread<'_, E, M> {
    /// A transaction, and how often it was given up. It does the same in each try.
    #[inline]
    fn one(&mut self, change: bool) -> Result<Aborts> {
        let (mix, seed, mut tries) = (&self.mix, self.random.any(), 0);
        self.engine.transact(ISOLATION, |tx| -> tx::Result<()> {
            tries += 1;
            let mut random = Random::new(seed);
            if change { mix.change(tx, &mut random) } else { mix.ask(tx, &mut random) }
        })?;
        Ok(tries - 1)
    }
}

impl<E: Engine + Sync, M: Mix> Worker for Thread<'_, E, M> {
    fn work(&mut self) -> Result<()> {
        let mut sampler = std::mem::replace(&mut self.sampler, Sampler::new(0));
        let done = (0..self.ops).try_for_each(|op| {
            self.aborts += sampler.op(|| self.one(op % 2 == 1))?;
            Ok(())
        });
        self.sampler = sampler;
        done
    }
}

fn run<'c, 'env, E: Engine + Sync, M: Mix + 'env>(
    crew: &'c Crew<'env>,
    engine: &'env E,
    seed: u64,
    mix: M,
) -> Box<dyn FnMut(u64) -> Result<Batch> + 'c> {
    let thread = |at| {
        let (random, sampler) = (Random::new(seed << 16 | at), Sampler::new(at));
        Thread { engine, mix: mix.clone(), random, sampler, ops: 0, aborts: 0 }
    };
    let mut threads: Vec<_> = (0..crew.size() as u64).map(thread).collect();
    Box::new(move |batch| {
        // As many changes as questions.
        let ops = share(batch, threads.len()).next_multiple_of(2);
        threads.iter_mut().for_each(|thread| thread.ops = ops);
        let time = crew.run(&mut threads)?;
        let samples = threads.iter_mut().flat_map(|thread| thread.sampler.take()).collect();
        let aborts = threads.iter_mut().map(|thread| std::mem::take(&mut thread.aborts)).sum();
        Ok(Batch { time, ops: Some(ops * threads.len() as u64), aborts, samples, ..Batch::default() })
    })
}

#[cfg(test)]
mod tests {
    use heap::Policy;

    use super::*;
    use crate::contest::testing::tiny;

    fn small() -> Structures {
        Structures { keys: 200, list_keys: 30, value_bytes: 40, degree: 3, ..Structures::default() }
    }

    #[test]
    fn every_structure_on_every_policy() {
        let others = [Contestant::Partial(5), Contestant::Reference];
        let who: Vec<_> = Policy::ALL.into_iter().map(Contestant::Heap).chain(others).collect();
        let rows = small().measure(&tiny(&who, &[1, 2]), &()).unwrap();
        assert_eq!(rows.len(), Shape::ALL.len() * who.len() * 2);
        for row in &rows {
            assert!(row.ops > 0 && row.p99_ns.is_some() && row.missing.is_none(), "{row:?}");
            assert_eq!(row.barriers_per_op.is_some(), row.engine != "reference", "{row:?}");
        }
        // Half of the operations are changes, of three barriers.
        let undo = |row: &&Row| row.engine == "undo" && row.threads == 1;
        for row in rows.iter().filter(undo) {
            let barriers = row.barriers_per_op.unwrap();
            assert!((1.5..1.7).contains(&barriers), "{:?}: {barriers}", row.structure);
        }
    }

    #[test]
    fn who_has_no_transactions_is_refused() {
        let error = small().measure(&tiny(&[Contestant::Bare], &[1]), &()).unwrap_err();
        assert!(error.to_string().contains("bare does not run"), "{error}");
        assert_eq!("treap".parse(), Ok(Shape::Treap));
        assert!("tree".parse::<Shape>().unwrap_err().contains("bst, treap"));
    }
}
