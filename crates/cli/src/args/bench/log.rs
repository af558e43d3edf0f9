//! Measurements of logs, and the figures of papers.

use std::path::PathBuf;

use bench::log_sides::{Appender, Policy};
use clap::Args as ClapArgs;

use super::{Output, Run, one_of, threads};
use crate::size;

/// Append records to a log
///
/// Compared are our log under each policy; other systems; and bare: the record's bytes copied past the cache and one barrier, each thread for
/// itself, which is the limit. Columns as in tx-overwrite; `of bare` is how many times as long as the limit it takes, in the same
/// rounds. The window is how many records are complete and not durable, at most.
///
/// Policies: sync (durable before append returns), freq:N (a barrier for N records, by their numbers), group:N (by a counter that all
/// threads share). Others are always sync: pmemlog; flex (header, payload and tail made durable one after the other, under one lock); pwrite
/// (a file, written and synced under one lock).
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench log-append --quick
  cairn bench log-append --peer pmemlog,flex,pwrite --policy sync --threads 1,2
      against libpmemlog, in a build with --features peers
  cairn bench log-append --policy freq:8,group:16 --baseline group:16 --threads 2 --bytes 64")]
#[command(mut_arg("quick", |quick| quick.help("Fewer and shorter rounds, fewer cases: an impression in seconds")))]
pub struct LogAppend {
    /// Bytes of a record [default: 64,512,1024,4096, or 64,1024 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub bytes: Vec<usize>,
    /// Numbers of threads, one after the other [default: 1,2,4,8, or 1,2 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<usize>,
    /// When ours are durable
    #[arg(long, value_name = "P,Q", value_delimiter = ',', default_value = "sync,freq:8,group:8")]
    pub policy: Vec<Policy>,
    /// Other systems: pmemlog, flex, pwrite; one that is not in this build is reported as missing
    #[arg(long, value_name = "P,Q", value_delimiter = ',', value_parser = other)]
    pub peer: Vec<Appender>,
    /// What the others are held against: a policy, a peer or bare [default: the first peer, else bare]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<Appender>,
    /// Room for records in each log: all of it is gone through before it is used again; cleaning it is not timed
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub room: u64,
    #[command(flatten)]
    pub run: Run,
}

fn other(name: &str) -> Result<Appender, String> {
    one_of(name, &Appender::OTHERS, |who| who.name())
}

/// Measure the figures of a paper here
///
/// Each is printed as a table, with what the paper claims; what this machine cannot show is said.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Papers:
  arcadia   5a latency, 5b its parts, 5c threads, 5d tenants, 6a flush orders, 6c (not here) cache misses,
            6d backups, 7a recovery, 7b with a backup, 8a force policies, 8b (not here) cache misses,
            8c and 8d vulnerability window, 9 (elsewhere) RocksDB, 10 an ordered map with a log
  kamino    12 and 13 in place beside undo logging, 14 and 15 partial backups, 16 throughput for memory,
            T1 memory and latency of one node
  mars      3 latency of an atomic write, 4 by size, 5 what of it goes to the medium,
            6 records that change places, MARS beside ARIES, 7a B+tree, 7b hash table, 7c six degrees
  midas     throughput, speed-up, efficiency and abort rate in scenario S1 (6.3 to 6.6), S2 (6.7 to 6.10),
            S3 (6.11 to 6.14), S4 (6.15 to 6.18)

Examples:
  cairn bench figures --paper arcadia --quick
  cairn bench figures --paper arcadia --figure 5a --json 5a.json
  cairn bench figures --paper arcadia --figure 8
  cairn bench figures --paper midas --plot plots
      with other systems in a build with --features peers")]
#[command(mut_arg("json", |json| json.help("Write one JSON object per row to this file, - for standard output instead of the tables")))]
pub struct Figures {
    /// The paper
    #[arg(long, value_name = "NAME")]
    pub paper: String,
    /// This figure only; 5 is 5a, 5b and so on
    #[arg(long, value_name = "N")]
    pub figure: Option<String>,
    /// Logs and stores go into a temporary folder in there [default: /dev/shm, if there is one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}
