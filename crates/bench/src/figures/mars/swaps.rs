//! Two records of a table change places: MARS beside ARIES, and beside databases that users know.

use std::path::Path;

use eaw::aries::{self, Aries};
use eaw::mars::{self, Mars};
use eaw::records::{RecordId, RecordTx, Records, Table};
use peers::Peer;
use peers::kv::{How, Level};
use pmem::Stats;
use tx::{Backoff, RetryPolicy};

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
/// Those that are in this build.
const PEERS: [Peer; 2] = [Peer::BerkeleyDb, Peer::Sqlite];

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
            let peers = PEERS.iter().map(|peer| Known::open(*peer, folder.path(), *bytes));
            let peers = peers.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
            for threads in &threads {
                let row = Row { medium: machine::medium(dir), ..row.clone().param("bytes", *bytes).threads(*threads) };
                rows.extend(with_crew(*threads, |crew| {
                    let named = |engine: &str| Row { engine: engine.into(), ..row.clone() };
                    let mut sides = vec![
                        side(named("aries"), crew, &aries, *bytes, |store| Some(store.store.stats()))?,
                        side(named("mars"), crew, &mars, *bytes, |store| Some(store.store.array().stats()))?,
                    ];
                    for peer in &peers {
                        sides.push(side(named(peer.peer.name()), crew, peer, *bytes, |_| None)?);
                    }
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

/// Records that can change places.
trait Swaps: Sync {
    /// What one thread has for that.
    type Way<'a>: Send
    where
        Self: 'a;

    fn way(&self) -> Result<Self::Way<'_>>;

    fn count(&self) -> usize;

    /// Those two, in one transaction. In the order of their numbers, so that none waits for another in a circle.
    fn swap(&self, way: &mut Self::Way<'_>, first: usize, second: usize) -> Result<()>;
}

/// A store of ours with its records.
struct Filled<S> {
    store: S,
    table: Table,
    ids: Vec<RecordId>,
}

fn filled<S: Records>(store: S, bytes: usize) -> Result<Filled<S>> {
    let table = store.create_table("objects")?;
    let mut ids: Vec<RecordId> = Vec::with_capacity(TABLE_BYTES / bytes);
    fill(bytes, |records| {
        let mut tx = store.begin()?;
        for (at, record) in records {
            match ids.get(*at) {
                Some(id) => tx.update(table, *id, record)?,
                None => ids.push(tx.insert(table, record)?),
            }
        }
        Ok(tx.commit()?)
    })?;
    store.checkpoint()?;
    Ok(Filled { store, table, ids })
}

/// Records for all places, again and again, some of them at a time. All of one differs from any other: a log may be of what differs.
fn fill(bytes: usize, mut write: impl FnMut(&[(usize, &[u8])]) -> Result<()>) -> Result<()> {
    let (count, together) = (TABLE_BYTES / bytes, (1 << 20) / bytes);
    let mut records = vec![0; bytes * together];
    for pass in 0..PASSES {
        let mut random = Random::new(pass);
        for first in (0..count).step_by(together) {
            records.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.any().to_le_bytes()));
            write(&(first..count).zip(records.chunks_exact(bytes)).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

impl<S: Records> Swaps for Filled<S> {
    type Way<'a>
        = [Vec<u8>; 2]
    where
        Self: 'a;

    fn way(&self) -> Result<[Vec<u8>; 2]> {
        Ok(Default::default())
    }

    fn count(&self) -> usize {
        self.ids.len()
    }

    fn swap(&self, [one, other]: &mut [Vec<u8>; 2], first: usize, second: usize) -> Result<()> {
        let Self { store, table, ids } = self;
        let [first, second] = [first, second].map(|at| ids[at]);
        let mut tx = store.begin()?;
        tx.read_for_update(*table, first, one)?;
        tx.read_for_update(*table, second, other)?;
        tx.update(*table, first, other)?;
        tx.update(*table, second, one)?;
        Ok(tx.commit()?)
    }
}

/// A database that users know.
struct Known {
    peer: Peer,
    store: Box<dyn peers::kv::Store>,
    bytes: usize,
}

const HOW: How = How { level: Level::Serializable, read_only: false };

/// In the order of numbers.
fn key(at: usize) -> [u8; 8] {
    (at as u64).to_be_bytes()
}

impl Known {
    /// With its records; none if it is not in this build.
    fn open(peer: Peer, folder: &Path, bytes: usize) -> Result<Option<Self>> {
        let dir = folder.join(peer.name());
        std::fs::create_dir(&dir).map_err(|source| Error::Io { op: "make a directory", path: dir.clone(), source })?;
        let room = peers::kv::Room { bytes: TABLE_BYTES as u64, sessions: 64 };
        let Some(store) = peer.open(&dir, room)? else { return Ok(None) };
        let mut session = store.session()?;
        fill(bytes, |records| {
            Ok(session
                .transact(HOW, &mut |tx| records.iter().try_for_each(|(at, record)| tx.put(&key(*at), record)))?)
        })?;
        drop(session);
        Ok(Some(Self { peer, store, bytes }))
    }
}

impl Swaps for Known {
    type Way<'a> = (Box<dyn peers::kv::Session>, [Vec<u8>; 2]);

    fn way(&self) -> Result<Self::Way<'_>> {
        Ok((self.store.session()?, [0, 0].map(|byte| vec![byte; self.bytes])))
    }

    fn count(&self) -> usize {
        TABLE_BYTES / self.bytes
    }

    fn swap(&self, (session, [one, other]): &mut Self::Way<'_>, first: usize, second: usize) -> Result<()> {
        let (first, second) = (key(first), key(second));
        let mut backoff = Backoff::new(RetryPolicy::default());
        loop {
            let mut found = false;
            let done = session.transact(HOW, &mut |tx| {
                found = tx.get(&first, one)?.is_some() && tx.get(&second, other)?.is_some();
                tx.put(&first, other)?;
                tx.put(&second, one)
            });
            match done {
                Ok(()) if !found => {
                    return Err(Error::Wrong { who: self.peer.to_string(), what: "a record is not there".into() });
                }
                Err(error) if error.is_conflict() && backoff.wait() => {}
                done => return Ok(done?),
            }
        }
    }
}

fn side<'c, 'env, S: Swaps>(
    row: Row,
    crew: &'c Crew<'env>,
    store: &'env S,
    bytes: usize,
    stats: fn(&S) -> Option<Stats>,
) -> Result<Side<'c>> {
    let worker = |thread| Ok(Swapper { store, random: Random::new(thread), way: store.way()?, todo: 0 });
    let mut workers = (0..crew.size() as u64).map(worker).collect::<Result<Vec<_>>>()?;
    let side = Side::new(row, move |batch| {
        let share = share(batch, workers.len());
        workers.iter_mut().for_each(|worker| worker.todo = share);
        let before = stats(store);
        let time = crew.run(&mut workers)?;
        let counts = stats(store).zip(before).map(|(after, before)| after - before);
        Ok(Batch { time, ops: Some(share * workers.len() as u64), counts, ..Batch::default() })
    });
    Ok(side.op_bytes(2 * bytes as u64))
}

struct Swapper<'a, S: Swaps + 'a> {
    store: &'a S,
    random: Random,
    way: S::Way<'a>,
    todo: u64,
}

impl<S: Swaps> Worker for Swapper<'_, S> {
    fn work(&mut self) -> Result<()> {
        for _ in 0..self.todo {
            let count = self.store.count() as u64;
            let first = self.random.below(count - 1);
            let second = first + 1 + self.random.below(count - first - 1);
            self.store.swap(&mut self.way, first as usize, second as usize)?;
        }
        Ok(())
    }
}
