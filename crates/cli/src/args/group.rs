//! A group of machines that serve one store.

use clap::{Args as ClapArgs, Subcommand};

use super::copies::{EtcdAccess, GROUP, Known};

#[derive(Debug, Subcommand)]
pub enum Group {
    Status(StatusOfGroup),
    Join(JoinGroup),
    Remove(RemoveFromGroup),
    Transfer(TransferGroup),
}

/// Where a group is found.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct GroupAt {
    /// A member of the group's etcd (http://host:port, or https://host:port with --etcd-ca), once for each
    #[arg(long, value_name = "URL", env = "CAIRN_ETCD", value_delimiter = ',', required = true)]
    pub etcd: Vec<String>,
    /// Where the keys of the group begin in etcd, as its machines are given it
    #[arg(long, value_name = "KEY", env = "CAIRN_PREFIX")]
    pub prefix: String,
    #[command(flatten)]
    pub access: EtcdAccess,
    #[command(flatten)]
    pub known: Known,
    /// Milliseconds that connecting to a machine, or its answer, may take
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub connect_within: u64,
    /// Ask again for so many seconds while no machine leads, as in an election
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: u64,
}

/// Show which machine leads, how far each replica is, and what the loss of each machine would mean
///
/// Changes nothing, and disturbs no machine.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  every replica of the log takes part, and every announced machine has one
  1  a replica is away, a machine has none that counts, or says what keeps it from doing its part: its disk is full
  2  wrong usage; no machine leads, or etcd does not answer

Examples:
  cairn group status --etcd http://e1:2379 --prefix /cairn/shop --secret-file secret
  cairn group status --etcd http://e1:2379 --prefix /cairn/shop --secret-file secret --json | jq .machines")]
pub struct StatusOfGroup {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: GroupAt,
}

/// Make a machine's replica one of those that count: of a new machine, or of one whose disk was emptied
///
/// The machine runs `cairn serve` as the others do, with a new log; the leader goes on serving. If the replica that it had before still counts, remove that one first. The replica has the
/// whole log when this ends, after ten minutes at most; the machine then gets the store by itself.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  it has the whole log, and counts
  2  wrong usage; it cannot join; no machine leads, or etcd does not answer

Examples:
  cairn group join 10.0.0.4:7400 --etcd http://e1:2379 --prefix /cairn/shop --secret-file secret")]
pub struct JoinGroup {
    /// Where the machine listens for the others (its --listen, or --announce), host and port
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: GroupAt,
}

/// Drop a replica that is lost for good, or not needed any more
///
/// The leader goes on serving. The replica does not count from then on. A machine that still has it is to be stopped first, and its log and store to be deleted before it serves again.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  it is none of the log's replicas any more
  2  wrong usage; there is no such replica, or the group needs it; no machine leads, or etcd does not answer

Examples:
  cairn group remove 5e1f07a2c83b9d64 --etcd http://e1:2379 --prefix /cairn/shop --secret-file secret
      `cairn group status` shows the ids")]
pub struct RemoveFromGroup {
    /// Which replica, as `cairn group status` names it
    #[arg(value_name = "ID", value_parser = super::log::copy_id)]
    pub id: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: GroupAt,
}

/// Have another machine lead
///
/// The leader goes on serving until the other machine has nearly all; then it steps down, and the other one takes over with everything that was acknowledged. No machine answers for as long as
/// when the leader is told to stop; each connection to it ends. The one that has led follows. If the other one cannot lead, another machine does, perhaps the same as before.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  that machine leads
  2  wrong usage; it cannot lead now, or another one was elected; no machine leads, or etcd does not answer

Examples:
  cairn group transfer --to b --etcd http://e1:2379 --prefix /cairn/shop --secret-file secret
      `cairn group status` shows names and addresses")]
pub struct TransferGroup {
    /// The machine that is to lead: its name, or where it listens for the others
    #[arg(long, value_name = "MACHINE")]
    pub to: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: GroupAt,
}
