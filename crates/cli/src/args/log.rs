//! What can be done with logs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

use super::{Copies, Media, Trust};
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Log {
    Create(CreateLog),
    Append(Append),
    Cat(Cat),
    Tail(Tail),
    Check(CheckLog),
    Convert(ConvertLog),
    Stats(StatsOfLog),
    Replicas(ReplicasOfLog),
    Promote(Promote),
    Join(JoinCopy),
    Remove(RemoveCopy),
}

/// Make an empty log, in a pool of its own; or on several machines
///
/// With --replica, or --etcd, the log is on the replicas that are named or announced there, all of which must be new; and on the one at PATH, if that is given.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn log create /mnt/pmem/orders.log
  cairn log create orders.log --bytes 1G --segment 4M --domain file
      records of up to 4 MiB, in an ordinary file, synced at every force
  cairn log create --replica a:7400 --replica b:7400 --replica c:7400 --write-quorum 2 --secret-file secret
      on three machines, of which any one may be lost: see `cairn help log-replica`")]
pub struct CreateLog {
    /// Where to make it; nothing may be there
    #[arg(required_unless_present_any = ["replica", "etcd"])]
    pub path: Option<PathBuf>,
    /// Bytes for records, headers included; K, M, G and T are powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub bytes: u64,
    /// Bytes of a segment: no record is longer, and space is used again by segments [default: an eighth of the log, 4K to 1M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub segment: Option<u64>,
    /// How many replicas must have a record before it counts as durable [default: all of them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=7), help_heading = super::GROUP)]
    pub write_quorum: Option<u32>,
    #[command(flatten)]
    pub media: Media,
    #[command(flatten)]
    pub copies: Copies,
}

/// Append each line of standard input as a record
///
/// Recovers the log first if it was not closed. A full log is an error: the program that uses it truncates it.
///
/// With --replica, or --etcd, it leads a log on several machines: it takes the log over first, which fences the previous leader. With --etcd it stands for
/// leadership before, waits while another program leads, and ends when its lease is lost.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Prints how many records were appended and the number (LSN) of the last one, which is durable then.

Examples:
  seq 1000 | cairn log append orders.log
  journalctl -f | cairn log append events.log --frequency 64 --within 20
  seq 1000 | cairn log append --replica a:7400 --replica b:7400 --secret-file secret --print-lsn
  journalctl -f | cairn log append --etcd http://e:2379 --prefix /cairn/events --secret-file secret
      on several machines: the next one takes over when this one is lost")]
pub struct Append {
    /// The log; on several machines, the replica that is here
    #[arg(required_unless_present_any = ["replica", "etcd"])]
    pub path: Option<PathBuf>,
    /// Records are not lines but bytes, each behind their number as four bytes, least first
    #[arg(long)]
    pub binary_len: bool,
    /// Force so many records at a time; 1 makes each durable before the next is read
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub frequency: u32,
    /// Milliseconds that a record waits for its force at most, if the frequency is not 1
    #[arg(long, value_name = "MS", default_value = "100", value_parser = milliseconds)]
    pub within: Duration,
    /// Print the number (LSN) of each record, on a line, as soon as it is durable; the rest is said on standard error
    #[arg(long)]
    pub print_lsn: bool,
    #[command(flatten)]
    pub copies: Copies,
}

/// Print the records of a log, oldest first, each on a line
///
/// Locks nothing, writes nothing, and needs no recovery: another process may write the log meanwhile. Printed are records that are known to
/// be durable: a later one says so, or the log was closed.
///
/// Not so with --replica or --etcd: to know what a log on several machines holds, its replicas must agree, so it is taken over, and a program that leads it is SHUT
/// OUT; with --etcd it waits until no program leads. `cairn log replicas` disturbs none.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  all records that there are
  1  damaged: a record is lost; what is before it, and with --salvage what is behind, was printed
  2  wrong usage, or no log

Examples:
  cairn log cat orders.log
  cairn log cat orders.log --from 1000 --json | jq .text
  cairn log cat broken.log --salvage > saved
      which records are missing is said on standard error
  cairn log cat --replica a:7400 --replica b:7400 --secret-file secret
      takes the log over")]
pub struct Cat {
    /// The log; on several machines, the replica that is here
    #[arg(required_unless_present_any = ["replica", "etcd"])]
    pub path: Option<PathBuf>,
    /// Begin with this record
    #[arg(long, value_name = "LSN", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,
    /// Go on behind lost records, and print whole ones whether they were durable or not; for a log that no program writes
    #[arg(long, conflicts_with_all = ["replica", "etcd"])]
    pub salvage: bool,
    #[command(flatten)]
    pub show: Show,
    #[command(flatten)]
    pub copies: Copies,
}

/// How records are printed.
#[derive(Clone, Debug, ClapArgs)]
pub struct Show {
    /// Print each record as a JSON object: lsn, and text, or hex if it is not UTF-8
    #[arg(long)]
    pub json: bool,
}

/// Print the last records of a log, and those to come
///
/// As cat, beside a process that writes the log. One that is idle says after 100 ms that all it wrote is durable; until then its last
/// record is held back.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn log tail orders.log -n 3
  cairn log tail -f orders.log
      until it is interrupted; goes on when the writer closes the log, is killed, opens it again")]
pub struct Tail {
    /// The log
    pub path: PathBuf,
    /// Wait for more
    #[arg(short, long)]
    pub follow: bool,
    /// So many of the records there are
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub records: usize,
    /// Print records at once, durable or not; after a crash of the writer those that were not are printed again as they are then
    #[arg(long)]
    pub eager: bool,
    #[command(flatten)]
    pub show: Show,
}

/// Check a log: read every record there is, and how it ends
///
/// Reads only. A log that was not closed is refused, because its recovery writes: give --recover to let it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  all records are there
  1  damaged: records are lost
  2  wrong usage, or the log cannot be opened (no such file, in use, not closed)

Examples:
  cairn log check orders.log && cp orders.log backup/
  cairn log check --recover orders.log
      after a crash")]
pub struct CheckLog {
    /// The log
    pub path: PathBuf,
    /// Open it for writing, which recovers it, and close it
    #[arg(long)]
    pub recover: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Write a log of an older format anew, in the newest: the same records under the same numbers
///
/// The old log is recovered if it was not closed, and stays as it is otherwise; no program may use it meanwhile. The new one is there as a whole or not at all. A log of format 1 cannot tell
/// that a page with its last records, or with both copies of its superline, was lost.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  the new log is there
  1  damaged: records of the old one are lost
  2  wrong usage, or a log cannot be opened or made

Examples:
  cairn log convert orders.log orders-2.log && mv orders-2.log orders.log")]
pub struct ConvertLog {
    /// The log
    pub from: PathBuf,
    /// The new one
    pub to: PathBuf,
}

/// Show how full a log is, and what is in it
///
/// Reads all of it, as cat does; another process may write it meanwhile.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn log stats orders.log
  cairn log stats orders.log --json | jq .live_bytes")]
pub struct StatsOfLog {
    /// The log
    pub path: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Show how the replicas of a log are doing, and disturb no program
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  all answer, and are of one log
  1  some do not answer, are new, or are of another log
  2  wrong usage

Examples:
  cairn log replicas --replica a:7400 --replica b:7400 --secret-file secret
  cairn log replicas --etcd http://e:2379 --prefix /cairn/events --secret-file secret --json")]
pub struct ReplicasOfLog {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub copies: Copies,
}

/// Take a log on several machines over, repair its replicas, say what was found
///
/// The previous leader is fenced: nothing more that it appends is acknowledged. No acknowledged record is lost: if the replicas that can be reached cannot tell which those are,
/// this is an error, and nothing is changed. The log is closed then, and the next `cairn log append` leads it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  done
  1  a record that was acknowledged is damaged on all replicas
  2  wrong usage; too few replicas can be reached, or another leader was faster

Examples:
  cairn log promote --replica b:7400 --replica c:7400 --secret-file secret
      of three replicas with a write quorum of two, these are enough
  cairn log promote orders.log --lost 5e1f07a2c83b9d64 --replica d:7400 --secret-file secret
      of two replicas, both of which must have each record, one is lost with its disk: a new one at d takes its place")]
pub struct Promote {
    /// The replica that is here
    pub path: Option<PathBuf>,
    /// Go on although a record may be lost that was acknowledged: for replicas that will never come back
    #[arg(long)]
    pub accept_doubt: bool,
    /// This replica, as messages and `cairn log replicas` name it, will never come back, and must not: a new one of those that are named takes its place, for which all the others must be there. Once for each
    #[arg(long, value_name = "ID", value_parser = copy_id)]
    pub lost: Vec<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub copies: Copies,
}

/// Take a replica in: a new one, or one that was given up and is there again
///
/// The log is taken over for that, as by promote: the previous leader is fenced. The replica is repaired and counts when this ends; a new one is one replica more, and the write quorum stays.
/// If it cannot join, nothing has changed. Of a group of `cairn serve --etcd`, `cairn group join` does it while the leader serves.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  it has the whole log
  1  a record that was acknowledged is damaged on all replicas
  2  wrong usage; it cannot join; too few replicas can be reached, or another leader was faster

Examples:
  cairn log join d:7400 --replica a:7400 --replica b:7400 --replica c:7400 --secret-file secret
      a fourth replica, served by `cairn log-replica` on d")]
pub struct JoinCopy {
    /// Host and port of the replica that joins
    #[arg(value_name = "ADDR")]
    pub address: String,
    /// The replica that is here
    pub path: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub copies: Copies,
}

/// Drop a replica that is lost for good, or not needed any more
///
/// The log is taken over for that, as by promote: the previous leader is fenced. The replica does not count from then on, neither among those that must have a record nor among those
/// that must be read; its file stays, and is to be deleted before its machine serves a new one. Of a group of `cairn serve --etcd`, `cairn group remove` does it while the leader serves.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  it is none of the log's replicas any more
  1  a record that was acknowledged is damaged on all replicas
  2  wrong usage; the log has no such replica, or needs it; too few replicas can be reached, or another leader was faster

Examples:
  cairn log remove 5e1f07a2c83b9d64 --replica a:7400 --replica b:7400 --secret-file secret
      `cairn log replicas` names replicas; of those that are lost, this command does if it is given 0")]
pub struct RemoveCopy {
    /// Which replica, as `cairn log replicas` names it
    #[arg(value_name = "ID", value_parser = copy_id)]
    pub id: u64,
    /// The replica that is here
    pub path: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub copies: Copies,
}

/// Serve a replica of a log to its leader
///
/// The replica is made if there is none; it is empty until `cairn log create` makes the log. The first line on standard output is the address that it listens at. SIGTERM and SIGINT end it
/// without losing anything; so does a crash.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  stopped as it was told to
  1  the replica is damaged
  2  wrong usage; the replica or the address cannot be used; the replica has failed; another process announced its name

Examples:
  (umask 077; head -c 32 /dev/urandom > secret)
      on one machine; copy it to the others
  cairn log-replica orders.replica --listen 0.0.0.0:7400 --secret-file secret
      on each machine; then: cairn log create --replica ...
  cairn log-replica orders.replica --listen 10.0.0.2:7400 --cert b.pem --key b.key --ca ca.pem
  cairn log-replica /dev/dax0.0 --listen 10.0.0.2:7400 --secret-file secret --fabric libfabric:verbs
      by RDMA: the leader's network card writes into the replica, if that is in memory
  cairn log-replica orders.replica --listen 10.0.0.2:7400 --secret-file secret --etcd http://e:2379 --prefix /cairn/orders")]
pub struct LogReplica {
    /// The replica
    pub path: PathBuf,
    /// Host and port; 0 for any port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    pub listen: String,
    /// Where others reach it, for --etcd [default: where it listens]
    #[arg(long, value_name = "ADDR", requires = "etcd")]
    pub announce: Option<String>,
    #[command(flatten)]
    pub media: Media,
    #[command(flatten)]
    pub trust: Trust,
    #[command(flatten)]
    pub etcd: super::Etcd,
}

pub(super) fn copy_id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| "expected up to 16 hexadecimal digits".into())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(ms @ 1..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err("expected 1 to 60000".into()),
    }
}
