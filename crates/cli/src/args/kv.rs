//! What can be done with key-value stores.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::copies::GROUP;
use super::{Media, Trust};
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Kv {
    Create(CreateStore),
    Get(Get),
    Put(Put),
    Delete(Delete),
    Scan(Scan),
    Load(Load),
    Dump(Dump),
    Stats(StatsOfStore),
    Check(CheckStore),
    Backup(Backup),
    Restore(Restore),
    Shell(Shell),
    Follow(Follow),
    Promote(PromoteStore),
    Seed(Seed),
}

const FORMATS: &str = "\
Formats, each pair on a line:
  plain  key, tab, value; in both \\t \\n \\r \\\\ and \\x00 to \\xff stand for bytes that are no printable text
  hex    the same as hexadecimal digits
  json   {\"key\":\"apples\",\"value\":\"17\"}; key_hex and value_hex where it is not UTF-8
A pair that expires has the moment besides, in milliseconds of Unix time: a third column, or \"expires\".";

/// How keys and values are written and printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text, with backslashes for what is none
    Plain,
    /// Hexadecimal digits
    Hex,
    /// One JSON object on each line
    Json,
}

/// A store that is read.
#[derive(Clone, Debug, ClapArgs)]
pub struct Source {
    /// The store
    pub path: PathBuf,
    /// Open it for writing, which recovers it, if it was not closed
    #[arg(long)]
    pub recover: bool,
}

/// Make an empty store, in a pool of its own
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
It grows as it is filled, and shrinks when it is emptied.

Examples:
  cairn kv create /mnt/pmem/shop.cairn
  cairn kv create shop.cairn --domain file --segment 256K
      in an ordinary file, synced at every commit")]
pub struct CreateStore {
    /// Where to make it; nothing may be there
    pub path: PathBuf,
    /// Bytes of a segment, 4K to 256M: space is taken and freed by segments, and a store has at least eight
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size::parse)]
    pub segment: u64,
    #[command(flatten)]
    pub media: Media,
}

/// Print a key's value
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  printed
  1  the key has no value, or the store is damaged
  2  wrong usage, or the store cannot be opened

Examples:
  cairn kv get shop.cairn apples
  cairn kv get shop.cairn picture --raw > picture.png
  cairn kv get shop.cairn 'users\\x00ada' || echo none")]
pub struct Get {
    #[command(flatten)]
    pub source: Source,
    /// The key
    pub key: String,
    /// Print the bytes as they are, without an end of line
    #[arg(long)]
    pub raw: bool,
    /// How the key is written and the value printed
    #[arg(long, value_enum, default_value_t = Format::Plain)]
    pub format: Format,
}

/// Read every value and hold it against its checksum
///
/// The index is checked whenever a store is opened.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  sound, or repaired
  1  damaged
  2  wrong usage, or the store cannot be opened

A repair takes out what is damaged, and leaves the rest as a sound store. What follows a damaged record in a log, behind the last checkpoint, is given up, and told how much; an index that is
damaged is made anew of all records that are whole, and then keys may come back that were deleted. The file as it was is kept beside it, as NAME.before-repair.

Examples:
  cairn kv check shop.cairn
  cairn kv check shop.cairn --dry-run
      repairs a copy, says what is left, and removes it
  cairn kv check shop.cairn --repair")]
pub struct CheckStore {
    #[command(flatten)]
    pub source: Source,
    /// Take out what is damaged, after a copy of the file was made
    #[arg(long)]
    pub repair: bool,
    /// Say what a repair would leave, and change nothing
    #[arg(long, conflicts_with = "repair")]
    pub dry_run: bool,
}

/// Set a key's value
///
/// Recovers the store first if it was not closed. The value is durable when this returns.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn kv put shop.cairn apples 17
  cairn kv put shop.cairn session token --expires-in 30m
  cairn kv put shop.cairn picture < picture.png
      the bytes of standard input, as they are")]
pub struct Put {
    /// The store
    pub path: PathBuf,
    /// The key
    pub key: String,
    /// Its value [default: all of standard input]
    pub value: Option<String>,
    /// Let it be gone after that time: 90, 90s, 15m, 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub expires_in: Option<Duration>,
    /// How key and value are written
    #[arg(long, value_enum, default_value_t = Format::Plain)]
    pub format: Format,
}

/// Remove keys, all of them or none
///
/// Prints how many had a value.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn kv delete shop.cairn apples pears
  cairn kv delete shop.cairn --prefix session:
  cairn kv delete shop.cairn --from 2024 --to 2025
      from the first to before the second")]
pub struct Delete {
    /// The store
    pub path: PathBuf,
    /// The keys
    #[arg(required_unless_present_any = ["prefix", "from", "to"], conflicts_with_all = ["prefix", "from", "to"])]
    pub keys: Vec<String>,
    #[command(flatten)]
    pub range: Range,
    /// How keys are written
    #[arg(long, value_enum, default_value_t = Format::Plain)]
    pub format: Format,
}

/// Which keys.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct Range {
    /// Keys that begin so
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// From this key on
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,
    /// Up to before this key
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,
}

/// Print pairs in order of their keys
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn kv scan shop.cairn --prefix user: --keys-only
  cairn kv scan shop.cairn --from m --reverse --limit 10
  cairn kv scan shop.cairn --prefix 'users\\x00' --format json | jq .value
      a typed table
  cairn kv scan shop.cairn --count")]
pub struct Scan {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub range: Range,
    /// Largest key first
    #[arg(long)]
    pub reverse: bool,
    /// So many pairs at most
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Print no values
    #[arg(long)]
    pub keys_only: bool,
    /// Print only how many there are
    #[arg(long, conflicts_with = "keys_only")]
    pub count: bool,
    /// How keys are written and pairs printed: see `cairn help kv dump`
    #[arg(long, value_enum, default_value_t = Format::Plain)]
    pub format: Format,
}

/// Load pairs, as dump prints them
///
/// In transactions of about a mebibyte: if it fails, what was loaded before is there, and is told. Keys that are there get the new value. Sorted input is
/// loaded fastest.
#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{FORMATS}

Examples:
  cairn kv load shop.cairn pairs.tsv
  cairn kv dump old.cairn | cairn kv load new.cairn
  zcat pairs.json.gz | cairn kv load shop.cairn --format json"))]
pub struct Load {
    /// The store
    pub path: PathBuf,
    /// The pairs, - for standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// How the pairs are written
    #[arg(long, value_enum, default_value_t = Format::Plain)]
    pub format: Format,
}

/// Print all pairs with their expiry times, to be loaded elsewhere
#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{FORMATS}

Examples:
  cairn kv dump shop.cairn > pairs.tsv
  cairn kv dump shop.cairn --format json | jq -r .key"))]
pub struct Dump {
    #[command(flatten)]
    pub source: Source,
    /// How the pairs are printed
    #[arg(long, value_enum, default_value_t = Format::Plain)]
    pub format: Format,
}

/// Show how full a store is
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn kv stats shop.cairn
  cairn kv stats shop.cairn --json | jq .live_bytes")]
pub struct StatsOfStore {
    #[command(flatten)]
    pub source: Source,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Write a copy of a store that is open nowhere
///
/// The copy is a store of its own, without what was deleted or superseded; it has its name when it is whole and synced. Each record is held against its
/// checksum. A program that has a store open makes backups beside its writers: `Store::backup`, or `backup` in `cairn kv shell`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  written
  1  the store is damaged: nothing is written
  2  wrong usage, or a file cannot be opened or written, or there is one at TARGET

Examples:
  cairn kv backup shop.cairn backup/monday.cairn")]
pub struct Backup {
    #[command(flatten)]
    pub source: Source,
    /// Where to write it; nothing may be there
    pub target: PathBuf,
}

/// Make a store from a backup
///
/// Checks each record of the backup on the way, and leaves it as it is.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  restored
  1  the backup is damaged: nothing is written
  2  wrong usage, or a file cannot be opened or written, or there is one at PATH

Examples:
  cairn kv restore backup/monday.cairn shop.cairn")]
pub struct Restore {
    /// The backup
    pub backup: PathBuf,
    /// Where to make the store; nothing may be there
    pub path: PathBuf,
}

/// Read and write a store by commands, in transactions if wanted
///
/// Recovers the store first if it was not closed. Commands come from the terminal, or from standard input, where the first that fails is the last, and what is not
/// committed by the end is given up.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
`help` in the shell lists the commands: get, put, delete, scan, begin, commit, abort, stats, backup.

Examples:
  cairn kv shell shop.cairn
  printf 'begin\\nput a 1\\nput b 2\\ncommit\\n' | cairn kv shell shop.cairn")]
pub struct Shell {
    /// The store
    pub path: PathBuf,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(format!("{unit:?} is no unit; expected s, m, h or d")),
    };
    let number: u64 = number.parse().map_err(|_| "expected a whole number and a unit, such as 15m".to_owned())?;
    match number.checked_mul(seconds) {
        Some(seconds @ 1..=3_155_760_000) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected 1 second to 100 years".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "s", "-1", "1.5h", "1w", "99999999999999999999", "999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}

/// Follow a store on another machine: the same store here, a moment later
///
/// Serves a replica of the store's log to its leader, and repeats every commit; both are made if nothing is there. Prints the address on a line of its own. SIGTERM and
/// SIGINT end it, and so does a crash, without losing anything that was acknowledged.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  stopped as it was told to
  1  the store or the replica is damaged
  2  wrong usage; store, replica or address cannot be used; the store needs what the log has no more: `cairn help kv seed`

Examples:
  cairn kv follow shop.cairn --log shop.log --listen 0.0.0.0:7400 --secret-file secret
      on each backup machine; then, on the one that leads:
  cairn serve shop.cairn --log shop.log --replica b1:7400 --replica b2:7400 --write-quorum 2 --secret-file secret")]
pub struct Follow {
    /// The store
    pub path: PathBuf,
    /// The replica of its log
    #[arg(long, value_name = "PATH")]
    pub log: PathBuf,
    /// Host and port; 0 for any port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    pub listen: String,
    #[command(flatten)]
    pub media: Media,
    #[command(flatten)]
    pub trust: Trust,
}

/// Make a store that followed the one that leads
///
/// Stop `cairn kv follow` here first. The previous leader is fenced; what was acknowledged there is here when this returns, and the store can be served, with the same
/// replicas.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn kv promote shop.cairn --log shop.log --replica b2:7400 --secret-file secret
  cairn serve shop.cairn --log shop.log --replica b2:7400 --secret-file secret
      does the same, and serves it")]
pub struct PromoteStore {
    /// The store; it is made anew of the log if it is not there
    pub path: PathBuf,
    #[command(flatten)]
    pub copies: StoreCopies,
}

/// Copy a replicated store for a new follower
///
/// For a follower that needs commits which the log has no more. Bring it to the follower's machine, begin to follow with it there, and let the replica of the log join.
/// The store must be closed: a server that runs makes none.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn kv seed shop.cairn seed.cairn --log shop.log --replica b1:7400 --replica b2:7400 --secret-file secret")]
pub struct Seed {
    /// The store
    pub path: PathBuf,
    /// Where to make the copy; nothing may be there
    pub to: PathBuf,
    #[command(flatten)]
    pub copies: StoreCopies,
}

/// The replicas of a store's log, for a program that leads it.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct StoreCopies {
    /// This machine's replica of the store's log
    #[arg(long, value_name = "PATH")]
    pub log: Option<PathBuf>,
    /// Host and port of a replica that `cairn kv follow` or `cairn log-replica` serves; once for each
    #[arg(long, value_name = "ADDR", required = true)]
    pub replica: Vec<String>,
    #[command(flatten)]
    pub trust: Trust,
}
