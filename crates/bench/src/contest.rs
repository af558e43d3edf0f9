//! What is compared, where and how long: what all experiments on transactions have in common.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::crew::{Crew, with_crew};
use crate::engines::{Contestant, Made, Room};
use crate::{Error, Plan, Result, Row, Side, Watch, machine, run_watched};

/// The part of an experiment that does not depend on which it is.
#[derive(Clone, Debug)]
pub struct Contest {
    /// Where pools go, and the peers' files.
    pub dir: PathBuf,
    /// The contestants, in the order of the rows.
    pub who: Vec<Contestant>,
    /// The one that the others are compared with; by default the first peer, else `none`, else the first.
    pub baseline: Option<Contestant>,
    /// Numbers of threads, one after the other.
    pub threads: Vec<usize>,
    /// How much to measure.
    pub plan: Plan,
    /// The same seed does the same.
    pub seed: u64,
}

/// Contestants set up for some comparisons. Their files go with it.
pub(crate) struct Arena {
    /// Declared before the folder, so that pools are closed before their files go.
    made: Vec<(Contestant, Made)>,
    missing: Vec<(Contestant, String)>,
    _folder: TempDir,
}

impl Arena {
    pub(crate) fn made(&self) -> impl Iterator<Item = &Made> {
        self.made.iter().map(|(_, made)| made)
    }
}

impl Contest {
    /// All policies, in memory if there is some, by one and two threads.
    #[must_use]
    pub fn here(plan: Plan) -> Self {
        let is_policy = |who: &Contestant| matches!(who, Contestant::Heap(_) | Contestant::Partial(5));
        let who = Contestant::ENGINES.into_iter().filter(is_policy);
        Self { dir: memory(), who: who.collect(), baseline: None, threads: vec![1, 2], plan, seed: 1 }
    }

    /// Tells `watch` how many rounds `groups` comparisons for each number of threads will take.
    pub(crate) fn announce(&self, what: &str, groups: usize, watch: &dyn Watch) {
        watch.begin(what, (groups * self.threads.len() * self.plan.rounds()) as u64);
    }

    /// Sets all contestants up.
    pub(crate) fn arena(&self, room: Room) -> Result<Arena> {
        let folder = folder(&self.dir)?;
        let (mut made, mut missing) = (Vec::new(), Vec::new());
        for who in self.who.iter().copied() {
            match Made::new(who, folder.path(), room)? {
                Ok(contestant) => made.push((who, contestant)),
                Err(why) => missing.push((who, why)),
            }
        }
        Ok(Arena { made, missing, _folder: folder })
    }

    /// One comparison: measures the side that `side` makes of each contestant (the first argument counts them), and adds those that are
    /// missing. `row` is what their rows begin as.
    pub(crate) fn compare<'env>(
        &self,
        arena: &'env Arena,
        row: &Row,
        watch: &dyn Watch,
        side: impl for<'c> Fn(usize, &'env Made, &'c Crew<'env>, Row) -> Result<Side<'c>>,
    ) -> Result<Vec<Row>> {
        let row = Row { medium: machine::medium(&self.dir), ..row.clone() };
        let named = |who: Contestant| Row { engine: who.name().into(), ..row.clone() };
        let mut rows = with_crew(row.threads, |crew| {
            let mut sides = Vec::new();
            for (at, (who, made)) in arena.made.iter().enumerate() {
                let side = side(at, made, crew, Row { domain: made.domain(), ..named(*who) })?;
                sides.push(match made.pool() {
                    Some(pool) => side.counted(pool),
                    None => side,
                });
            }
            run_watched(&self.plan, sides, self.baseline(arena), watch)
        })?;
        rows.extend(arena.missing.iter().map(|(who, why)| named(*who).missing(why)));
        Ok(rows)
    }

    /// Which of those that are there the others are compared with.
    fn baseline(&self, arena: &Arena) -> Option<usize> {
        let index_of = |like: &dyn Fn(Contestant) -> bool| arena.made.iter().position(|(who, _)| like(*who));
        match self.baseline {
            Some(wanted) => index_of(&|who| who == wanted),
            None => index_of(&Contestant::is_peer).or_else(|| index_of(&|who| who == NONE)).or(Some(0)),
        }
    }
}

const NONE: Contestant = Contestant::Heap(heap::Policy::None);

/// A directory in memory, if there is one.
pub(crate) fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// A temporary folder in `dir`.
pub(crate) fn folder(dir: &Path) -> Result<TempDir> {
    tempfile::Builder::new().prefix("cairn-bench-").tempdir_in(dir).map_err(|source| Error::Io {
        op: "make a temporary directory",
        path: dir.to_owned(),
        source,
    })
}

/// The work of each thread; together a little more than the batch if it does not divide.
pub(crate) fn share(batch: u64, threads: usize) -> u64 {
    batch.div_ceil(threads as u64)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Real runs in miniature, on the engines in memory.
    pub(crate) fn tiny(who: &[Contestant], threads: &[usize]) -> Contest {
        let plan = Plan { batch_time: std::time::Duration::from_micros(100), ..Plan::quick() };
        Contest { who: who.to_vec(), threads: threads.to_vec(), ..Contest::here(plan) }
    }
}
