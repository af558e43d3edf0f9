//! `cairn demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use demo::Kind;

use crate::size;

/// Compare with what would be used instead, then kill a working process again and again, and show that nothing is lost
///
/// First the store is measured beside redb, in this process, on a disk and in memory, the server beside Redis with
/// appendfsync always, and large objects changed in place beside an undo log.
///
/// Then a worker process runs YCSB workload A on a hash map in a pool. It is measured, undisturbed; then it is killed with SIGKILL at
/// random moments. After each kill this process recovers the pool and compares every key with the updates that the worker had
/// acknowledged. Printed are two tables; plots are in the report. Takes about a minute.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  every acknowledged update survived every kill
  1  something was lost or damaged: which key, the version expected and the version found; the pool is kept
  2  wrong usage, or it could not be run to its end

Examples:
  cairn demo
  cairn demo --only-kills --engine none --keys 2k --seconds 1 --kills 200
      without atomicity half a transaction is found after some ten kills: what the others protect from
  cairn demo --trace requests.txt --report requests.html
      operations of your own, one a line: get KEY, put KEY BYTES, delete KEY, scan KEY N
  cairn demo --only-kills --dir /var/tmp --keys 10k --seconds 5
      on a disk, synced at every commit")]
pub struct Demo {
    /// Make the pools in this directory [default: /dev/shm if there is room, else the one for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Engines, separated by commas: heaps with the policies none, undo, inplace, inplace-partial, eaw; mvcc
    #[arg(long, alias = "policy", value_name = "LIST", value_delimiter = ',', default_value = "undo,inplace,eaw")]
    pub engine: Vec<Kind>,
    /// Keys; k, M and G are powers of 1000
    #[arg(long, value_name = "N", default_value = "100k", value_parser = size::parse_count)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(24..=1 << 20))]
    pub value_bytes: u32,
    /// Kills in all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub kills: u32,
    /// Measure each engine that long; workers live up to a twelfth of it before they are killed
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Threads of the worker [default: one per core, up to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    pub threads: Option<u16>,
    /// Run this file's operations, round and round, instead of workload A
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "value_bytes"])]
    pub trace: Option<PathBuf>,
    /// Write the report here
    #[arg(long, value_name = "FILE", default_value = "cairn-demo.html")]
    pub report: PathBuf,
    /// The same seed draws the same operations and moments
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Leave the comparisons out
    #[arg(long)]
    pub only_kills: bool,
    /// Files that are compared on a disk go to this directory [default: /var/tmp]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["only_kills", "trace"])]
    pub disk: Option<PathBuf>,
    /// Plant a bug that must be found: acknowledge before the commit
    #[arg(long, hide = true)]
    pub plant_early: bool,
}

/// What the demo starts itself again with.
#[derive(Debug, ClapArgs)]
pub struct DemoWorker {
    pub job: String,
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number of seconds, such as 10 or 0.5".to_owned())?;
    if (0.1..=3600.0).contains(&number) {
        Ok(Duration::from_secs_f64(number))
    } else {
        Err("expected 0.1 to 3600".into())
    }
}
