//! What is wanted, and what a worker is told of it.

use std::path::PathBuf;
use std::time::Duration;

use heap::Policy;
use serde::{Deserialize, Serialize};

use crate::{Error, Kind, Result, place};

/// The hidden command by which the parent starts itself again as a worker.
pub const WORKER: &str = "demo-worker";

/// A demonstration.
///
/// ```
/// let demo = demo::Demo { keys: 1000, kills: 4, ..Default::default() };
/// assert_eq!(demo.kinds.len(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Demo {
    /// Where pools go; by default /dev/shm if there is room, else the directory for temporary files.
    pub dir: Option<PathBuf>,
    /// Engines, each on a pool of its own.
    pub kinds: Vec<Kind>,
    /// Keys; not used with a trace.
    pub keys: u64,
    /// Bytes of a value; not used with a trace.
    pub value_bytes: u32,
    /// Kills in all, shared by the engines.
    pub kills: u32,
    /// How long each engine is measured, in all rounds together.
    pub measured: Duration,
    /// Threads of a worker; by default one per core, up to eight.
    pub threads: Option<usize>,
    /// Operations to run instead of workload A.
    pub trace: Option<PathBuf>,
    /// Where the report is written.
    pub report: PathBuf,
    /// The same seed draws the same operations; moments differ all the same.
    pub seed: u64,
    /// Leave the comparisons with other systems out; a trace has none.
    pub only_kills: bool,
    /// Where files on a disk go, for the comparisons.
    pub disk: PathBuf,
    /// The command `cairn`, which is started as a server for them.
    pub cairn: PathBuf,
    /// A planted bug that must be found: updates are acknowledged before they are committed.
    pub early: bool,
}

impl Default for Demo {
    fn default() -> Self {
        Self {
            dir: None,
            kinds: [Policy::Undo, Policy::InPlace, Policy::Eaw].map(Kind::Heap).into(),
            keys: 100_000,
            value_bytes: 1024,
            kills: 20,
            measured: Duration::from_secs(10),
            threads: None,
            trace: None,
            report: "cairn-demo.html".into(),
            seed: 1,
            only_kills: false,
            disk: place::disk(),
            cairn: "cairn".into(),
            early: false,
        }
    }
}

/// Measured rounds of each engine, in turn with the others'.
pub(crate) const ROUNDS: u32 = 5;
/// More threads than this show nothing new.
const THREADS_MAX: usize = 8;

impl Demo {
    /// Length of a round.
    pub(crate) fn round(&self) -> Duration {
        self.measured / ROUNDS
    }

    /// A worker lives this long at least and at most before it is killed.
    pub(crate) fn lives(&self) -> (Duration, Duration) {
        (self.measured / 100, self.measured / 12)
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or(cores.min(THREADS_MAX)).max(1)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::Option(why.into()));
        let mut names: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() || names.len() < self.kinds.len() {
            return wrong("each engine once, and at least one");
        }
        if (self.value_bytes as usize) < crate::value::HEADER {
            return wrong("a value takes 24 bytes to say whose it is; choose longer ones");
        }
        if self.keys < 2 * self.threads() as u64 && self.trace.is_none() {
            return wrong("fewer than two keys for each thread; choose more keys");
        }
        if self.threads() > crate::journal::THREADS_MAX {
            return wrong("more than 128 threads; choose fewer");
        }
        if self.measured < Duration::from_millis(100) {
            return wrong("nothing can be measured in less than 0.1 seconds; choose more");
        }
        Ok(())
    }
}

/// What a worker is told, in one argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) task: Task,
    pub(crate) pool: PathBuf,
    pub(crate) kind: String,
    pub(crate) keys: u64,
    pub(crate) value_bytes: u32,
    pub(crate) threads: usize,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) seed: u64,
    pub(crate) early: bool,
}

/// What a worker is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Makes and fills a pool, runs rounds when told to, closes the pool.
    Measure,
    /// Opens the pool and changes it, reporting each update, until it is killed.
    Report,
}

impl Job {
    pub(crate) fn kind(&self) -> Result<Kind> {
        self.kind.parse().map_err(Error::Option)
    }
}
