//! *Midas* (the thesis), chapter 6.3: figures 6.3 to 6.18, throughput, speed-up, efficiency and abort rate in scenarios S1 to S4.
//!
//! There, Midas is compared with Echo, which has snapshot isolation; here, our stores, at each level they have, with systems of today, Berkeley DB
//! among them, as its future work asks for. A transaction is tried until it is committed; there, at most four times.

use ::peers::Peer;

use super::{Figure, Setting, Shown, param};
use crate::experiments::{Midas, Scenario};
use crate::kv_sides::{Field, StoreKind};
use crate::plot::{Line, Lines};
use crate::table::{contestant, pivot, scaled};
use crate::{Result, Row, Watch};

const PAPER: &str = "midas";

/// What a figure shows of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Throughput,
    SpeedUp,
    Efficiency,
    AbortRate,
}

macro_rules! figures {
    ($($number:literal $scenario:ident $quantity:ident $title:literal $claim:literal;)*) => {
        &[$(Figure {
            number: $number,
            title: concat!(stringify!($scenario), ", ", $title),
            claim: $claim,
            measure: |setting, watch| show(setting, watch, Scenario::$scenario, Quantity::$quantity),
        }),*]
    };
}

/// All of them.
pub const FIGURES: &[Figure] = figures! {
    "6.3" S1 Throughput "1000 pairs, 2 to 32 operations: transactions a second"
        "Midas without its index lock reaches up to 50 % more than Echo, with it far less";
    "6.4" S1 SpeedUp "speed-up" "nobody gains beyond 8 cores";
    "6.5" S1 Efficiency "parallel efficiency" "falls for all: few pairs, much synchronisation";
    "6.6" S1 AbortRate "aborted attempts" "Midas aborts much more often than Echo: it detects more conflicts";
    "6.7" S2 Throughput "1000 pairs, 64 to 256 operations: transactions a second"
        "Midas goes towards zero; Echo is better until 8 cores, then declines too";
    "6.8" S2 SpeedUp "speed-up" "none for Midas";
    "6.9" S2 Efficiency "parallel efficiency" "falls at once";
    "6.10" S2 AbortRate "aborted attempts" "Midas goes towards 100 %; Echo aborts far less";
    "6.11" S3 Throughput "100 000 pairs, 2 to 32 operations: transactions a second"
        "Midas is well above Echo, with and without its index lock";
    "6.12" S3 SpeedUp "speed-up" "close to ideal up to 4 cores for Echo and for Midas without the lock";
    "6.13" S3 Efficiency "parallel efficiency" "as the speed-up";
    "6.14" S3 AbortRate "aborted attempts" "below 1 % for all";
    "6.15" S4 Throughput "100 000 pairs, 64 to 256 operations: transactions a second"
        "Echo is above Midas; without the index lock Midas is up to 6 times as fast as Echo";
    "6.16" S4 SpeedUp "speed-up" "Echo scales better than Midas with the lock, not beyond 8 cores";
    "6.17" S4 Efficiency "parallel efficiency" "as the speed-up";
    "6.18" S4 AbortRate "aborted attempts" "grows with the cores for Midas; lower for Echo";
};

/// Ours, and those the thesis would be asked about today.
fn everybody() -> Vec<StoreKind> {
    let peers = [Peer::BerkeleyDb, Peer::RocksDbOptimistic, Peer::Lmdb, Peer::Redb, Peer::Fjall];
    StoreKind::OURS.into_iter().chain(peers.map(StoreKind::Peer)).collect()
}

/// All four figures of a scenario come from the same rounds.
fn show(setting: &Setting, watch: &dyn Watch, scenario: Scenario, quantity: Quantity) -> Result<Shown> {
    let rows = setting.once(&format!("{PAPER} {scenario}"), || {
        let figures = FIGURES.iter().filter(|figure| figure.title.starts_with(scenario.name()));
        let numbers: Vec<_> = figures.map(|figure| figure.number).collect();
        let row = super::row(PAPER, &numbers.join(","));
        let field = Field {
            dir: setting.dir.clone(),
            who: everybody(),
            threads: setting.cases(&[1, 2, 4, 8], &[1, 2, 4]),
            ..Field::here(setting.plan)
        };
        Midas { scenarios: vec![scenario], row, ..Midas::default() }.measure(&field, watch)
    })?;
    let cell = |row: &Row| quantity.of(row, &rows).map_or_else(String::new, |value| quantity.shown(value));
    let corner = format!("{}, threads", quantity.unit());
    let text = pivot(&rows, &corner, |row| row.threads.to_string(), contestant, cell);
    let lines = lines(&rows, scenario, quantity);
    Ok(Shown { text, rows: rows.clone(), lines: Some(lines) })
}

fn lines(rows: &[Row], scenario: Scenario, quantity: Quantity) -> Lines {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(value) = quantity.of(row, rows) else { continue };
        let (name, point) = (contestant(row), (row.threads as f64, value));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    Lines { title: format!("{scenario}: {}", quantity.unit()), across: "threads".into(), lines }
}

impl Quantity {
    fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "transactions/s",
            Self::SpeedUp => "speed-up",
            Self::Efficiency => "efficiency, %",
            Self::AbortRate => "aborted, %",
        }
    }

    /// `None` of a row without numbers, or without the row of one thread that it is compared with.
    fn of(self, row: &Row, rows: &[Row]) -> Option<f64> {
        row.ns_per_op?;
        let speed_up = || {
            let alone = |other: &&Row| {
                other.threads == 1
                    && other.engine == row.engine
                    && param(other, "isolation") == param(row, "isolation")
                    && param(other, "scenario") == param(row, "scenario")
            };
            rows.iter().find(alone).map(|one| row.ops_per_s / one.ops_per_s.max(1e-9))
        };
        match self {
            Self::Throughput => Some(row.ops_per_s),
            Self::SpeedUp => speed_up(),
            Self::Efficiency => speed_up().map(|times| times / row.threads as f64 * 100.0),
            Self::AbortRate => row.abort_rate.map(|rate| rate * 100.0),
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Self::Throughput => scaled(value),
            Self::SpeedUp => format!("{value:.2}"),
            Self::Efficiency => format!("{value:.0}"),
            Self::AbortRate => format!("{value:.1}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Spread};

    #[test]
    fn numbers_are_those_of_the_thesis() {
        let numbers: Vec<_> = FIGURES.iter().map(|figure| figure.number).collect();
        let expected: Vec<_> = (3..=18).map(|number| format!("6.{number}")).collect();
        assert_eq!(numbers, expected);
    }

    fn row(threads: usize, ops_per_s: f64) -> Row {
        let row = Row::new("figures", "kv").threads(threads).param("isolation", "snapshot");
        Row { ops_per_s, ns_per_op: Spread::of(&[1.0]), abort_rate: Some(0.25), ..row }
    }

    #[test]
    fn quantities_are_held_against_one_thread() {
        let rows =
            [row(1, 100.0), row(4, 300.0), Row { ops_per_s: 1.0, ..row(1, 1.0).param("isolation", "serializable") }];
        let of = |quantity: Quantity| quantity.of(&rows[1], &rows);
        assert_eq!(of(Quantity::Throughput), Some(300.0));
        assert_eq!((of(Quantity::SpeedUp), of(Quantity::Efficiency)), (Some(3.0), Some(75.0)));
        assert_eq!(of(Quantity::AbortRate), Some(25.0));
        assert_eq!(Quantity::SpeedUp.of(&rows[1], &rows[1..]), None);
    }

    /// Measured once for all four.
    #[test]
    fn figures_of_a_scenario_share_their_rows() {
        let plan = Plan { batch_time: std::time::Duration::from_micros(100), ..Plan::quick() };
        let setting = Setting { plan, ..Setting::here(true) };
        let shown = |number: &str| {
            let figure = FIGURES.iter().find(|figure| figure.number == number).unwrap();
            figure.measure(&setting, &()).unwrap()
        };
        let (throughput, aborts) = (shown("6.3"), shown("6.6"));
        assert_eq!(throughput.rows, aborts.rows);
        assert!(throughput.text.contains("transactions/s, threads") && aborts.text.contains("aborted"));
        let lines = throughput.lines.unwrap().lines;
        assert!(lines.iter().any(|line| line.name == "btree serializable" && line.points.len() == 3), "{lines:?}");
        assert_eq!(throughput.rows[0].params["figure"], "6.3,6.4,6.5,6.6");
    }
}
