//! The header's own updates: regions that are added and grown, a pool that grows and shrinks, a clean close.

use std::collections::BTreeMap;
use std::sync::Arc;

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use pmem::{Pool, Result};

use super::{create, open, refused};

/// A pool whose regions come and grow.
pub struct Growth;

/// One change of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new region of a page with this number.
    Add(u8),
    /// A page more for the region with this number, if there is one.
    Grow(u8),
    /// The space behind the last region goes.
    Shrink,
}

const PAGE: u64 = 4096;
const CAPACITY: u64 = 128 << 10;

/// Bytes by region.
type Directory = BTreeMap<String, u64>;

fn directory(pool: &Pool) -> Directory {
    let mut found = Directory::new();
    for region in pool.info().regions {
        *found.entry(region.name).or_default() += region.len;
    }
    found
}

fn name(region: u8) -> String {
    format!("region-{region}")
}

fn apply(directory: &mut Directory, change: Change) {
    match change {
        Change::Add(region) => {
            directory.entry(name(region)).or_insert(PAGE);
        }
        Change::Grow(region) => {
            if let Some(bytes) = directory.get_mut(&name(region)) {
                *bytes += PAGE;
            }
        }
        Change::Shrink => {}
    }
}

impl Scenario for Growth {
    type Op = Change;
    type Effect = Change;
    type State = (Directory, Vec<u8>);
    type Live = Pool;

    fn name(&self) -> &str {
        "growth"
    }

    fn capacity(&self) -> u64 {
        CAPACITY
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        Ok(create(sim)?.close()?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Pool, Error> {
        Ok(open(sim)?)
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Change)> {
        let mut ops = vec![
            (0, Change::Add(0)),
            (0, Change::Add(1)),
            (0, Change::Grow(0)),
            (0, Change::Shrink),
            (0, Change::Grow(1)),
        ];
        ops.extend((2..5).map(|i| {
            let change = [Change::Add(i), Change::Grow(rng.below(u64::from(i)) as u8), Change::Shrink][rng.index(3)];
            (0, change)
        }));
        ops
    }

    fn step(&self, pool: &Pool, _thread: usize, op: &Change, ack: &Ack<Change>) -> Result<(), Error> {
        let ticket = ack.begin(*op);
        match *op {
            Change::Add(region) if !directory(pool).contains_key(&name(region)) => {
                let mut area = pool.add_region(&name(region), PAGE)?.into_area()?;
                // What a region holds follows it: a mark that must be there or not yet.
                let _persisted = area.publish(0, u64::from(region) + 1)?;
            }
            Change::Grow(region) if directory(pool).contains_key(&name(region)) => {
                let mut region = pool.region(&name(region))?;
                pool.grow_region(&mut region, PAGE)?;
            }
            Change::Shrink => {
                pool.shrink_to_fit()?;
            }
            Change::Add(_) | Change::Grow(_) => {}
        }
        ack.commit(ticket);
        Ok(())
    }

    fn finish(&self, pool: Pool) -> Result<(), Error> {
        Ok(pool.close()?)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Change>) -> Result<Self::State, Violation> {
        let pool = open(sim).map_err(refused)?;
        let mut before = Directory::new();
        for change in &history.acknowledged {
            apply(&mut before, *change);
        }
        let mut after = before.clone();
        for change in &history.in_doubt {
            apply(&mut after, *change);
        }
        let found = directory(&pool);
        if found != before && found != after {
            return Err(Violation::new(format!("the directory is {found:?}, expected {before:?} or {after:?}")));
        }
        let marks = found.keys().map(|name| mark(&pool, name, before.contains_key(name))).collect::<Result<_, _>>()?;
        Ok((found, marks))
    }
}

/// The mark of a region, and that all else in it is zero.
fn mark(pool: &Pool, name: &str, acknowledged: bool) -> Result<u8, Violation> {
    let region = pool.region(name).map_err(refused)?;
    let expected: u64 = name.trim_start_matches("region-").parse().unwrap_or(0) + 1;
    let mark = *region.areas()[0].get::<u64>(0).map_err(refused)?;
    if mark != expected && (acknowledged || mark != 0) {
        return Err(Violation::new(format!("{name} holds {mark}, expected {expected}")));
    }
    for (part, area) in region.areas().iter().enumerate() {
        let from = if part == 0 { 8 } else { 0 };
        let bytes = area.bytes(from, (area.len() - from) as usize).map_err(refused)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Err(Violation::new(format!("{name}, part {part}: byte {at} of new space is not zero")));
        }
    }
    Ok(mark as u8)
}
