//! `tpcc`: the standard's five transactions, or one of the two that write most. A thread is a terminal with a warehouse of its own. When the rounds are
//! over, every contestant's rows are held against the consistency conditions.

use heap::Policy;
use structures::{BTree, HashMap};
use tx::Engine;

use crate::contest::{Contest, share};
use crate::crew::{Crew, Worker};
use crate::engines::{Contestant, Made, Room, Structure};
use crate::experiments::ycsb::Work;
use crate::latency::Sampler;
use crate::workload::tpcc::{self, Declare, Input, Keyed, Mix, Scale, Style, Tables, Terminal};
use crate::{Batch, Error, Plan, Result, Row, Side, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "tpcc";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Tpcc {
    /// Which transactions.
    pub mixes: Vec<Mix>,
    /// How changes are declared.
    pub declare: Vec<Declare>,
    /// What tables are in that are only looked up by key; the others are in B+trees.
    pub structures: Vec<Structure>,
    /// How many rows; at least as many warehouses as threads are made.
    pub scale: Scale,
}

impl Default for Tpcc {
    fn default() -> Self {
        Self {
            mixes: vec![Mix::Standard],
            declare: vec![Declare::Together],
            structures: vec![Structure::HashMap],
            scale: Scale::default(),
        }
    }
}

/// Fewest rows whose inputs still differ.
const LEAST: Scale = Scale { warehouses: 1, customers: 10, items: 20 };
/// Most that keys and inputs have bits for.
const MOST: Scale = Scale { warehouses: u16::MAX as u32, customers: 1 << 20, items: 1 << 28 };
/// As long as rounds of other experiments: one transaction in twenty-five takes as long as a hundred others.
const LONGER: u32 = 5;

impl Tpcc {
    /// Measures. Rounds are five times as long as the contest says.
    ///
    /// # Errors
    /// Those of the contestants; rows of which a consistency condition does not hold; too few rows to ask for.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        let Some(threads_max) = contest.threads.iter().copied().max() else { return Ok(vec![]) };
        let scale = Scale { warehouses: self.scale.warehouses.max(threads_max as u32), ..self.scale };
        for (what, found, least, most) in [
            ("warehouses", scale.warehouses, LEAST.warehouses, MOST.warehouses),
            ("customers", scale.customers, LEAST.customers, MOST.customers),
            ("items", scale.items, LEAST.items, MOST.items),
        ] {
            if !(least..=most).contains(&found) {
                return Err(Error::Parameter(format!("TPC-C: {found} {what}; expected {least} to {most}")));
            }
        }
        let (who, unable): (Vec<_>, Vec<_>) = contest.who.iter().partition(|who| {
            matches!(who, Contestant::Heap(_) | Contestant::Partial(_) | Contestant::Mvcc | Contestant::Reference)
        });
        let plan = Plan { batch_time: contest.plan.batch_time * LONGER, ..contest.plan };
        let contest = &Contest { who, plan, ..contest.clone() };
        contest.announce(EXPERIMENT, self.structures.len() * self.mixes.len() * self.declare.len(), watch);
        let mut rows = Vec::new();
        for structure in &self.structures {
            let cases = self.cases(contest, scale, *structure);
            rows.extend(match structure {
                Structure::HashMap => compare::<HashMap>(contest, &cases, scale, &unable, watch)?,
                Structure::BTree => compare::<BTree>(contest, &cases, scale, &unable, watch)?,
            });
        }
        Ok(rows)
    }

    fn cases(&self, contest: &Contest, scale: Scale, structure: Structure) -> Vec<Case> {
        let of = |threads: usize, mix, declare| Case { scale, structure, mix, declare, threads, seed: contest.seed };
        let threads = contest.threads.iter();
        let mixes = threads.flat_map(|threads| self.mixes.iter().map(move |mix| (*threads, *mix)));
        mixes.flat_map(|(threads, mix)| self.declare.iter().map(move |declare| of(threads, mix, *declare))).collect()
    }
}

/// All cases on one set of tables.
fn compare<M: Keyed>(
    contest: &Contest,
    cases: &[Case],
    scale: Scale,
    unable: &[Contestant],
    watch: &dyn Watch,
) -> Result<Vec<Row>> {
    let threads = cases.iter().map(|case| case.threads).max().unwrap_or(1);
    let (bytes, blocks) = scale.room(orders_max(contest.plan, cases.len(), threads));
    let (stored, _) = scale.room(0);
    let arena = contest.arena(Room { bytes, stored, blocks, threads })?;
    let tables = arena.made().map(|made| populate::<M>(made, scale, contest.seed)).collect::<Result<Vec<_>>>()?;
    // New rows go to pages that the kernel has made: it would be most of what is measured.
    arena.made().filter_map(Made::pool).for_each(|pool| pool.populate(0, pool.size()));
    let mut rows = Vec::new();
    for case in cases {
        let row = case.row();
        rows.extend(contest.compare(&arena, &row, watch, |at, made, crew, row| {
            Ok(Side::new(row, case.work(made, &tables[at], crew)?))
        })?);
        let missing = |who: &Contestant| Row { engine: who.name().into(), ..row.clone() }.missing(UNABLE);
        rows.extend(unable.iter().map(missing));
    }
    arena.made().zip(&tables).try_for_each(|(made, tables)| check(made, tables))?;
    Ok(rows)
}

const UNABLE: &str = "TPC-C is written for our engines";

/// About as many as an engine takes in all rounds, at one in 10 µs.
fn orders_max(plan: Plan, cases: usize, threads: usize) -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(threads);
    let rounds = (plan.rounds() + 5) * cases * cores; // finding the size of a batch takes as much as a few of them
    plan.batch_time.as_micros() as u64 / 10 * rounds as u64
}

fn populate<M: Keyed>(made: &Made, scale: Scale, seed: u64) -> Result<Tables<M>> {
    match made {
        Made::Heap(engine) => Tables::populate(engine, scale, seed),
        Made::Mvcc(engine) => Tables::populate(engine, scale, seed),
        Made::Reference(engine) => Tables::populate(engine, scale, seed),
        _ => Err(Error::Parameter(UNABLE.into())),
    }
}

fn check<M: Keyed>(made: &Made, tables: &Tables<M>) -> Result<()> {
    match made {
        Made::Heap(engine) => tpcc::check(engine, tables).map(drop),
        Made::Mvcc(engine) => tpcc::check(engine, tables).map(drop),
        Made::Reference(engine) => tpcc::check(engine, tables).map(drop),
        _ => Err(Error::Parameter(UNABLE.into())),
    }
}

/// What is compared in one group of rows.
#[derive(Clone, Copy)]
struct Case {
    scale: Scale,
    structure: Structure,
    mix: Mix,
    declare: Declare,
    threads: usize,
    seed: u64,
}

impl Case {
    fn row(&self) -> Row {
        Row::new(EXPERIMENT, "")
            .structure(self.structure.name())
            .threads(self.threads)
            .param("mix", self.mix.name())
            .param("declare", self.declare.name())
            .param("warehouses", self.scale.warehouses)
            .param("customers", self.scale.customers)
            .param("items", self.scale.items)
    }

    fn work<'c, 'env, M: Keyed>(
        &self,
        made: &'env Made,
        tables: &'env Tables<M>,
        crew: &'c Crew<'env>,
    ) -> Result<Work<'c>> {
        match made {
            Made::Heap(engine) => Ok(self.clerks(engine, tables, crew)),
            Made::Mvcc(engine) => Ok(self.clerks(engine, tables, crew)),
            Made::Reference(engine) => Ok(self.clerks(engine, tables, crew)),
            _ => Err(Error::Parameter(UNABLE.into())),
        }
    }

    /// Inputs are made up before the clock runs.
    fn clerks<'c, 'env, E: Engine + Sync, M: Keyed>(
        &self,
        engine: &'env E,
        tables: &'env Tables<M>,
        crew: &'c Crew<'env>,
    ) -> Work<'c> {
        let style = Style { rolls_back: engine.name() != Policy::None.name(), ..Style::new(self.declare) };
        let clerk = |at| {
            let terminal = Terminal::new(self.scale, self.mix, at, self.seed);
            let sampler = Sampler::new(at as u64);
            Clerk { engine, tables, style, terminal, inputs: Vec::new(), sampler, aborts: 0 }
        };
        let mut clerks: Vec<_> = (0..self.threads).map(clerk).collect();
        Box::new(move |batch| {
            let share = share(batch, clerks.len());
            for clerk in &mut clerks {
                clerk.inputs.clear();
                clerk.inputs.extend((0..share).map(|_| clerk.terminal.input()));
            }
            let time = crew.run(&mut clerks)?;
            let samples = clerks.iter_mut().flat_map(|clerk| clerk.sampler.take()).collect();
            let aborts = clerks.iter_mut().map(|clerk| std::mem::take(&mut clerk.aborts)).sum();
            Ok(Batch { time, ops: Some(share * clerks.len() as u64), aborts, samples, ..Batch::default() })
        })
    }
}

/// One thread.
struct Clerk<'e, E, M> {
    engine: &'e E,
    tables: &'e Tables<M>,
    style: Style,
    terminal: Terminal,
    inputs: Vec<Input>,
    sampler: Sampler,
    aborts: u64,
}

impl<E: Engine + Sync, M: Keyed> Worker for Clerk<'_, E, M> {
    fn work(&mut self) -> Result<()> {
        let Self { engine, tables, style, inputs, sampler, aborts, .. } = self;
        inputs.iter().try_for_each(|input| {
            *aborts += sampler.op(|| tpcc::run(*engine, tables, input, *style))?.aborts;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::testing::tiny;

    const SMALL: Scale = Scale { warehouses: 1, customers: 20, items: 50 };

    #[test]
    fn every_mix_on_every_engine() {
        let who: Vec<_> = Policy::ALL
            .map(Contestant::Heap)
            .into_iter()
            .chain([Contestant::Partial(2), Contestant::Pmemobj])
            .collect();
        let (mixes, declare, structures) = (Mix::ALL.to_vec(), Declare::ALL.to_vec(), Structure::ALL.to_vec());
        let run = Tpcc { mixes, declare, structures, scale: SMALL };
        let rows = run.measure(&tiny(&who, &[1, 2]), &()).unwrap();
        assert_eq!(rows.len(), 2 * 3 * 2 * 2 * who.len());
        for row in &rows {
            assert_eq!((row.missing.is_some(), row.ops == 0), (row.engine == "pmemobj", row.engine == "pmemobj"));
            assert_eq!(row.params["warehouses"], 2, "a warehouse for each thread");
        }
    }

    #[test]
    fn too_small() {
        let run = Tpcc { scale: Scale { items: 5, ..SMALL }, ..Tpcc::default() };
        let error = run.measure(&tiny(&[Contestant::Reference], &[1]), &()).unwrap_err();
        assert!(error.to_string().contains("5 items; expected 20 to"), "{error}");
    }
}
