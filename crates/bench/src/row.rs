//! One measured result, as programs outside this project read it.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use serde_json::Value;

/// Median and extremes of the rounds of one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value; `None` of none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, min, max })
    }
}

/// The fields are a contract: names and units do not change, new ones are added at the end.
///
/// What a measurement has no value for is null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the experiment, such as `limits`.
    pub experiment: String,
    /// Name of the engine or peer; `none` where there is none.
    pub engine: String,
    /// Name of the structure it runs.
    pub structure: Option<String>,
    /// Threads at work at once.
    pub threads: usize,
    /// What tells this row from others of the experiment.
    pub params: BTreeMap<String, Value>,
    /// Operations in all rounds together.
    pub ops: u64,
    /// Their time in all rounds together.
    pub seconds: f64,
    /// Operations of all threads together per second, median of the rounds.
    pub ops_per_s: f64,
    /// Median latency of one operation; null where only batches were timed.
    pub p50_ns: Option<f64>,
    /// 99 of 100 operations take at most this long.
    pub p99_ns: Option<f64>,
    /// 999 of 1000 operations take at most this long.
    pub p999_ns: Option<f64>,
    /// Transactions given up and tried again.
    pub aborts: u64,
    /// Drains per operation, counted.
    pub barriers_per_op: Option<f64>,
    /// Lines flushed per operation, counted.
    pub lines_per_op: Option<f64>,
    /// Bytes on their way to the media per operation, counted.
    pub media_bytes_per_op: Option<f64>,
    /// Media bytes per byte that the user changed.
    pub write_amplification: Option<f64>,
    /// Persistence domain of the pool.
    pub domain: Option<String>,
    /// What it was measured on.
    pub machine: String,
    /// Rounds the medians and spreads are of.
    pub rounds: usize,
    /// Wall-clock nanoseconds of a round divided by its operations.
    pub ns_per_op: Option<Spread>,
    /// Bytes the user changed or read per second, median of the rounds; null if the operation has no size.
    pub bytes_per_s: Option<f64>,
    /// System calls that waited for the device per operation, counted.
    pub syncs_per_op: Option<f64>,
    /// Engine or peer that `ratio` compares with.
    pub baseline: Option<String>,
    /// How many times as fast as the baseline: its time divided by this one's, round by round.
    pub ratio: Option<Spread>,
    /// Why there are no numbers.
    pub missing: Option<String>,
    /// How many times as long as `bare` it takes, where that takes part: its time divided by that one's, round by round.
    pub of_limit: Option<Spread>,
    /// Attempts that were given up, of all attempts.
    pub abort_rate: Option<f64>,
    /// Bytes that the files take of the device.
    pub file_bytes: Option<u64>,
    /// The same, divided by the bytes of keys and values.
    pub of_live: Option<f64>,
    /// Bytes of memory that lasts for each byte of live objects, their backup counted and the log not.
    pub memory: Option<f64>,
    /// The longest of the operations that were timed alone, which in rounds of their own are all.
    pub max_ns: Option<f64>,
    /// How long a line of the cache that one thread has written takes to another one, in the rounds of this row; where several threads are at work.
    pub line_ns: Option<Spread>,
    /// File system that the files are in, such as `tmpfs`: there, no data outlives a loss of power.
    pub medium: Option<String>,
    /// Bytes of anonymous memory that the process took while the store was filled, divided by its keys.
    pub dram_per_key: Option<f64>,
    /// CPU time of the server's process, its own and the kernel's for it, divided by the requests.
    pub cpu_ns_per_op: Option<Spread>,
    /// How many times as much of it as the baseline needs, round by round: less than 1 is cheaper.
    pub cpu_ratio: Option<Spread>,
}

impl Row {
    /// A row that is still to be measured.
    #[must_use]
    pub fn new(experiment: &str, engine: &str) -> Self {
        Self {
            experiment: experiment.into(),
            engine: engine.into(),
            structure: None,
            threads: 1,
            params: BTreeMap::new(),
            ops: 0,
            seconds: 0.0,
            ops_per_s: 0.0,
            p50_ns: None,
            p99_ns: None,
            p999_ns: None,
            aborts: 0,
            barriers_per_op: None,
            lines_per_op: None,
            media_bytes_per_op: None,
            write_amplification: None,
            domain: None,
            machine: String::new(),
            rounds: 0,
            ns_per_op: None,
            bytes_per_s: None,
            syncs_per_op: None,
            baseline: None,
            ratio: None,
            missing: None,
            of_limit: None,
            abort_rate: None,
            file_bytes: None,
            of_live: None,
            memory: None,
            max_ns: None,
            line_ns: None,
            medium: None,
            dram_per_key: None,
            cpu_ns_per_op: None,
            cpu_ratio: None,
        }
    }

    /// Sets the structure.
    #[must_use]
    pub fn structure(mut self, name: &str) -> Self {
        self.structure = Some(name.into());
        self
    }

    /// A row without numbers, and why.
    #[must_use]
    pub fn missing(mut self, why: &str) -> Self {
        self.missing = Some(why.into());
        self
    }

    /// Adds a parameter.
    #[must_use]
    pub fn param(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.params.insert(name.into(), value.into());
        self
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the persistence domain.
    #[must_use]
    pub fn domain(mut self, domain: pmem::Domain) -> Self {
        self.domain = Some(domain.to_string());
        self
    }
}

/// One JSON object per line.
///
/// # Errors
/// Those of the writer.
pub fn write_json(rows: &[Row], out: &mut impl Write) -> std::io::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *out, row)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_odd_even_and_none() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    /// Scripts outside the project read these names, in one object a line.
    #[test]
    fn json_has_the_fields_of_the_contract() {
        let mut out = Vec::new();
        let row = Row::new("limits", "none").param("bytes", 64).threads(2).domain(pmem::Domain::Emulated);
        write_json(&[row.clone(), row], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 2);
        let value: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        for name in [
            "experiment",
            "engine",
            "structure",
            "threads",
            "params",
            "ops",
            "seconds",
            "ops_per_s",
            "p50_ns",
            "p99_ns",
            "p999_ns",
            "aborts",
            "barriers_per_op",
            "lines_per_op",
            "media_bytes_per_op",
            "write_amplification",
            "domain",
            "machine",
        ] {
            assert!(value.get(name).is_some(), "{name} is missing");
        }
        assert_eq!(value["params"]["bytes"], 64);
        assert_eq!(value["domain"], "emulated");
        assert_eq!(value["threads"], 2);
    }
}
