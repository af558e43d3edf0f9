//! What came out, as a table.

use std::fmt;
use std::path::PathBuf;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::beside::Beside;
use crate::kind::Kind;
use crate::message::Round;
use crate::progress::grouped;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// After which kill of its engine; 0: before any.
    pub kill: u32,
    /// Key, expected and found version; or the error.
    pub what: String,
}

/// What happened to one engine.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which.
    pub kind: Kind,
    pub(crate) rounds: Vec<Round>,
    /// Kills that it is to survive.
    pub(crate) wanted: u32,
    /// Workers that were killed.
    pub kills: u32,
    /// Of these, while they recovered from the kill before.
    pub kills_recovering: u32,
    /// Times of recoveries, in nanoseconds.
    pub recoveries: Vec<u64>,
    /// Transactions that recovery finished, and took back.
    pub finished: u64,
    /// Taken back.
    pub undone: u64,
    /// Updates that workers acknowledged.
    pub acknowledged: u64,
    /// Updates that were under way when a worker died.
    pub doubts: u64,
    /// Of these, found made.
    pub made: u64,
    /// Acknowledged, and gone.
    pub lost: u64,
    /// What must not be.
    pub findings: Vec<Finding>,
}

impl Outcome {
    pub(crate) fn new(kind: Kind, rounds: Vec<Round>, wanted: u32) -> Self {
        Self {
            kind,
            rounds,
            wanted,
            kills: 0,
            kills_recovering: 0,
            recoveries: Vec::new(),
            finished: 0,
            undone: 0,
            acknowledged: 0,
            doubts: 0,
            made: 0,
            lost: 0,
            findings: Vec::new(),
        }
    }

    /// Operations per second, round by round.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.ops as f64 * 1e9 / round.ns.max(1) as f64).collect()
    }

    /// Median over the rounds of a latency in nanoseconds.
    pub(crate) fn latency(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    /// Barriers per transaction that changes something, in all rounds.
    #[must_use]
    pub fn barriers(&self) -> f64 {
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum::<u64>() as f64;
        sum(|round| round.drains) / sum(|round| round.changes).max(1.0)
    }

    pub(crate) fn recoveries_ms(&self) -> Vec<f64> {
        self.recoveries.iter().map(|ns| *ns as f64 / 1e6).collect()
    }
}

/// The middle one; of none, 0.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        n if n % 2 == 1 => numbers[n / 2],
        n => f64::midpoint(numbers[n / 2 - 1], numbers[n / 2]),
    }
}

/// What came out of a demonstration.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What would be used instead, beside ours.
    pub beside: Vec<Beside>,
    /// One per engine.
    pub outcomes: Vec<Outcome>,
    pub(crate) workload: String,
    pub(crate) structure: &'static str,
    pub(crate) threads: usize,
    pub(crate) domain: String,
    pub(crate) dir: PathBuf,
    pub(crate) machine: String,
    /// Pools that were kept, because something is wrong with them.
    pub kept: Option<PathBuf>,
}

impl Summary {
    /// What must not be, with the engine it happened to.
    pub fn findings(&self) -> impl Iterator<Item = (Kind, &Finding)> {
        self.outcomes.iter().flat_map(|outcome| outcome.findings.iter().map(move |finding| (outcome.kind, finding)))
    }

    pub(crate) const BESIDE: [&'static str; 6] =
        ["operation", "Cairn per second", "beside", "other per second", "times as fast", "p99 of both"];

    /// Texts for these columns.
    pub(crate) fn beside_rows(&self) -> Vec<[String; 6]> {
        self.beside.iter().map(Beside::cells).collect()
    }

    /// What is worth knowing about them.
    pub(crate) fn beside_notes(&self) -> Vec<String> {
        vec![format!(
            "both sides take turns, {} rounds; median of the rounds, in brackets the range; each operation is durable on both sides: redb \
             syncs each commit, Redis has appendfsync always",
            crate::beside::ROUNDS
        )]
    }

    pub(crate) const COLUMNS: [&'static str; 9] = [
        "engine",
        "thousand ops/s",
        "p99",
        "barriers per update",
        "recovery, median",
        "recovery, max",
        "kills",
        "updates acknowledged",
        "updates lost",
    ];

    /// Texts for the columns.
    pub(crate) fn rows(&self) -> Vec<[String; 9]> {
        self.outcomes.iter().map(row).collect()
    }

    /// What is worth knowing about the columns.
    pub(crate) fn notes(&self) -> Vec<String> {
        let sum = |of: fn(&Outcome) -> u64| grouped(self.outcomes.iter().map(of).sum());
        let recovering: u32 = self.outcomes.iter().map(|outcome| outcome.kills_recovering).sum();
        vec![
            format!("workload: {}; {}, {} threads", self.workload, self.structure, self.threads),
            format!("media: {}, domain {}; {}", self.dir.display(), self.domain, self.machine),
            format!(
                "thousand ops/s, p99: undisturbed rounds without reports, {} in turn for each engine; median and extremes; \
                 operations are drawn before the clock runs",
                crate::config::ROUNDS
            ),
            "barriers per update: counted in the whole process, per transaction that changes something; reads have none".into(),
            format!("kills: SIGKILL at random moments; {recovering} of them hit a worker that was still recovering"),
            "updates acknowledged: in separate runs, each reported through a pipe right after its commit, and verified by another process \
             after each kill: all keys, whole values, a journal that each transaction writes too, the structure, no block leaked"
                .into(),
            format!(
                "not counted: {} updates that were under way when a worker died; {} of them are there, whole; none in part",
                sum(|outcome| outcome.doubts),
                sum(|outcome| outcome.made)
            ),
            "a killed process loses nothing it had stored, power loss does: `cairn crash` explores that".into(),
        ]
    }
}

fn row(outcome: &Outcome) -> [String; 9] {
    let recoveries = outcome.recoveries_ms();
    let rates = outcome.rates();
    let extreme = |best: fn(f64, f64) -> f64| rates.iter().copied().reduce(best).unwrap_or(0.0) / 1e3;
    [
        outcome.kind.to_string(),
        format!(
            "{} ({}-{})",
            number(median(rates.clone()) / 1e3),
            number(extreme(f64::min)),
            number(extreme(f64::max))
        ),
        micros(outcome.latency(|round| round.p99_ns)),
        format!("{:.2}", outcome.barriers()),
        millis((!recoveries.is_empty()).then(|| median(recoveries.clone()))),
        millis(recoveries.into_iter().reduce(f64::max)),
        outcome.kills.to_string(),
        grouped(outcome.acknowledged),
        grouped(outcome.lost),
    ]
}

/// With a digit behind the point where that tells something.
pub(crate) fn number(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

fn micros(ns: f64) -> String {
    format!("{:.1} µs", ns / 1e3)
}

fn millis(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Two lines for long heads keep the table narrow.
        let head = |text: &str| match text.rsplit_once(' ') {
            Some((first, last)) => format!("{first}\n{last}"),
            None => text.to_owned(),
        };
        if !self.beside.is_empty() {
            let mut table = Table::new();
            table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
            table.set_header(Self::BESIDE.map(head));
            for row in self.beside_rows() {
                table.add_row(row);
            }
            for at in [1, 3, 4, 5] {
                if let Some(column) = table.column_mut(at) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            writeln!(f, "{table}")?;
            self.beside_notes().iter().try_for_each(|note| write_wrapped(f, note))?;
            writeln!(f)?;
        }
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(Self::COLUMNS.map(head));
        for row in self.rows() {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        self.notes().iter().try_for_each(|note| write_wrapped(f, note))
    }
}

/// Columns of a note.
const NOTE_COLUMNS: usize = 106;

/// A note in lines.
fn write_wrapped(f: &mut fmt::Formatter<'_>, note: &str) -> fmt::Result {
    let mut column = 0;
    for word in note.split(' ') {
        let wide = word.chars().count();
        if column == 0 {
            write!(f, "- {word}")?;
            column = 2 + wide;
        } else if column + 1 + wide > NOTE_COLUMNS {
            write!(f, "\n  {word}")?;
            column = 2 + wide;
        } else {
            write!(f, " {word}")?;
            column += 1 + wide;
        }
    }
    writeln!(f)
}

#[cfg(test)]
pub(crate) mod tests {
    use heap::Policy;

    use super::*;
    use crate::beside::Measured;

    /// Made up.
    pub(crate) fn summary() -> Summary {
        let round = |ops| Round {
            ops,
            changes: ops / 2,
            ns: 1_000_000,
            drains: 3 * ops / 2,
            media_bytes: 0,
            aborts: 0,
            p50_ns: 400.0,
            p99_ns: 1500.0,
            p999_ns: 9000.0,
        };
        let outcome = |policy, ops: [u64; 3]| {
            let mut outcome = Outcome::new(Kind::Heap(policy), ops.map(round).to_vec(), 2);
            (outcome.kills, outcome.acknowledged) = (2, 1_234_567);
            outcome.recoveries = vec![3_000_000, 1_000_000];
            outcome
        };
        let ratio = bench::Spread { median: 2.5, min: 2.0, max: 3.0 };
        let beside = |measured| Beside { what: "store: puts".into(), peer: "redb", measured };
        Summary {
            beside: vec![
                beside(Ok(Measured { cairn: 2e6, peer: 1e6, ratio, p99_ns: Some((1500.0, 2e6)) })),
                beside(Err("not in this build".into())),
            ],
            outcomes: vec![outcome(Policy::Undo, [800, 1000, 900]), outcome(Policy::InPlace, [2000, 1000, 2100])],
            workload: "YCSB A & more".into(),
            structure: "hash map",
            threads: 2,
            domain: "emulated".into(),
            dir: "/dev/shm".into(),
            machine: "a <fast> one".into(),
            kept: None,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn the_table_has_it_all() {
        let text = summary().to_string();
        for words in [
            "undo",
            "900 (800-1000)",
            "1.5 µs",
            "3.00",
            "2.0 ms",
            "3.0 ms",
            "1 234 567",
            "2000 (1000-2100)",
            "2.50 (2.00-3.00)",
            "2.0 M",
            "1.5 µs, 2.0 ms",
            "not in this build",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
}
