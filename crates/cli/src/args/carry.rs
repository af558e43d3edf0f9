//! `cairn import`, `cairn export`: data of servers that speak Redis' protocol.

use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs};

/// Copy the data of a Redis to a server: a file, or all that another server has
///
/// Writes to a running server, `cairn serve`, over Redis' protocol: every key that is counted is durable there. Values of every type come with their expiry, streams with their groups, libraries
/// of functions one by one. A key or library that is there already stays as it is, so an import that was interrupted is run again, and goes on.
///
/// What the server refuses is named on standard error with the reason (the first 100), and all others come; a refusal that would meet every key (no room, no rights to the command, not the
/// leader) ends the import. With --replace a key that has expired at the source is deleted at the target.
///
/// --from asks for key after key while the other server goes on: what is written there meanwhile may come or not. Stop its writers first, or import again with --replace.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("source").required(true).args(["rdb", "from"]), after_help = "\
Exit codes:
  0  everything is there now
  1  everything is there but what was refused: it is named on standard error
  2  wrong usage; a file or a server that cannot be read; a server that takes nothing: what was copied before stays

Examples:
  cairn import --rdb /var/lib/redis/dump.rdb
      into the server at 127.0.0.1:6379
  cairn import --rdb dump.rdb --to redis://:secret@10.0.0.7:6380
  cairn import --from redis://10.0.0.3:6379 --to redis://127.0.0.1:6380 --replace")]
pub struct Import {
    /// A file of Redis' (dump.rdb), of Redis 2.6 to 8; - for standard input
    #[arg(long, value_name = "FILE")]
    pub rdb: Option<PathBuf>,
    /// A running server: redis://[USER:PASSWORD@]HOST[:PORT], or redis+unix:///PATH
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
    /// The server to write to, in the same form
    #[arg(long, value_name = "URL", default_value = "redis://127.0.0.1:6379")]
    pub to: String,
    /// Overwrite keys and libraries that are there already
    #[arg(long)]
    pub replace: bool,
}

/// Write all that a server has into a file that Redis can load
///
/// Asks a running server for key after key, over Redis' protocol, and writes a file of Redis 7.0 (dump.rdb). What is written to the server meanwhile may be in the file or not: stop its writers first for
/// a file of one moment. What cannot be read, or has no form in Redis 7.0 (hashes whose fields expire, values of modules), is named on standard error (the first 100), and is not in the file.
///
/// `cairn kv backup` copies a store as it is at one moment, for Cairn alone.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  written, and synced
  1  written, and synced, without what is named on standard error
  2  wrong usage, or the server cannot be read, or the file cannot be written, or there is one

Examples:
  cairn export dump.rdb
      from the server at 127.0.0.1:6379
  cairn export dump.rdb --from redis://:secret@10.0.0.7:6380")]
pub struct Export {
    /// Where to write it; nothing may be there
    pub rdb: PathBuf,
    /// The server: redis://[USER:PASSWORD@]HOST[:PORT], or redis+unix:///PATH
    #[arg(long, value_name = "URL", default_value = "redis://127.0.0.1:6379")]
    pub from: String,
}
