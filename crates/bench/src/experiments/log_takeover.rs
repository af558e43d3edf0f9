//! `log-takeover`: how long it takes to open a log whose leader is gone, and to read it through, by the bytes that are live (Arcadia §5.4).

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log::{Log, Replicas};

use super::log_replicate::BACKUPS_MAX;
use crate::contest::folder;
use crate::log_sides::{Policy, options};
use crate::replicas::{Backups, Reach};
use crate::workload::Values;
use crate::{Batch, Error, Plan, Result, Row, Side, Watch, clock, run_watched};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "log-takeover";

/// Bytes of a record.
const RECORD: usize = 1024;
/// Bytes that a log has room for beside its records, in parts of them: headers, and what does not fit.
const SPARE: u64 = 4;
/// Fewest backups: without the leader's own copy there have to be enough of them.
const BACKUPS_MIN: usize = 2;
/// Records forced together while a log is filled.
const TOGETHER: u64 = 256;

/// What the new leader finds where its own copy should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// The log has no other copies.
    Alone,
    /// It is there, as the others are.
    There,
    /// Nothing: the backups, which are a write quorum, have all there is.
    Lost,
    /// The log never had one: the leader reads it into memory.
    Never,
}

impl Own {
    const ALL: [Self; 4] = [Self::Alone, Self::There, Self::Lost, Self::Never];

    fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::There => "there",
            Self::Lost => "lost",
            Self::Never => "never",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct LogTakeover {
    /// Bytes of live records.
    pub live: Vec<u64>,
    /// How many backups there are.
    pub backups: usize,
    /// Where all copies go.
    pub dir: PathBuf,
    /// How much to measure; a round is one opening.
    pub plan: Plan,
    /// What rows begin as.
    pub row: Row,
}

impl LogTakeover {
    /// With two backups.
    #[must_use]
    pub fn here(plan: Plan) -> Self {
        let live = vec![16 << 20, 64 << 20, 256 << 20];
        Self { live, backups: BACKUPS_MIN, dir: crate::contest::memory(), plan, row: Row::new(EXPERIMENT, "") }
    }

    /// Measures.
    ///
    /// # Errors
    /// Those of the logs; one that has lost something.
    pub fn measure(&self, watch: &dyn Watch) -> Result<Vec<Row>> {
        if let Some(live) = self.live.iter().find(|live| **live < RECORD as u64) {
            return Err(Error::Parameter(format!("{live} live bytes: a record has {RECORD}")));
        }
        if !(BACKUPS_MIN..=BACKUPS_MAX).contains(&self.backups) {
            let backups = self.backups;
            return Err(Error::Parameter(format!("{backups} backups: from {BACKUPS_MIN} to {BACKUPS_MAX}")));
        }
        watch.begin(&self.row.experiment, (self.live.len() * self.plan.rounds()) as u64);
        // One opening is a round.
        let plan = Plan { batch_time: Duration::from_nanos(1), ..self.plan };
        let room = self.live.iter().max().map_or(0, |largest| largest + largest / SPARE);
        let mut rows = Vec::new();
        for live in self.live.iter().copied() {
            let folder = folder(&self.dir)?;
            let mut sides = Vec::new();
            for own in Own::ALL {
                let row = Row { engine: "log".into(), ..self.row.clone() };
                let row = row.param("live", live).param("room", room).param("bytes", RECORD);
                let row = row.param("own_copy", own.name());
                let row = if own == Own::Alone { row } else { row.param("backups", self.backups) };
                let left = Left::behind(folder.path(), own, self.backups, room, live / RECORD as u64)?;
                sides.push(Side::new(row, move |_| left.open()).op_bytes(live));
            }
            rows.extend(run_watched(&plan, sides, Some(0), watch)?);
        }
        Ok(rows)
    }
}

/// What a leader has left behind.
struct Left {
    own: Own,
    path: PathBuf,
    options: log::Options,
    records: u64,
    backups: Backups,
}

impl Left {
    fn behind(dir: &Path, own: Own, backups: usize, room: u64, records: u64) -> Result<Self> {
        let name = own.name();
        let backups = if own == Own::Alone { 0 } else { backups };
        let left = Self {
            own,
            path: dir.join(name),
            options: options(room, Policy::Sync, 1).idle(None),
            records,
            backups: Backups::start(dir, name, backups, Reach::default())?,
        };
        let log = match own {
            Own::Alone => left.options.create(&left.path)?,
            _ => left.options.create_replicated(&left.copies())?,
        };
        let values = Values::new(RECORD, 1);
        for number in 0..records {
            let mut reservation = log.reserve(RECORD)?;
            reservation.copy(0, values.get(number, RECORD as u32));
            let lsn = reservation.complete()?;
            if (number + 1).is_multiple_of(TOGETHER) || number + 1 == records {
                log.force_now(lsn)?;
            }
        }
        Ok(left)
    }

    fn copies(&self) -> Replicas {
        // Any one copy may be lost, if there is one more than the backups.
        let copies = self.backups.replicas().write_quorum(self.backups.count() as u32);
        if self.own == Own::Never { copies } else { copies.local(&self.path) }
    }

    /// Opens it and reads it through.
    fn open(&self) -> Result<Batch> {
        if self.own == Own::Lost {
            std::fs::remove_file(&self.path).map_err(|source| Error::Io {
                op: "lose",
                path: self.path.clone(),
                source,
            })?;
        }
        let (opened, time) = clock::timed(|| -> Result<_> {
            let (log, _) = match self.own {
                Own::Alone => self.options.open(&self.path)?,
                _ => self.options.open_replicated(&self.copies())?,
            };
            let count = count(&log)?;
            Ok((log, count))
        });
        let (log, count) = opened?;
        drop(log);
        if count != self.records {
            let what = format!("opened with {count} records of {}", self.records);
            return Err(Error::Wrong { who: format!("the log, own copy {}", self.own.name()), what });
        }
        Ok(Batch { time, ops: Some(1), ..Batch::default() })
    }
}

fn count(log: &Log) -> Result<u64> {
    let (mut records, mut count) = (log.iter(), 0);
    while let Some(record) = records.next()? {
        count += u64::from(!black_box(record.payload).is_empty());
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each opening says itself how many records it found; fewer are an error.
    #[test]
    fn all_is_found_with_and_without_an_own_copy() {
        let what = LogTakeover { live: vec![1 << 20, 2 << 20], ..LogTakeover::here(Plan::quick()) };
        let rows = what.measure(&()).unwrap();
        let own: Vec<_> = rows.iter().map(|row| row.params["own_copy"].as_str().unwrap()).collect();
        assert_eq!(own, [Own::ALL, Own::ALL].concat().iter().map(|own| own.name()).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| row.bytes_per_s > Some(0.0) && row.ratio.is_some() && row.rounds == 5));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let here = || LogTakeover::here(Plan::quick());
        for what in [LogTakeover { live: vec![1023], ..here() }, LogTakeover { backups: 1, ..here() }] {
            assert!(matches!(what.measure(&()), Err(Error::Parameter(_))));
        }
    }
}
