//! What can be done with arrays.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

use super::Media;
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Array {
    Create(CreateArray),
    Write(WriteArray),
    Read(ReadArray),
    Check(CheckArray),
    Status(StatusOfArray),
}

/// Make an array with one file
///
/// Each path is a pool of its own, a member: on several devices, for their bandwidth. The file is striped over them.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn array create pages.array --bytes 1G
  cairn array create /mnt/a/pages /mnt/b/pages --file pages --bytes 64G --log 256M --domain file")]
pub struct CreateArray {
    /// The members; nothing may be there
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Name of the file
    #[arg(long, value_name = "NAME", default_value = "pages")]
    pub file: String,
    /// Bytes of the file; K, M, G and T are powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub bytes: u64,
    /// Bytes of log of each member to begin with
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    pub log: u64,
    #[command(flatten)]
    pub media: Media,
}

/// Write standard input into a file of an array, all of it or nothing
///
/// Recovers the array first if it was not closed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Prints how many bytes were written, which are durable then.

Examples:
  cairn array write a b --offset 8192 < page
  cairn array write a b --file settings < settings.toml")]
pub struct WriteArray {
    #[command(flatten)]
    pub place: Place,
}

/// Where in which file of which array.
#[derive(Debug, ClapArgs)]
pub struct Place {
    /// All members, in any order
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// The file; it must be there
    #[arg(long, value_name = "NAME", default_value = "pages")]
    pub file: String,
    /// Where in the file
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = size::parse)]
    pub offset: u64,
}

/// Print bytes of a file of an array
///
/// Changes nothing, and needs no permission to write; but recovers the array first if it was not closed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn array read a b --offset 8192 --len 4K > page
  cairn array read a b --file settings | tr -d '\\0'")]
pub struct ReadArray {
    #[command(flatten)]
    pub place: Place,
    /// How many [default: to the end]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub len: Option<u64>,
}

/// Check an array: members, transaction tables, what is in the logs
///
/// Changes nothing, and needs no permission to write. An array that was not closed is refused, because its recovery writes: give --recover to let it. What the files hold has no checksum.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  sound
  1  damaged: each transaction that is lost is printed, with the places it was to change
  2  wrong usage, or a member cannot be opened

Examples:
  cairn array check a b
  cairn array check --recover a b")]
pub struct CheckArray {
    /// All members, in any order
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Recover it if it was not closed
    #[arg(long)]
    pub recover: bool,
}

/// Show what an array is: files, members, logs, transactions
///
/// Changes nothing, and needs no permission to write; but recovers the array first if it was not closed.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn array status a b
  cairn array status a b --json | jq .files")]
pub struct StatusOfArray {
    /// All members, in any order
    #[arg(required = true)]
    pub paths: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
