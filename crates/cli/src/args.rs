//! What can be asked for on the command line, and the help about it.

mod array;
mod bench;
mod carry;
mod chain;
mod copies;
mod crash;
mod demo;
mod group;
mod kv;
mod log;
mod objects;
mod serve;
mod top;

use std::path::PathBuf;

use ::demo::Kind;
use clap::{Args as ClapArgs, Parser, Subcommand};
use pmem::{DomainChoice, Latency};

pub use self::array::{Array, CheckArray, CreateArray, ReadArray, StatusOfArray, WriteArray};
pub use self::bench::{
    Alloc, Bench, Compare, CompareStores, Dependent, Figures, KvOpen, KvSpace, KvStores, Limits, LogAppend,
    LogReplicate, LogTakeover, Midas, Output, Overwrite, RocksdbWal, Rounds, ServedBench, SmallBank, Structures, Tpcc,
    WorstCase, Ycsb,
};
pub use self::carry::{Export, Import};
pub use self::chain::{Chain, ChainAt, DemoOfChain, JoinChain, RemoveFromChain, ServeChain, StatusOfChain};
pub use self::copies::{Copies, Etcd, EtcdAccess, GROUP, Known, Trust};
pub use self::crash::Fault;
pub use self::demo::{Demo, DemoWorker};
pub use self::group::{Group, GroupAt, JoinGroup, RemoveFromGroup, StatusOfGroup, TransferGroup};
pub use self::kv::{
    Backup as BackupOfStore, CheckStore, CreateStore, Delete, Dump, Follow, Format, Get, Kv, Load, PromoteStore, Put,
    Range, Restore, Scan, Seed, Shell, Source, StatsOfStore, StoreCopies,
};
pub use self::log::{
    Append, Cat, CheckLog, ConvertLog, CreateLog, JoinCopy, Log, LogReplica, Promote, RemoveCopy, ReplicasOfLog, Show,
    StatsOfLog, Tail,
};
pub use self::objects::{Convert, Sizes};
pub use self::serve::{Asked, Engine, Serve};
pub use self::top::Top;
use crate::size;

/// Durable transactions at memory speed: make, show and check pools, measure, explore crashes,
/// show that nothing is lost.
#[derive(Debug, Parser)]
#[command(name = "cairn", version, after_help = EXIT_CODES, arg_required_else_help = true, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done; for check: the pool is sound; for crash: no violation; for demo: nothing lost
  1  for check, scrub, backup, convert, info, create, kv, log and array: the pool is damaged; for kv get: no value; for group status and chain status: a machine or a replica does not take
     part; for crash: a violation was found; for demo and chain demo: something was lost
  2  wrong usage, or something could not be opened, made or written

Errors say what is wrong and where, then what to do next. RUST_LOG=info shows more.

Begin with:
  cairn demo
  cairn help bench ycsb";

#[derive(Debug, Subcommand)]
pub enum Command {
    Create(Create),
    Info(Info),
    Check(Check),
    Scrub(Scrub),
    Backup(Backup),
    Convert(Convert),
    /// Measure
    Bench {
        #[command(subcommand)]
        experiment: Bench,
    },
    /// Key-value stores: make, read, write, load, back up, a shell
    Kv {
        #[command(subcommand)]
        action: Kv,
    },
    /// Logs of records: make, append to, read, follow, check; on one machine or several
    Log {
        #[command(subcommand)]
        action: Log,
    },
    /// Arrays of striped files that are written atomically: make, write, read, check
    Array {
        #[command(subcommand)]
        action: Array,
    },
    LogReplica(LogReplica),
    /// A store on several machines: which one leads, take a machine in, drop one
    Group {
        #[command(subcommand)]
        action: Group,
    },
    Serve(Box<Serve>),
    Import(Import),
    Export(Export),
    /// A map that several machines have, one behind the other: serve it, take a machine in, take one out, kill each
    Chain {
        #[command(subcommand)]
        action: Chain,
    },
    Top(Top),
    Crash(Crash),
    Demo(Demo),
    Man(Man),
    #[command(hide = true)]
    DemoWorker(DemoWorker),
    #[command(hide = true)]
    BenchReplica,
}

/// Make an empty pool, for a program's own regions or for objects under transactions
///
/// The file gets its name only when it is whole, belongs to you alone (mode 0600), and grows later when regions need more.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn create /mnt/pmem/shop.cairn --size 4G --layout shop-1
      on a DAX file system: persistent memory
  cairn create shop.cairn --engine mvcc --size 256M --slots 16
      a store of objects with several versions each; a program opens it by `Mvcc::open`
  cairn create /dev/shm/try.cairn --domain emulated --nvm-latency drain=300,line=60
      in ordinary memory, as if it were slower persistent memory
  cairn create data.cairn --domain file
      in an ordinary file, synced at every drain")]
pub struct Create {
    /// Where to make it; nothing may be there
    pub path: PathBuf,
    /// Bytes to begin with, with --engine bytes for objects; K, M, G and T are powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub size: u64,
    /// Name of what it will hold, up to 64 bytes; opening it as something else is refused
    #[arg(long, value_name = "NAME", default_value = "", conflicts_with = "engine")]
    pub layout: String,
    /// Make it for objects of this engine: a heap with the policy inplace, inplace-partial, eaw, undo or none; or mvcc
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<Kind>,
    #[command(flatten)]
    pub sizes: Sizes,
    #[command(flatten)]
    pub media: Media,
}

/// Write the manual pages into a folder
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn man target/man
      then: man -l target/man/cairn-serve.1")]
pub struct Man {
    /// The folder; made if there is none
    pub dir: PathBuf,
}

/// What a pool lies on.
#[derive(Clone, Debug, ClapArgs)]
pub struct Media {
    /// Persistence domain: auto, pmem, emulated or file
    #[arg(long, value_name = "DOMAIN", default_value = "auto")]
    pub domain: DomainChoice,
    /// Imitate slower media while this command runs, emulated domain only: drain=NS,line=NS,bandwidth=MB/s, each optional
    #[arg(long, value_name = "MODEL")]
    pub nvm_latency: Option<Latency>,
}

/// Show what a pool is: size, domain, layout, regions
///
/// Reads only, so the pool must have been closed cleanly and be open in no other process.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn info shop.cairn
  cairn info shop.cairn --json | jq .regions")]
pub struct Info {
    /// The pool
    pub path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Check a pool: header, regions, and what is inside: heaps, stores of keys and values, logs, replicas of logs
///
/// Everything that has a checksum is read and held against it; raw regions and objects that no backup covers have none. Reads only. A pool that was not closed cleanly is refused, because its recovery writes: give --recover to let it.
///
/// --repair recovers it, and makes right what another copy in the pool shows to be wrong: one of the header's two copies; of a heap with policy inplace each object, or its
/// backup, as a kept checksum tells. Of heaps with other policies there is one copy of an object only.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  sound, or all of it repaired
  1  damaged: each finding is printed
  2  wrong usage, or the pool cannot be opened (no such file, in use, not closed cleanly)

Examples:
  cairn check shop.cairn && cp shop.cairn backup/
  cairn check --recover shop.cairn
      after a crash: recover what this command can, then check
  cairn check --dry-run shop.cairn
  cairn check --repair shop.cairn
  cairn check shop.cairn --json | jq .findings")]
pub struct Check {
    /// The pool
    pub path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Open for writing, which recovers header, objects and transactions; closed cleanly only if nothing is left for other programs to recover
    #[arg(long)]
    pub recover: bool,
    /// Recover it, and repair what another copy in the pool shows to be wrong
    #[arg(long)]
    pub repair: bool,
    /// Say what --repair would repair, and change nothing
    #[arg(long, conflicts_with_all = ["repair", "recover"])]
    pub dry_run: bool,
}

/// Write a copy of a pool that is open nowhere
///
/// The copy is checked before it gets its name: of a heap of transactions it is opened, recovered and compared with its own backup; other pools are copied as they are, and
/// looked into as `cairn check` does. A program that
/// has a heap open makes backups beside its transactions: `Heap::backup`. The copy is the pool, with the same identity: to restore it, copy it back.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  written, and verified
  1  the pool is damaged: nothing is written
  2  wrong usage, or a file cannot be opened or written, or there is one at TARGET

Examples:
  cairn backup shop.cairn backup/monday.cairn
  cairn backup --recover shop.cairn backup/monday.cairn
      after a crash: recovers it first
  cairn kv backup shop.cairn backup/monday.cairn
      a store of keys and values, which has a backup of its own kind")]
pub struct Backup {
    /// The pool
    pub path: PathBuf,
    /// Where to write it; nothing may be there
    pub target: PathBuf,
    /// Open the pool for writing, which recovers its heap
    #[arg(long)]
    pub recover: bool,
}

/// Repair objects of a heap from their backup, or the backup from them; read all that objects with several versions are made of
///
/// For a heap with policy inplace. Recovers it first if it was not closed cleanly; then compares every object with its backup, and repairs the copy
/// that a kept checksum shows to be wrong.
///
/// Of objects with several versions (mvcc) every byte is read from the medium, the cells that are kept twice are repaired, and what the root leads to is walked. Of the objects there is one copy.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  both copies are equal now; of objects with several versions: all can be read, and no damage was seen
  1  damaged: they differ, and nothing tells which is right; or bytes of what is there once have gone bad
  2  wrong usage, or the pool cannot be opened, or its heap has no backup

Examples:
  cairn check shop.cairn || cairn scrub shop.cairn")]
pub struct Scrub {
    /// The pool
    pub path: PathBuf,
}

/// Explore what crashes leave of this library's own structures
///
/// Each scenario runs a small program on simulated memory, lets the power fail at every barrier in all the ways the media may
/// tear, recovers what is left, and holds it against what the program had acknowledged.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  no violation
  1  a violation, or with --mutate a violation of the unchanged program
  2  wrong usage, or a file could not be written

Examples:
  cairn crash --list
  cairn crash
      all scenarios
  cairn crash --scenario two-slot --budget 1M --seed 7
  cairn crash --scenario two-slot --mutate
      is every flush and drain needed?
  cairn crash --model file:4096
      on an ordinary file, where only a sync makes anything durable
  cairn crash --scenario log --faults flip,poison,page,sync,full
      a medium that fails, too")]
pub struct Crash {
    /// Run this scenario only; may be given several times
    #[arg(long, value_name = "NAME")]
    pub scenario: Vec<String>,
    /// Name the scenarios and what they explore
    #[arg(long, conflicts_with_all = ["scenario", "mutate", "faults", "json"])]
    pub list: bool,
    /// Images to recover in each scenario at most; k, M and G are powers of 1000
    #[arg(long, value_name = "N", default_value = "20k", value_parser = size::parse_count)]
    pub budget: u64,
    /// Workloads in each scenario, which share the budget, ten images each at least [default: more with a larger budget]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub schedules: Option<u64>,
    /// 1 crashes the program, 2 also its recovery, and so on
    #[arg(long, value_name = "D", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub depth: u8,
    /// The same seed explores the same states
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// How memory tears
    #[arg(long, value_name = "MODEL", default_value = "words", value_parser = crash::model, long_help = crash::MODEL_HELP)]
    pub model: ::crash::Model,
    /// The device fails, too, in these ways: flip, poison, stuck, sync, full
    #[arg(long, value_name = "FAULTS", value_delimiter = ',', conflicts_with = "mutate", long_help = crash::FAULTS_HELP)]
    pub faults: Vec<crash::Fault>,
    /// Leave out each flush and drain in turn and see whether that is found
    #[arg(long)]
    pub mutate: bool,
    /// Write one JSON object per scenario to this file, - for standard output instead of text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Scenarios at once [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    /// The examples of the help texts are commands that parse.
    #[test]
    fn examples_parse() {
        let mut seen = 0;
        let command = Args::command();
        let nested = command.get_subcommands().flat_map(|c| std::iter::once(c).chain(c.get_subcommands()));
        for text in nested.filter_map(|c| c.get_after_help()) {
            for line in text.to_string().lines().filter_map(|line| line.strip_prefix("  cairn ")) {
                let line = line.split(['|', '&', '>', '<']).next().unwrap_or(line);
                let words = std::iter::once("cairn").chain(line.split_whitespace());
                if line.contains("libfabric:") && !cfg!(feature = "libfabric") {
                    continue; // it says so
                }
                let parsed = Args::try_parse_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                seen += 1;
            }
        }
        assert!(seen >= 24, "{seen} examples");
    }
}
