//! `smallbank`: the six procedures, on accounts in a structure of any engine, or in the store `kv`. When the rounds are over, the money that there is is held
//! against what was put in and taken out.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use structures::{BTree, BTreeOptions, HashMap, HashMapOptions};
use tx::Engine;

use crate::contest::{Contest, share};
use crate::crew::{Crew, Worker};
use crate::engines::{Contestant, Made, Room, Structure};
use crate::experiments::ycsb::Work;
use crate::latency::Sampler;
use crate::workload::Random;
use crate::workload::smallbank::{Bank, InKeys, InObjects, Open, Procedure, audit};
use crate::{Batch, Error, Result, Row, Side, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "smallbank";

/// What to measure.
#[derive(Clone, Debug)]
pub struct SmallBank {
    /// Structures that lead to accounts; the store `kv` has its own, and stands beside each.
    pub structures: Vec<Structure>,
    /// The bank.
    pub bank: Bank,
}

impl Default for SmallBank {
    fn default() -> Self {
        Self { structures: Structure::ALL.to_vec(), bank: Bank::default() }
    }
}

/// Fewest customers, of whom two are always different; most that names have digits for.
const CUSTOMERS: std::ops::RangeInclusive<u64> = 10..=99_999_999;

impl SmallBank {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants; money that is not there, or too much of it; too few customers.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        let Bank { customers, hot, hot_percent } = self.bank;
        if !CUSTOMERS.contains(&customers) || hot < 2 || hot_percent > 100 {
            let why = format!(
                "SmallBank: {customers} customers, {hot} of them hot, {hot_percent} %; expected {} to {}, 2 at least, 100 % at most",
                CUSTOMERS.start(),
                CUSTOMERS.end(),
            );
            return Err(Error::Parameter(why));
        }
        contest.announce(EXPERIMENT, self.structures.len(), watch);
        let mut rows = Vec::new();
        for structure in self.structures.iter().copied() {
            rows.extend(self.structure(structure, contest, watch)?);
        }
        Ok(rows)
    }

    fn structure(&self, structure: Structure, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        let Some(threads_max) = contest.threads.iter().copied().max() else { return Ok(vec![]) };
        let (who, unable): (Vec<_>, Vec<_>) = contest.who.iter().partition(|who| able(**who));
        let contest = &Contest { who, ..contest.clone() };
        // Two rows; three pairs with what leads to them.
        let customers = self.bank.customers;
        let stored = customers * if structure == Structure::BTree { 125 } else { 220 };
        let room = Room { bytes: customers * 400, stored, blocks: customers * 8, threads: threads_max };
        let gained: Vec<_> = contest.who.iter().map(|_| AtomicI64::new(0)).collect();
        let arena = contest.arena(room)?;
        let open = |made| open(made, structure, &self.bank);
        let banks = arena.made().map(open).collect::<Result<Vec<_>>>()?;
        let mut rows = Vec::new();
        for threads in contest.threads.iter().copied() {
            let row = self.row(structure, threads);
            rows.extend(contest.compare(&arena, &row, watch, |at, _, crew, row| {
                Ok(Side::new(row, tellers(&*banks[at], self.bank, contest.seed, &gained[at], crew)))
            })?);
            let missing = |who: &Contestant| Row { engine: who.name().into(), ..row.clone() }.missing(UNABLE);
            rows.extend(unable.iter().map(missing));
        }
        for ((who, bank), gained) in contest.who.iter().zip(&banks).zip(&gained) {
            audit(who.name(), &self.bank, &bank.books()?, gained.load(Relaxed))?;
        }
        Ok(rows)
    }

    fn row(&self, structure: Structure, threads: usize) -> Row {
        Row::new(EXPERIMENT, "")
            .structure(structure.name())
            .threads(threads)
            .param("customers", self.bank.customers)
            .param("hot", self.bank.hot)
            .param("hot_percent", self.bank.hot_percent)
    }
}

const UNABLE: &str = "SmallBank is written for our engines and kv";

fn able(who: Contestant) -> bool {
    matches!(
        who,
        Contestant::Heap(_) | Contestant::Partial(_) | Contestant::Mvcc | Contestant::Reference | Contestant::Kv
    )
}

fn open<'e>(made: &'e Made, structure: Structure, bank: &Bank) -> Result<Box<dyn Open + 'e>> {
    match made {
        Made::Heap(engine) => in_objects(engine, structure, bank),
        Made::Mvcc(engine) => in_objects(engine, structure, bank),
        Made::Reference(engine) => in_objects(engine, structure, bank),
        Made::Kv(store) => Ok(Box::new(InKeys::populate(store, bank)?)),
        _ => Err(Error::Parameter(UNABLE.into())),
    }
}

fn in_objects<'e, E: Engine + Sync>(engine: &'e E, structure: Structure, bank: &Bank) -> Result<Box<dyn Open + 'e>> {
    Ok(match structure {
        Structure::HashMap => {
            let options = HashMapOptions::new().capacity(bank.customers);
            Box::new(InObjects::populate(engine, bank, |tx| HashMap::create(tx, &options))?)
        }
        Structure::BTree => {
            let options = BTreeOptions::new().key_max(16);
            Box::new(InObjects::populate(engine, bank, |tx| BTree::create(tx, &options))?)
        }
    })
}

/// Procedures are made up before the clock runs.
fn tellers<'c, 'env>(
    open: &'env dyn Open,
    bank: Bank,
    seed: u64,
    gained: &'env AtomicI64,
    crew: &'c Crew<'env>,
) -> Work<'c> {
    let teller = |at: usize| {
        let random = Random::new(seed ^ (at as u64 + 1) << 32);
        Teller { open, random, todo: Vec::new(), sampler: Sampler::new(at as u64), gained: 0, aborts: 0 }
    };
    let mut tellers: Vec<_> = (0..crew.size()).map(teller).collect();
    Box::new(move |batch| {
        let share = share(batch, tellers.len());
        for teller in &mut tellers {
            teller.todo.clear();
            teller.todo.extend((0..share).map(|_| bank.next(&mut teller.random)));
        }
        let time = crew.run(&mut tellers)?;
        let samples = tellers.iter_mut().flat_map(|teller| teller.sampler.take()).collect();
        let aborts = tellers.iter_mut().map(|teller| std::mem::take(&mut teller.aborts)).sum();
        gained.fetch_add(tellers.iter_mut().map(|teller| std::mem::take(&mut teller.gained)).sum(), Relaxed);
        Ok(Batch { time, ops: Some(share * tellers.len() as u64), aborts, samples, ..Batch::default() })
    })
}

/// One thread.
struct Teller<'e> {
    open: &'e dyn Open,
    random: Random,
    todo: Vec<Procedure>,
    sampler: Sampler,
    gained: i64,
    aborts: u64,
}

impl Worker for Teller<'_> {
    fn work(&mut self) -> Result<()> {
        let Self { open, todo, sampler, gained, aborts, .. } = self;
        todo.iter().try_for_each(|procedure| {
            let done = sampler.op(|| open.run(procedure))?;
            *gained += done.gained;
            *aborts += done.aborts;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use heap::Policy;

    use super::*;
    use crate::contest::testing::tiny;

    #[test]
    fn every_engine_on_both_structures() {
        let others = [Contestant::Partial(5), Contestant::Kv, Contestant::Reference, Contestant::Pmemobj];
        let who: Vec<_> = Policy::ALL.map(Contestant::Heap).into_iter().chain(others).collect();
        let run = SmallBank { bank: Bank { customers: 400, ..Bank::default() }, ..SmallBank::default() };
        let rows = run.measure(&tiny(&who, &[1, 2]), &()).unwrap();
        assert_eq!(rows.len(), 2 * 2 * who.len());
        for row in &rows {
            assert_eq!((row.missing.is_some(), row.ops == 0), (row.engine == "pmemobj", row.engine == "pmemobj"));
        }
    }

    #[test]
    fn too_few_customers() {
        let run = SmallBank { bank: Bank { customers: 3, ..Bank::default() }, ..SmallBank::default() };
        let error = run.measure(&tiny(&[Contestant::Reference], &[1]), &()).unwrap_err();
        assert!(error.to_string().contains("3 customers"), "{error}");
    }
}
