//! Measurements of logs with replicas in other processes.

use bench::experiments::log_replicate::ORDERS;
use bench::experiments::{Placement, Transport};
use bench::log_sides::Way;
use clap::Args as ClapArgs;
use log::FlushOrder;

use super::{Run, threads};
use crate::size;

/// Append records to a log that backups have replicas of
///
/// Each backup is a process of this machine that serves a replica; all replicas are in the same directory, and a record is durable when every one of them has it. Sides are measured in turn, as in log-append; ratios
/// are to one backup and appends that wait, in the same rounds.
///
/// Policies: sync (durable before append returns), pipelined:N (sent at once; waited for is the one N before), freq:N (a force for N records, by their numbers). Latencies
/// are of the call: a pipelined record is durable about N calls after its own.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Replicas:
  local+remote  the leader's own, and the backups'
  remote        the backups' alone: the leader has the log in memory

Transports:
  tcp           over the loopback interface; who waits sleeps
  tcp-spin      who waits looks 200 µs long before it sleeps, which costs a processor each
  libfabric-tcp, libfabric-tcp-spin, libfabric-shm-spin
                the same by libfabric's providers, if this program was built with it

Examples:
  cairn bench log-replicate --quick
  cairn bench log-replicate --bytes 1024 --backups 1 --order beside,after,before --replicas local+remote --policy sync
      when the leader flushes its own replica
  cairn bench log-replicate --dir /var/tmp --transport tcp
      on a disk")]
pub struct LogReplicate {
    /// Numbers of backups; 0 is a log without replicas [default: 0,1,2,3]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub backups: Vec<usize>,
    /// When an append waits [default: sync,pipelined:16,freq:16]
    #[arg(long, value_name = "P,Q", value_delimiter = ',')]
    pub policy: Vec<Way>,
    /// When the leader's own replica is flushed: beside the backups, after them, before them [default: beside]
    #[arg(long, value_name = "O", value_delimiter = ',', value_parser = order)]
    pub order: Vec<FlushOrder>,
    /// Where replicas are: local+remote, remote [default: both]
    #[arg(long = "replicas", alias = "copies", value_name = "C,D", value_delimiter = ',')]
    pub copies: Vec<Placement>,
    /// How they are reached, see below [default: tcp,tcp-spin, or tcp if quick]
    #[arg(long, value_name = "T", value_delimiter = ',')]
    pub transport: Vec<Transport>,
    /// Bytes of a record [default: 64,256,1024,4096, or 64,1024 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub bytes: Vec<usize>,
    /// Numbers of threads that append, one after the other [default: 1]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<usize>,
    /// Room for records in each replica: all of it is gone through before it is used again; cleaning it is not timed
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    pub room: u64,
    #[command(flatten)]
    pub run: Run,
}

/// Open a log whose leader is gone
///
/// Timed is opening and reading through, by the bytes that are live: of a log without backups (alone); of one with backups where the new leader finds its own replica (there), an
/// empty place, which is filled from a backup (lost), or never had one (never).
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench log-takeover --quick
  cairn bench log-takeover --live 16M,64M,256M --backups 3")]
pub struct LogTakeover {
    /// Bytes of live records, 1 KiB each [default: 16M,64M,256M, or 2M,8M if quick]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size::parse)]
    pub live: Vec<u64>,
    /// How many backups there are, two or more, and how many replicas must have a record
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub backups: usize,
    #[command(flatten)]
    pub run: Run,
}

fn order(name: &str) -> Result<FlushOrder, String> {
    let found = ORDERS.iter().find(|(one, _)| *one == name);
    found.map(|(_, order)| *order).ok_or_else(|| format!("choose from: {}", ORDERS.map(|(name, _)| name).join(", ")))
}

/// Put keys into RocksDB with its own write-ahead log, and with ours
///
/// Each put is durable when it returns; everything but the log is the same (Arcadia, section 5.6). Ratios are to RocksDB's own log, a file that grows; `recycled` is its own in files
/// that are used again. Needs a build with the feature peers.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench rocksdb-wal --quick
  cairn bench rocksdb-wal --dir /var/tmp --threads 1,4
      on a disk")]
pub struct RocksdbWal {
    /// Bytes of a value [default: 128,1024]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub value_bytes: Vec<usize>,
    /// Numbers of threads, one after the other [default: 1,4, or 1 if quick]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<usize>,
    #[command(flatten)]
    pub run: Run,
}
