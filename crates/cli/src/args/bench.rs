//! What can be measured.

mod kv;
mod log;
mod replicate;
mod server;

use std::path::PathBuf;

use bench::engines::{Contestant, Structure};
use bench::experiments::{Set, Shape};
use bench::workload::tpcc::{Declare, Mix};
use bench::workload::{Distribution, Workload};
use clap::{Args as ClapArgs, Subcommand};

pub use self::kv::{CompareStores, KvOpen, KvSpace, KvStores, Midas};
pub use self::log::{Figures, LogAppend};
pub use self::replicate::{LogReplicate, LogTakeover, RocksdbWal};
pub use self::server::ServedBench;
use super::Media;
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Bench {
    Limits(Limits),
    TxOverwrite(Overwrite),
    TxAlloc(Alloc),
    Ycsb(Ycsb),
    Dependent(Dependent),
    WorstCase(WorstCase),
    Structures(Structures),
    Tpcc(Tpcc),
    #[command(name = "smallbank")]
    SmallBank(SmallBank),
    LogAppend(LogAppend),
    #[command(visible_alias = "replicated-log")]
    LogReplicate(LogReplicate),
    LogTakeover(LogTakeover),
    #[command(name = "rocksdb-wal")]
    RocksdbWal(RocksdbWal),
    Kv(KvStores),
    Midas(Midas),
    KvOpen(KvOpen),
    KvSpace(KvSpace),
    Server(ServedBench),
    Figures(Figures),
}

/// What this machine can do at best: barriers, flushes, copies, checksums, atomics
///
/// Sides are measured in turn, five rounds or more; printed are the median and the spread of the rounds ("wide" if the slowest
/// took half as long again as the fastest). Barriers and lines per operation are counted, not estimated.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench limits --quick
      in /dev/shm and /var/tmp, a few seconds
  cairn bench limits --dir /mnt/pmem --json limits.json
      on persistent memory; one JSON object per line goes to the file
  cairn bench limits --dir /dev/shm --nvm-latency drain=300,line=60
      as if memory were slower")]
pub struct Limits {
    /// Measure pools in this directory; may be given several times [default: /dev/shm and /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,
    /// Write one JSON object per row to this file, - for standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Few and short rounds: an impression
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    pub media: Media,
}

/// What is compared, where and how long
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Comparison")]
pub struct Compare {
    /// Engines: none (no atomicity, the upper bound), undo, inplace, eaw, partial-0.1 to partial-1.0 (in place with copies of a share of what is stored); kv (smallbank alone here); bare (tx-overwrite alone: bytes stored, flushed and waited for, the limit); reference (in DRAM, for tests of the benchmark)
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = engine, default_value = "none,undo,inplace,eaw")]
    pub engine: Vec<Contestant>,
    /// Other systems: pmemobj; one that is not in this build is reported as missing
    #[arg(long, value_name = "P,Q", value_delimiter = ',', value_parser = peer)]
    pub peer: Vec<Contestant>,
    /// Numbers of threads, one after the other
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1,2", value_parser = threads)]
    pub threads: Vec<usize>,
    /// What the others are held against [default: the first peer, else none, else the first engine]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<Contestant>,
    #[command(flatten)]
    pub run: Run,
    /// The same seed asks for the same
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

/// Where and how long is measured, and what becomes of the rows.
#[derive(Debug, ClapArgs)]
pub struct Run {
    /// What is measured lies in a temporary folder in there, the peers' files too [default: /dev/shm, if there is one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub rounds: Rounds,
}

/// What becomes of the rows, and how many there are.
#[derive(Debug, ClapArgs)]
pub struct Output {
    /// Write one JSON object per row to this file, - for standard output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw SVG files into this directory
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Fewer and shorter rounds, fewer and smaller cases: an impression in seconds
    #[arg(long)]
    pub quick: bool,
}

/// How long is measured.
#[derive(Debug, ClapArgs)]
pub struct Rounds {
    /// Rounds, five at least [default: 15, or 5 if quick]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Length of each side's share of a round [default: 10, or 1 if quick]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub round_ms: Option<u64>,
}

fn engine(name: &str) -> Result<Contestant, String> {
    one_of(name, &Contestant::ENGINES, |who| who.name())
}

fn peer(name: &str) -> Result<Contestant, String> {
    one_of(name, &Contestant::PEERS, |who| who.name())
}

fn one_of<T: Copy>(name: &str, all: &[T], name_of: impl Fn(&T) -> &'static str) -> Result<T, String> {
    let names = || all.iter().map(&name_of).collect::<Vec<_>>().join(", ");
    all.iter().find(|who| name_of(who) == name).copied().ok_or_else(|| format!("choose from: {}", names()))
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=THREADS_MAX) => Ok(threads),
        _ => Err(format!("expected a number from 1 to {THREADS_MAX}")),
    }
}

const THREADS_MAX: usize = 64;

/// Overwrite objects in transactions
///
/// Each transaction overwrites one or more whole objects, chosen at random from a working set that belongs to its thread: hot, 128 KiB
/// for each thread, or cold, 128 MiB together. Several objects are declared at once.
///
/// One line per engine, sides measured in turn: median time per transaction with the extremes of the rounds; how many times as fast
/// as the baseline, from the ratios of the same rounds; latencies of some transactions (of all, if they are slow), each with the 20 ns of a
/// clock reading in it; barriers, lines and bytes per transaction, counted. Times are of all threads together: with two threads, half of what each takes.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench tx-overwrite --quick
  cairn bench tx-overwrite --peer pmemobj --objects 1,4 --bytes 64,1024 --set hot
      against libpmemobj, in a build with --features peers
  cairn bench tx-overwrite --dir /mnt/pmem --json rows.json --plot plots")]
pub struct Overwrite {
    /// Objects in a transaction [default: 1,4]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub objects: Vec<usize>,
    /// Bytes of an object [default: 64,256,1024,4096, or 64,1024 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub bytes: Vec<usize>,
    /// Working sets: hot, cold [default: both, or hot if quick]
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    pub set: Vec<Set>,
    #[command(flatten)]
    pub compare: Compare,
}

/// Allocate and free in transactions
///
/// One transaction allocates a block, fills it and links it into its thread's list; another unlinks the first block and frees it. Timed
/// are the one, the other, and the pair (one pair is one operation). What an engine leaves for later falls to the next operation: the pair is
/// the exact figure.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench tx-alloc --quick
  cairn bench tx-alloc --bytes 128 --peer pmemobj --threads 1")]
pub struct Alloc {
    /// Bytes of a block, 8 of them for the link [default: 64,128,1024, or 128 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub bytes: Vec<usize>,
    #[command(flatten)]
    pub compare: Compare,
}

/// Keys and values: YCSB A to F, or a trace
///
/// A: half reads, half updates. B: 5 % updates. C: reads. D: 5 % inserts, reads of what is new. E: scans of up to 100, 5 % inserts; not
/// on a hash map. F: half reads, half read-modify-writes. Each operation is a transaction; values are written whole and copied out
/// when read. A read that finds nothing ends the run with an error.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
A trace is a text file, one operation per line, # begins a comment:
  get KEY
  put KEY BYTES
  delete KEY
  scan KEY N
Keys are words of up to 64 bytes. The store is empty at first, and the trace runs again and again; with several
threads each does the operations on its share of the keys.

Examples:
  cairn bench ycsb --quick
  cairn bench ycsb --workload A,F --structure hashmap --keys 100k --peer pmemobj --threads 1,2,4,8
  cairn bench ycsb --workload C --distribution uniform --value-bytes 100
  cairn bench ycsb --trace my.trace --structure btree")]
pub struct Ycsb {
    /// Workloads [default: all]
    #[arg(long, value_name = "W", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Structures: hashmap, btree [default: both, or btree with a trace]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub structure: Vec<Structure>,
    /// Keys at first; k and M are powers of 1000 [default: 100k, or 5k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub keys: Option<u64>,
    /// Bytes of a key, 20 to 64
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub key_bytes: usize,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub value_bytes: u32,
    /// Which keys are asked for: zipfian, latest, uniform [default: latest for D, else zipfian]
    #[arg(long, value_name = "D")]
    pub distribution: Option<Distribution>,
    /// Replay this instead of a workload
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "keys", "distribution"])]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub compare: Compare,
}

/// Look-ups, and inserts of one key again and again (Kamino-Tx, section 7.1)
///
/// 80 % look-ups of any key, 20 % inserts of one and the same, spaced out evenly between the look-ups or in bursts of 20; by one thread,
/// or by all of them at once. Timed are all operations, and inserts and look-ups each alone.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench dependent --quick
  cairn bench dependent --engine undo,inplace,eaw --baseline undo --threads 1,2")]
pub struct Dependent {
    /// Structures: hashmap, btree [default: btree]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub structure: Vec<Structure>,
    /// Keys that are looked up [default: 100k, or 5k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub keys: Option<u64>,
    #[command(flatten)]
    pub compare: Compare,
}

/// One object updated over and over (Kamino-Tx, section 7.1)
///
/// Each transaction has to wait for what the one before left behind. Every thread has an object of its own, as in the paper; with
/// several threads, there is also the case that all fight for one.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench worst-case --quick
  cairn bench worst-case --engine undo,inplace,eaw --baseline undo --threads 1,2,4,8")]
pub struct WorstCase {
    /// Bytes of the object [default: 64,256,1024,4096, or 64,1024 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub bytes: Vec<usize>,
    #[command(flatten)]
    pub compare: Compare,
}

/// Every structure on every engine: half of the transactions ask, half change
///
/// Of a map a key is looked up, then one is removed if it is there, put if it is not: half of the keys are there at any time. Of the graph
/// a path of up to six edges between two nodes is searched, then an edge comes or goes (MARS, section 5.3). Keys and nodes are drawn
/// uniformly; nodes with many edges have got more of them.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench structures --quick
  cairn bench structures --threads 1,2,4,8
      all six, on all policies, in one table
  cairn bench structures --structure treap,btree --keys 1M --value-bytes 1024")]
#[command(mut_arg("engine", |engine| engine.default_value("none,undo,inplace,eaw,partial-0.5")))]
pub struct Structures {
    /// Structures: list, hashmap, bst (as keys come), treap (balanced), btree, graph [default: all]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub structure: Vec<Shape>,
    /// Keys that are there, of twice as many; of the graph nodes [default: 100k, or 5k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub keys: Option<u64>,
    /// The same of the list [default: 100]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub list_keys: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub value_bytes: u32,
    /// Edges of the graph that leave a node, on average
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub degree: u64,
    #[command(flatten)]
    pub compare: Compare,
}

/// TPC-C: orders, payments and deliveries of warehouses
///
/// The nine tables of the standard in hash maps, and in B+trees where there is an order; each of its five transactions is one of the engine: 45 % New-Order (one in a hundred is
/// rolled back), 43 % Payment, 4 % each Order-Status, Delivery and Stock-Level. A thread is a terminal that never waits, with a warehouse of its
/// own. When all rounds are over the consistency conditions of the standard are checked on all rows: a run that breaks one is an error.
///
/// Figures are ratios of engines, not tpmC: no screens, no thinking times.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench tpcc --quick
  cairn bench tpcc --engine undo,inplace,eaw --baseline undo --threads 1,2,4,8
      at the standard's size: 0.4 GB for each thread and engine
  cairn bench tpcc --engine undo,inplace,eaw --baseline undo --mix new-order,payment --declare together,each")]
#[command(mut_arg("engine", |engine| engine.default_value("none,undo,inplace,eaw,partial-0.5")))]
pub struct Tpcc {
    /// Transactions: standard (all five), new-order, payment
    #[arg(long, value_name = "M", value_delimiter = ',', default_value = "standard")]
    pub mix: Vec<Mix>,
    /// Changes are declared together, before the first; or each when it comes, which costs undo a barrier every time
    #[arg(long, value_name = "D", value_delimiter = ',', default_value = "together")]
    pub declare: Vec<Declare>,
    /// What tables are in that are only looked up by key: hashmap, btree [default: hashmap]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub structure: Vec<Structure>,
    /// Warehouses [default: one for each thread]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub warehouses: Option<u64>,
    /// Customers of each of the ten districts of a warehouse, and orders at first [default: 3000, or 60 if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub customers: Option<u64>,
    /// Items, and stocks of a warehouse [default: 100k, or 1k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub items: Option<u64>,
    #[command(flatten)]
    pub compare: Compare,
}

/// SmallBank: six procedures on savings and checking accounts
///
/// 25 % SendPayment, 15 % each Balance, DepositChecking, TransactSavings, Amalgamate and WriteCheck, each one transaction; those that would overdraw are
/// refused. Accounts are objects to which the structure leads; in the store kv, which may stand beside them, keys and values. When all rounds are over, the money
/// that there is must be what was there at first and was put in and taken out since.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench smallbank --quick
  cairn bench smallbank --engine undo,inplace,eaw,kv --baseline undo --threads 1,2,4,8
  cairn bench smallbank --engine undo,inplace,eaw,kv --baseline undo --threads 2 --hot 10 --hot-percent 90")]
#[command(mut_arg("engine", |engine| engine.default_value("none,undo,inplace,eaw,partial-0.5,kv")))]
pub struct SmallBank {
    /// Structures: hashmap, btree [default: both]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub structure: Vec<Structure>,
    /// Customers [default: 100k, or 1k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub customers: Option<u64>,
    /// Customers of the hotspot
    #[arg(long, value_name = "N", value_parser = size::parse_count, default_value = "100")]
    pub hot: u64,
    /// Of 100 customers that are picked so many are of the hotspot
    #[arg(long, value_name = "P", default_value_t = 25, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub hot_percent: u64,
    #[command(flatten)]
    pub compare: Compare,
}
