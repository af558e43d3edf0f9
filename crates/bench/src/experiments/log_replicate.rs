//! `log-replicate`: records appended to a log whose copies other processes have, by the number of those (Arcadia §5.3).
//!
//! All run on one machine here: what a backup does takes processor time from the leader and from the other backups, where each would have a machine of its own.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use log::FlushOrder;

use super::log_append::{Laps, RECORD_BYTES_MAX, appending, records};
use crate::contest::folder;
use crate::crew::with_crew;
use crate::log_sides::{Copies, LogSide as _, Replicated, Way};
use crate::replicas::Reach;
use crate::workload::Values;
use crate::{Error, Plan, Result, Row, Spread, Watch, run_watched};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "log-replicate";

/// Most backups.
pub const BACKUPS_MAX: usize = 8;
/// How long the ends of a spinning transport look before they sleep.
const SPIN: Duration = Duration::from_micros(200);
const SEED: u64 = 1;

/// Where copies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One is the leader's own.
    Both,
    /// The leader has the log in memory only.
    Remote,
}

/// How backups are reached, and how the ends of a connection wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP; a thread that waits sleeps.
    Tcp,
    /// TCP; a thread that waits looks for a while before it sleeps.
    Spinning,
    /// libfabric's provider `tcp`.
    Fabric,
    /// The same; a thread that waits looks for a while before it sleeps.
    FabricSpinning,
    /// libfabric's provider `shm`; a thread that waits looks for a while before it naps.
    Shared,
}

macro_rules! named {
    ($kind:ident, $($variant:ident $name:literal),*) => {
        impl $kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|one| one.name() == text);
                found.copied().ok_or_else(|| format!("{text:?} is none of {}", [$($name),*].join(", ")))
            }
        }
    };
}

named!(Placement, Both "local+remote", Remote "remote");
named!(Transport, Tcp "tcp", Spinning "tcp-spin", Fabric "libfabric-tcp", FabricSpinning "libfabric-tcp-spin", Shared "libfabric-shm-spin");

impl Transport {
    fn reach(self) -> Reach {
        let transport = match self {
            Self::Tcp | Self::Spinning => "tcp",
            Self::Fabric | Self::FabricSpinning => "libfabric:tcp",
            Self::Shared => "libfabric:shm",
        };
        let spin = if matches!(self, Self::Tcp | Self::Fabric) { Duration::ZERO } else { SPIN };
        Reach { transport, spin }
    }
}

/// Names of orders, as rows and the command line have them.
pub const ORDERS: [(&str, FlushOrder); 3] =
    [("beside", FlushOrder::Beside), ("after", FlushOrder::After), ("before", FlushOrder::Before)];

fn order_name(order: FlushOrder) -> &'static str {
    ORDERS.iter().find(|(_, one)| *one == order).map_or("", |(name, _)| name)
}

/// What to measure: all combinations.
#[derive(Clone, Debug)]
pub struct LogReplicate {
    /// Numbers of backups; none is a log of one process, which is the limit of the others.
    pub backups: Vec<usize>,
    /// When an append waits.
    pub ways: Vec<Way>,
    /// When the leader's own copy is flushed.
    pub orders: Vec<FlushOrder>,
    /// Where copies are.
    pub placements: Vec<Placement>,
    /// How ends wait.
    pub transports: Vec<Transport>,
    /// Bytes of a record.
    pub bytes: Vec<usize>,
    /// Numbers of threads that append, one after the other.
    pub threads: Vec<usize>,
    /// Bytes of records that a log has room for.
    pub room: u64,
    /// Where all copies go.
    pub dir: PathBuf,
    /// How much to measure.
    pub plan: Plan,
    /// What rows begin as.
    pub row: Row,
}

/// One of those that are measured in the same rounds.
struct Contestant {
    copies: Copies,
    way: Way,
    side: Replicated,
}

impl LogReplicate {
    /// Up to three backups, in all ways, by one thread.
    #[must_use]
    pub fn here(plan: Plan) -> Self {
        Self {
            backups: vec![0, 1, 2, 3],
            ways: vec![Way::Sync, Way::Pipelined(16), Way::Frequency(16)],
            orders: vec![FlushOrder::Beside],
            placements: Placement::ALL.to_vec(),
            transports: vec![Transport::Tcp, Transport::Spinning],
            bytes: vec![64, 256, 1024, 4096],
            threads: vec![1],
            room: 16 << 20,
            dir: crate::contest::memory(),
            plan,
            row: Row::new(EXPERIMENT, ""),
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// Those of the logs; a backup that does not start, or is given up.
    pub fn measure(&self, watch: &dyn Watch) -> Result<Vec<Row>> {
        self.check()?;
        let groups = self.transports.len() * self.placements.len() * self.threads.len() * self.bytes.len();
        watch.begin(&self.row.experiment, (groups * self.plan.rounds()) as u64);
        let mut rows = Vec::new();
        for transport in self.transports.iter().copied() {
            for placement in self.placements.iter().copied() {
                for threads in self.threads.iter().copied() {
                    let row = self.row.clone().threads(threads);
                    let row = row.param("transport", transport.name()).param("copies", placement.name());
                    rows.extend(self.group(transport, placement, &row, watch)?);
                }
            }
        }
        Ok(rows)
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Parameter(what));
        if let Some(bytes) = self.bytes.iter().find(|bytes| !(1..=RECORD_BYTES_MAX).contains(*bytes)) {
            return refuse(format!("records of {bytes} bytes: from 1 to {RECORD_BYTES_MAX}"));
        }
        if let Some(backups) = self.backups.iter().find(|backups| **backups > BACKUPS_MAX) {
            return refuse(format!("{backups} backups: {BACKUPS_MAX} at most"));
        }
        let crowd = self.threads.iter().copied().max().unwrap_or(0);
        if let Some(bytes) = self.bytes.iter().find(|bytes| records(self.room, **bytes) < crowd as u64) {
            return refuse(format!("{} bytes have no room for records of {bytes} by {crowd} threads", self.room));
        }
        Ok(())
    }

    /// Comparisons that share their logs.
    fn group(&self, transport: Transport, placement: Placement, row: &Row, watch: &dyn Watch) -> Result<Vec<Row>> {
        let folder = folder(&self.dir)?;
        let mut all = Vec::new();
        for (number, copies) in self.copies(placement, transport.reach()).into_iter().enumerate() {
            let is_frequency = |way: &Way| matches!(way, Way::Frequency(_));
            let (own, shared): (Vec<Way>, Vec<Way>) = self.ways.iter().partition(|way| is_frequency(way));
            // A frequency is the log's: no other way goes into it.
            let logs = [shared].into_iter().chain(own.into_iter().map(|way| vec![way]));
            for (log, ways) in logs.enumerate() {
                let name = format!("log-{number}-{log}");
                // Each way cleans it after a lap of its own: all laps have to fit.
                let room = self.room * ways.len() as u64;
                let sides = Replicated::create(folder.path(), &name, room, copies, &ways, row.threads)?;
                let sides = ways.into_iter().zip(sides);
                all.extend(sides.map(|(way, side)| Contestant { copies, way, side }));
            }
        }
        all.sort_by_key(|one| self.ways.iter().position(|way| *way == one.way)); // stable
        let mut rows = Vec::new();
        for bytes in self.bytes.iter().copied() {
            rows.extend(self.compare(&all, row.clone().param("bytes", bytes), bytes, watch)?);
        }
        Ok(rows)
    }

    fn copies(&self, placement: Placement, reach: Reach) -> Vec<Copies> {
        let local = placement == Placement::Both;
        let orders = if local { &self.orders[..] } else { &[FlushOrder::Beside] };
        let mut all: Vec<Copies> = Vec::new();
        for backups in self.backups.iter().copied() {
            // Without backups there is nothing to be remote, or to have an order with.
            let orders = match (backups, local) {
                (0, true) => &[FlushOrder::Beside][..],
                (0, false) => &[],
                _ => orders,
            };
            all.extend(orders.iter().map(|&order| Copies { backups, local, order, reach }));
        }
        all
    }

    fn compare(&self, all: &[Contestant], row: Row, bytes: usize, watch: &dyn Watch) -> Result<Vec<Row>> {
        let threads = row.threads;
        let values = Values::new(bytes, SEED);
        let baseline = all.iter().position(|one| one.copies.backups == 1 && one.way == Way::Sync);
        let rows = with_crew(threads, |crew| {
            let mut sides = Vec::new();
            for Contestant { copies, way, side } in all {
                let mut row = Row { engine: "log".into(), domain: Some(side.domain()), ..row.clone() };
                row = row.param("backups", copies.backups).param("policy", way.to_string());
                row = row.param("window", way.window(threads));
                if copies.local && copies.backups > 0 {
                    row = row.param("order", order_name(copies.order));
                }
                let laps = Laps::new(records(self.room, bytes), threads);
                sides.push(appending(side, crew, row, &values, laps)?.op_bytes(bytes as u64));
            }
            run_watched(&self.plan.by(threads), sides, baseline, watch)
        })?;
        all.iter().try_for_each(|one| one.side.check())?;
        Ok(rows)
    }
}

/// A further backup may make an append, of one thread that waits, so many times as long.
const FURTHER_MAX: f64 = 1.25;
/// An append that does not wait has to be so many times as fast.
const PIPELINED_MIN: f64 = 2.0;

/// What is asked of the rows, and what came of it: a line for each that is compared with one backup, by one thread.
#[must_use]
pub fn verdicts(rows: &[Row]) -> Vec<String> {
    rows.iter().filter(|row| row.threads == 1).filter_map(verdict).collect()
}

fn verdict(row: &Row) -> Option<String> {
    let ratio = row.ratio?;
    let text = |name| row.params.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), Into::into));
    let (policy, backups) = (text("policy")?, row.params.get("backups")?.as_u64()?);
    let (found, asked) = match (policy.as_str(), backups) {
        ("sync", 2..) => {
            let cost = Spread { median: 1.0 / ratio.median, min: 1.0 / ratio.max, max: 1.0 / ratio.min };
            let met = said(cost.median <= FURTHER_MAX);
            let cost = format!("{:.2} times as long as one ({:.2} to {:.2})", cost.median, cost.min, cost.max);
            (format!("{backups} backups take {cost}"), format!("at most {FURTHER_MAX}: {met}"))
        }
        (way, 1) if way.starts_with("pipelined") => {
            let Spread { median, min, max } = ratio;
            let times = format!("{median:.2} times as fast as sync ({min:.2} to {max:.2})");
            (
                format!("{way} with one backup is {times}"),
                format!("at least {PIPELINED_MIN}: {}", said(median >= PIPELINED_MIN)),
            )
        }
        _ => return None,
    };
    let case = ["bytes", "transport", "copies", "order"].into_iter().filter_map(text).collect::<Vec<_>>().join(", ");
    Some(format!("{case}: {found}; asked for: {asked}"))
}

fn said(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> LogReplicate {
        let plan = Plan { batch_time: Duration::from_micros(500), ..Plan::quick() };
        LogReplicate { bytes: vec![64, 1000], room: 1 << 20, ..LogReplicate::here(plan) }
    }

    #[test]
    fn a_row_for_every_number_of_backups_in_every_way() {
        let rows = LogReplicate { backups: vec![0, 1, 2], ..tiny() }.measure(&()).unwrap();
        assert_eq!(rows.len(), 2 * 2 * (3 * 3 + 3 * 2));
        for row in &rows {
            assert_eq!(row.experiment, EXPERIMENT);
            let there = ["backups", "transport", "copies", "bytes", "policy", "window"];
            assert!(there.iter().all(|name| row.params.contains_key(*name)), "{row:?}");
            assert!(row.ops > 0 && row.p50_ns.is_some() && row.p99_ns.is_some() && row.ratio.is_some(), "{row:?}");
            assert_eq!(row.baseline.as_deref().map(|name| name.contains("log sync 1 backup")), Some(true), "{row:?}");
        }
        // Of two sizes and two transports: a second backup, on two placements, and a pipeline, on two.
        assert_eq!(verdicts(&rows).len(), 2 * 2 * (2 + 2), "{:?}", verdicts(&rows));
    }

    /// A leader's own copy costs one barrier for a force, in any order.
    #[test]
    fn barriers_of_the_leader_are_counted() {
        let orders = ORDERS.map(|(_, order)| order).to_vec();
        let what = LogReplicate {
            orders,
            backups: vec![1],
            ways: vec![Way::Sync, Way::Frequency(8)],
            transports: vec![Transport::Tcp],
            placements: vec![Placement::Both],
            ..tiny()
        };
        let rows = what.measure(&()).unwrap();
        assert_eq!(rows.len(), 2 * 6);
        for row in &rows {
            // Cleaning between laps takes forces away, and what makes room adds some; a slow machine has few records to spread that over.
            let forces = row.ops as f64 / if row.params["policy"] == "sync" { 1.0 } else { 8.0 };
            let wanted = (forces * 0.9 - 2.0)..(forces * 1.1 + 4.0);
            assert!(wanted.contains(&(row.barriers_per_op.unwrap() * row.ops as f64)), "{row:?}");
        }
    }

    #[test]
    fn verdicts_say_what_was_asked_for() {
        let row = |backups: u64, policy: &str, ratio: f64| {
            let row = Row::new(EXPERIMENT, "log").param("backups", backups).param("policy", policy).param("bytes", 64);
            Row { ratio: Spread::of(&[ratio / 2.0, ratio, ratio]), ..row }
        };
        let rows = [row(0, "sync", 9.0), row(1, "sync", 1.0), row(2, "sync", 0.8), row(3, "sync", 0.5)];
        let said = verdicts(&rows);
        assert_eq!(
            said[0],
            "64: 2 backups take 1.25 times as long as one (1.25 to 2.50); asked for: at most 1.25: met"
        );
        assert!(said[1].ends_with("missed") && said.len() == 2, "{said:?}");
        let said = verdicts(&[row(1, "pipelined:16", 1.9), row(1, "pipelined:64", 4.0), row(1, "freq:8", 9.0)]);
        assert!(said[0].ends_with("at least 2: missed") && said[1].ends_with("met") && said.len() == 2, "{said:?}");
        let two = Row { threads: 2, ..row(2, "sync", 0.1) };
        assert!(verdicts(&[two]).is_empty(), "of two threads that share forces nothing was asked");
    }

    #[test]
    fn impossible_parameters_are_refused() {
        for what in [
            LogReplicate { bytes: vec![0], ..tiny() },
            LogReplicate { backups: vec![BACKUPS_MAX + 1], ..tiny() },
            LogReplicate { bytes: vec![RECORD_BYTES_MAX], threads: vec![64], ..tiny() },
        ] {
            assert!(matches!(what.measure(&()), Err(Error::Parameter(_))));
        }
        assert!("ipx".parse::<Transport>().unwrap_err().contains("tcp-spin"));
    }
}
