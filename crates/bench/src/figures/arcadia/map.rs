//! Figure 10: a map in memory, ordered, whose read-modify-writes go to a log. A lock-free skip list stands in for Masstree.

use std::sync::{Mutex, PoisonError};

use crossbeam_skiplist::SkipMap;

use super::append::{counts, rate};
use super::row;
use crate::contest::{folder, share};
use crate::crew::{Crew, Worker, with_crew};
use crate::experiments::log_append::{Laps, appended, records};
use crate::figures::{Setting, Shown, param};
use crate::latency::Sampler;
use crate::log_sides::{Appender, LogSide as _, Ours, Policy};
use crate::table::{named, pivot};
use crate::workload::Random;
use crate::{Batch, Error, Result, Row, Side, Watch, run_watched};

const VALUE: usize = 64;
/// A key and its new value.
const RECORD: usize = 8 + VALUE;
const ROOM: u64 = 64 << 20;

/// The map: a value has a lock, so that records of one key are in the order of its values.
struct Map(SkipMap<u64, Mutex<[u8; VALUE]>>);

/// A map, and where its changes go, if anywhere.
struct Logged {
    map: Map,
    log: Option<Ours>,
}

impl Map {
    fn new(keys: u64) -> Self {
        Self((0..keys).map(|key| (key, Mutex::new([0; VALUE]))).collect())
    }

    /// Adds one to a value, and calls `under_lock` with it before any other thread sees it.
    fn add_one<R>(&self, key: u64, under_lock: impl FnOnce(&[u8; VALUE]) -> Result<R>) -> Result<R> {
        let lost = || Error::Wrong { who: "the map".into(), what: format!("key {key} is gone") };
        let entry = self.0.get(&key).ok_or_else(lost)?;
        let mut value = entry.value().lock().unwrap_or_else(PoisonError::into_inner);
        for byte in value.iter_mut() {
            let (sum, carry) = byte.overflowing_add(1);
            *byte = sum;
            if !carry {
                break;
            }
        }
        under_lock(&value)
    }
}

impl Logged {
    /// A read-modify-write: only the place in the log is taken under the lock; copy, checksum and force are each thread's own.
    #[inline]
    fn read_modify_write(&self, key: u64) -> Result<()> {
        let Some(ours) = &self.log else { return self.map.add_one(key, |_| Ok(())) };
        let (mut reservation, value) = self.map.add_one(key, |value| Ok((ours.log().reserve(RECORD)?, *value)))?;
        reservation.copy(0, &key.to_le_bytes());
        reservation.copy(8, &value);
        let lsn = reservation.lsn();
        reservation.complete()?;
        ours.force(lsn)
    }
}

pub(super) fn map(setting: &Setting, watch: &dyn Watch) -> Result<Shown> {
    let keys = if setting.quick { 10_000 } else { 100_000 };
    let threads = counts(setting);
    watch.begin("figure 10", (threads.len() * setting.plan.rounds()) as u64);
    let mut rows = Vec::new();
    for threads in threads {
        let folder = folder(&setting.dir)?;
        // The window of group commit is that of frequency 8 at this number of threads.
        let comparable = Policy::Group(8 * threads as u32);
        let policies = [None, Some(Policy::Sync), Some(Policy::Frequency(8)), Some(comparable)];
        let mut all = Vec::new();
        for policy in policies {
            let create = |policy: Policy| {
                let name = policy.to_string().replace(':', "-");
                Ours::create(&folder.path().join(name), ROOM, policy, threads)
            };
            all.push((policy, Logged { map: Map::new(keys), log: policy.map(create).transpose()? }));
        }
        rows.extend(with_crew(threads, |crew| {
            let sides = all.iter().map(|(policy, logged)| side(crew, logged, of(*policy, threads), keys));
            run_watched(&setting.plan.by(threads), sides.collect(), Some(0), watch)
        })?);
    }
    let rates = pivot(&rows, "changes/s, threads", |row| row.threads.to_string(), who, rate);
    let windows = pivot(&rows, "window, threads", |row| row.threads.to_string(), who, |row| param(row, "window"));
    let text = format!(
        "{rates}\n{windows}\n{keys} keys, records of {RECORD} bytes; group commit with the window of frequency 8; Query Fresh is not here"
    );
    Ok(Shown::new(text, rows))
}

/// The window of group commit is another for each number of threads; its column is one.
fn who(row: &Row) -> String {
    match (row.engine.as_str(), param(row, "policy").starts_with("group")) {
        ("none", _) => "no log".into(),
        (_, true) => "log group:8T".into(),
        _ => named(row),
    }
}

fn of(policy: Option<Policy>, threads: usize) -> Row {
    match policy {
        Some(policy) => appended(&row("10"), Appender::Log(policy), threads),
        None => Row { engine: "none".into(), threads, ..row("10") },
    }
}

fn side<'c, 'env>(crew: &'c Crew<'env>, logged: &'env Logged, row: Row, keys: u64) -> Side<'c> {
    let mut workers: Vec<_> = (0..crew.size() as u64)
        .map(|seed| Changing { logged, keys, random: Random::new(seed), sampler: Sampler::new(seed), todo: 0 })
        .collect();
    let mut laps = Laps::new(records(ROOM, RECORD), workers.len());
    let domain = logged.log.as_ref().map(|log| log.domain());
    Side::new(Row { domain, ..row }, move |batch| {
        let share = share(batch, workers.len());
        let time = laps.cut(
            share,
            || logged.log.as_ref().map_or(Ok(()), |log| log.clean()),
            |now| {
                workers.iter_mut().for_each(|worker| worker.todo = now);
                crew.run(&mut workers)
            },
        )?;
        let samples = workers.iter_mut().flat_map(|worker| worker.sampler.take()).collect();
        Ok(Batch { time, ops: Some(share * workers.len() as u64), samples, ..Batch::default() })
    })
}

struct Changing<'e> {
    logged: &'e Logged,
    keys: u64,
    random: Random,
    sampler: Sampler,
    todo: u64,
}

impl Worker for Changing<'_> {
    fn work(&mut self) -> Result<()> {
        for _ in 0..self.todo {
            let key = self.random.below(self.keys);
            self.sampler.op(|| self.logged.read_modify_write(key))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The log alone gives the map again: nothing was logged twice, left out, or out of order.
    #[test]
    fn the_log_replays_to_the_map() {
        let dir = folder(&crate::contest::memory()).unwrap();
        for policy in [Policy::Sync, Policy::Frequency(8), Policy::Group(16)] {
            let path = dir.path().join(policy.to_string());
            let logged = Logged { map: Map::new(50), log: Some(Ours::create(&path, 1 << 20, policy, 3).unwrap()) };
            with_crew(3, |crew| {
                let worker = |seed| Changing {
                    logged: &logged,
                    keys: 50,
                    random: Random::new(seed),
                    sampler: Sampler::new(seed),
                    todo: 1000,
                };
                crew.run(&mut (0..3).map(worker).collect()).unwrap();
            });
            let log = logged.log.as_ref().unwrap().log();
            let last = log.append(&[]).unwrap();
            log.force_now(last).unwrap();
            let (mut replayed, mut count, mut records) = (BTreeMap::new(), 0, log.iter());
            while let Some(record) = records.next().unwrap() {
                if let Some((key, value)) = record.payload.split_first_chunk() {
                    replayed.insert(u64::from_le_bytes(*key), value.to_vec());
                    count += 1;
                }
            }
            assert_eq!((count, replayed.len()), (3000, 50));
            for entry in &logged.map.0 {
                assert_eq!(replayed[entry.key()], entry.value().lock().unwrap().to_vec(), "{policy}");
            }
        }
    }
}
