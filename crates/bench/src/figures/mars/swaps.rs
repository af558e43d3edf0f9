//! Two records of a table change places: MARS beside ARIES.

use std::path::Path;

use eaw::aries::{self, Aries};
use eaw::mars::{self, Mars};
use eaw::records::{RecordId, RecordTx, Records, Table};
use pmem::Stats;

use super::Setting;
use crate::contest::share;
use crate::crew::{Crew, Worker, with_crew};
use crate::limits::disk;
use crate::workload::Random;
use crate::{Batch, Error, Result, Row, Side, Watch, machine, run_watched};

/// Bytes of all records together.
const TABLE_BYTES: usize = 32 << 20;
const LOG_BYTES: u64 = 64 << 20;
/// So often all records are written before anything is measured: each page of either log was touched by then.
const PASSES: u64 = 4;

/// Of each size by each number of threads, in memory and on a disk.
pub(super) fn measure(setting: &Setting, watch: &dyn Watch, row: &Row) -> Result<Vec<Row>> {
    let sizes = setting.cases(&[4 << 10, 16 << 10, 64 << 10], &[4 << 10, 64 << 10]);
    let threads = setting.cases(&[1, 2, 4, 8, 16], &[1, 2]);
    let dirs = setting.cases(&[setting.dir.clone(), disk()], std::slice::from_ref(&setting.dir));
    watch.begin("swaps", (dirs.len() * sizes.len() * threads.len() * setting.plan.rounds()) as u64);
    let mut rows = Vec::new();
    for dir in &dirs {
        for bytes in &sizes {
            let folder = tempfile::Builder::new()
                .prefix("cairn-bench-")
                .tempdir_in(dir)
                .map_err(|source| Error::Io { op: "make a temporary directory", path: dir.clone(), source })?;
            let aries = filled(aries(folder.path(), *bytes)?, *bytes)?;
            let mars = filled(mars(folder.path())?, *bytes)?;
            for threads in &threads {
                let row = Row { medium: machine::medium(dir), ..row.clone().param("bytes", *bytes).threads(*threads) };
                rows.extend(with_crew(*threads, |crew| {
                    let named = |engine: &str| Row { engine: engine.into(), ..row.clone() };
                    let sides = vec![
                        side(named("aries"), crew, &aries, *bytes, |store: &Aries| store.stats()),
                        side(named("mars"), crew, &mars, *bytes, |store: &Mars| store.array().stats()),
                    ];
                    run_watched(&setting.plan.by(*threads), sides, Some(0), watch)
                })?);
            }
        }
    }
    Ok(rows)
}

/// A record to a page, all pages in memory.
fn aries(folder: &Path, bytes: usize) -> Result<Aries> {
    let page = bytes as u64 + 128;
    let pages = TABLE_BYTES / bytes + 64;
    let options = aries::Options::new().page_bytes(page).segment_bytes(page * pages as u64).buffer_pages(2 * pages);
    Ok(options.log_bytes(LOG_BYTES).create(folder.join("aries"))?)
}

fn mars(folder: &Path) -> Result<Mars> {
    let array = eaw::array::Options::new().log_bytes(LOG_BYTES).create(&[folder.join("mars")])?;
    Ok(mars::Options::new().segment_bytes(2 * TABLE_BYTES as u64).create(array)?)
}

/// A store with its records.
struct Filled<S> {
    store: S,
    table: Table,
    ids: Vec<RecordId>,
}

fn filled<S: Records>(store: S, bytes: usize) -> Result<Filled<S>> {
    let table = store.create_table("objects")?;
    let (count, together) = (TABLE_BYTES / bytes, (1 << 20) / bytes);
    let (mut ids, mut record) = (Vec::with_capacity(count), vec![0; bytes]);
    for pass in 0..PASSES {
        let mut random = Random::new(pass);
        for first in (0..count).step_by(together) {
            let mut tx = store.begin()?;
            for at in first..count.min(first + together) {
                // All of it differs from any other: a log may be of what differs.
                record.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.any().to_le_bytes()));
                match ids.get(at) {
                    Some(id) => tx.update(table, *id, &record)?,
                    None => ids.push(tx.insert(table, &record)?),
                }
            }
            tx.commit()?;
        }
    }
    store.checkpoint()?;
    Ok(Filled { store, table, ids })
}

fn side<'c, 'env, S: Records>(
    row: Row,
    crew: &'c Crew<'env>,
    filled: &'env Filled<S>,
    bytes: usize,
    stats: fn(&S) -> Stats,
) -> Side<'c> {
    let mut workers: Vec<_> = (0..crew.size() as u64)
        .map(|thread| Swapper { filled, random: Random::new(thread), records: Default::default(), todo: 0 })
        .collect();
    let side = Side::new(row, move |batch| {
        let share = share(batch, workers.len());
        workers.iter_mut().for_each(|worker| worker.todo = share);
        let before = stats(&filled.store);
        let time = crew.run(&mut workers)?;
        let counts = Some(stats(&filled.store) - before);
        Ok(Batch { time, ops: Some(share * workers.len() as u64), counts, ..Batch::default() })
    });
    side.op_bytes(2 * bytes as u64)
}

struct Swapper<'a, S> {
    filled: &'a Filled<S>,
    random: Random,
    records: [Vec<u8>; 2],
    todo: u64,
}

impl<S: Records> Worker for Swapper<'_, S> {
    fn work(&mut self) -> Result<()> {
        let Filled { store, table, ids } = self.filled;
        let [one, other] = &mut self.records;
        for _ in 0..self.todo {
            // In the order of their numbers, so that none waits for another in a circle.
            let count = ids.len() as u64;
            let first = self.random.below(count - 1);
            let second = first + 1 + self.random.below(count - first - 1);
            let [first, second] = [first, second].map(|at| ids[at as usize]);
            let mut tx = store.begin()?;
            tx.read_for_update(*table, first, one)?;
            tx.read_for_update(*table, second, other)?;
            tx.update(*table, first, other)?;
            tx.update(*table, second, one)?;
            tx.commit()?;
        }
        Ok(())
    }
}
