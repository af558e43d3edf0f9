//! Measurements of stores of keys and values.

use bench::experiments::Scenario;
use bench::kv_sides::StoreKind;
use bench::workload::Workload;
use clap::Args as ClapArgs;
use tx::Isolation;

use super::{Run, one_of, threads};
use crate::size;

/// What is compared, where and how long
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Comparison")]
pub struct CompareStores {
    /// Ours: kv; btree and hashmap, structures in a heap
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = ours, default_value = "kv,btree")]
    pub engine: Vec<StoreKind>,
    /// Other systems: lmdb, lmdb-writemap, rocksdb, rocksdb-optimistic, rocksdb-locking, bdb, sqlite, redb, fjall, pmemobj-hashmap, pmemobj-btree; one that is
    /// not in this build is reported as missing
    #[arg(long, value_name = "P,Q", value_delimiter = ',', value_parser = peer)]
    pub peer: Vec<StoreKind>,
    /// Numbers of threads, one after the other
    #[arg(long, value_name = "N,M", value_delimiter = ',', default_value = "1,2", value_parser = threads)]
    pub threads: Vec<usize>,
    /// What the others are held against [default: the first peer, else the first engine]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<StoreKind>,
    #[command(flatten)]
    pub run: Run,
    /// The same seed asks for the same
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

fn ours(name: &str) -> Result<StoreKind, String> {
    one_of(name, &StoreKind::OURS, |who| who.name())
}

fn peer(name: &str) -> Result<StoreKind, String> {
    one_of(name, &StoreKind::peers(), |who| who.name())
}

/// Stores of keys and values: a put per transaction, and YCSB A to F
///
/// put: each transaction sets one value of a key that is there, any of them. A to F: as in ycsb. Every store commits durably: others wait for
/// the device as their manuals ask for (`syncs`, counted, per operation), or flush cache lines.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench kv --quick
  cairn bench kv --peer lmdb,lmdb-writemap,rocksdb --workload put,A,C --threads 1,2,4,8
      in a build with --features peers
  cairn bench kv --peer rocksdb --keys 100k,1M --value-bytes 100 --dir /var/tmp --round-ms 100")]
pub struct KvStores {
    /// Workloads: put, A, B, C, D, E, F [default: these]; readback: an update and a read of its key, of which the read alone is timed
    /// by itself; churn: a key is removed and put again
    #[arg(long, value_name = "W", value_delimiter = ',')]
    pub workload: Vec<Workload>,
    /// Keys at first; k and M are powers of 1000 [default: 100k, or 5k if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = size::parse_count)]
    pub keys: Vec<u64>,
    /// Bytes of a key, 20 to 64
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub key_bytes: usize,
    /// Bytes of a value [default: 100,1024, or 1024 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub value_bytes: Vec<u32>,
    #[command(flatten)]
    pub compare: CompareStores,
}

/// Transactions of several reads and updates: scenarios S1 to S4 (Midas, chapter 6.3)
///
/// S1: 1000 pairs, 2 to 32 operations; S2: 1000 pairs, 64 to 256; S3 and S4: the same on 100 000 pairs. Keys of 128 bytes, values of 1 KiB, all keys
/// alike, 84 % reads. A transaction is tried again until it is committed; `of all` is how many attempts were given up. Levels: serializable,
/// snapshot; each store takes part at those it has. Rounds are five times as long as elsewhere. pmemobj-hashmap knows all its locks beforehand, which a program rarely does.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench midas --quick
  cairn bench midas --peer bdb,rocksdb-optimistic,lmdb,redb,fjall --threads 1,2,4,8
      in a build with --features peers
  cairn bench midas --scenario S2 --isolation serializable --peer lmdb")]
pub struct Midas {
    /// Scenarios [default: all]
    #[arg(long, value_name = "S", value_delimiter = ',')]
    pub scenario: Vec<Scenario>,
    /// Levels: serializable, snapshot [default: both]
    #[arg(long, value_name = "L", value_delimiter = ',')]
    pub isolation: Vec<Isolation>,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub value_bytes: u32,
    #[command(flatten)]
    pub compare: CompareStores,
}

/// How long it takes to open a store whose process was killed
///
/// A store is filled, a hundred keys are put once more, and its files are copied while it is open and at rest: that is what a killed process leaves.
/// Timed is: open the copy, read one value. The value is checked.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench kv-open --quick
  cairn bench kv-open --keys 10M --peer lmdb,rocksdb --rounds 5")]
pub struct KvOpen {
    /// Keys; k and M are powers of 1000 [default: 100k,1M, or 5k if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = size::parse_count)]
    pub keys: Vec<u64>,
    /// Bytes of a key, 20 to 64
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub key_bytes: usize,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub value_bytes: u32,
    #[command(flatten)]
    pub compare: CompareStores,
}

/// What files take while a few keys are overwritten again and again
///
/// One after the other, by one thread. What counts is what the file system has given: a hole takes nothing, what was set aside does.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench kv-space --quick
  cairn bench kv-space --keys 10k --overwrites 100M --peer lmdb,rocksdb")]
pub struct KvSpace {
    /// Keys; k and M are powers of 1000 [default: 10k, or 1k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub keys: Option<u64>,
    /// Overwrites, one per transaction [default: 1M, or 50k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub overwrites: Option<u64>,
    /// How often the files are looked at
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub looks: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub value_bytes: u32,
    #[command(flatten)]
    pub compare: CompareStores,
}
