//! What can be done with logs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

use super::Media;
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Log {
    Create(CreateLog),
    Append(Append),
    Cat(Cat),
    Tail(Tail),
    Check(CheckLog),
    Stats(StatsOfLog),
}

/// Make an empty log, in a pool of its own
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn log create /mnt/pmem/orders.log
  cairn log create orders.log --bytes 1G --segment 4M --domain file
      records of up to 4 MiB, in an ordinary file, synced at every force")]
pub struct CreateLog {
    /// Where to make it; nothing may be there
    pub path: PathBuf,
    /// Bytes for records, headers included; K, M, G and T are powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub bytes: u64,
    /// Bytes of a segment: no record is longer, and space is used again by segments [default: an eighth of the log, 4K to 1M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub segment: Option<u64>,
    #[command(flatten)]
    pub media: Media,
}

/// Append each line of standard input as a record
///
/// Recovers the log first if it was not closed. A full log is an error: it is cleaned up by the program that uses it.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Prints how many records were appended and the number (LSN) of the last one, which is durable then.

Examples:
  seq 1000 | cairn log append orders.log
  journalctl -f | cairn log append events.log --frequency 64 --within 20")]
pub struct Append {
    /// The log
    pub path: PathBuf,
    /// Records are not lines but bytes, each behind their number as four bytes, least first
    #[arg(long)]
    pub binary_len: bool,
    /// Force so many records at a time; 1 makes each durable before the next is read
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub frequency: u32,
    /// Milliseconds that a record waits for its force at most, if the frequency is not 1
    #[arg(long, value_name = "MS", default_value = "100", value_parser = milliseconds)]
    pub within: Duration,
}

/// Print the records of a log, oldest first, each on a line
///
/// Locks nothing, writes nothing, and needs no recovery: another process may write the log meanwhile. Printed are records that are known to
/// be durable: a later one says so, or the log was closed.
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
      which records are missing is said on standard error")]
pub struct Cat {
    /// The log
    pub path: PathBuf,
    /// Begin with this record
    #[arg(long, value_name = "LSN", value_parser = clap::value_parser!(u64).range(1..))]
    pub from: Option<u64>,
    /// Go on behind lost records, and print whole ones whether they were durable or not; for a log that nobody writes
    #[arg(long)]
    pub salvage: bool,
    #[command(flatten)]
    pub show: Show,
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

fn milliseconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(ms @ 1..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err("expected 1 to 60000".into()),
    }
}
