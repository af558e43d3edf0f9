//! A map on a chain of machines.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

use super::copies::{EtcdAccess, GROUP, Trust};
use crate::size;

#[derive(Debug, Subcommand)]
pub enum Chain {
    Serve(Box<ServeChain>),
    Status(StatusOfChain),
    Join(JoinChain),
    Remove(RemoveFromChain),
    Demo(DemoOfChain),
}

/// Where a chain is found.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct ChainAt {
    /// A member of the chain's etcd (http://host:port, or https://host:port with --etcd-ca), once for each
    #[arg(long, value_name = "URL", env = "CAIRN_ETCD", value_delimiter = ',', required = true)]
    pub etcd: Vec<String>,
    /// Where the keys of the chain begin in etcd, such as /cairn/bank
    #[arg(long, value_name = "KEY", env = "CAIRN_PREFIX")]
    pub prefix: String,
    #[command(flatten)]
    pub access: EtcdAccess,
    #[command(flatten)]
    pub trust: Trust,
}

/// Serve a map of keys and values that several machines have, as one of them
///
/// The first machine of the chain leads: it answers clients of Redis' protocol, and a reply to a change is sent when every member has it. The last one, the tail, answers GET and MGET, too: it has what every
/// member has, so a read there is as new as one at the machine that leads, and takes nothing from it. All others say where to ask (MOVED): a change at the machine that leads, a read at the tail. When a member is
/// gone, the chain goes on without it as soon as its lease has ended; one that comes back joins by itself, with all that happened meanwhile. SIGTERM and SIGINT end it; the others go on at once.
///
/// Requests: GET, MGET (all at one moment), SET, DEL, INCRBY, TRANSFER FROM TO AMOUNT, PING, INFO. A change that follows ONCE CLIENT NUMBER is carried out once, however often it is asked, with the same
/// reply each time: numbers of a client rise, and its last 16 are kept (FORGET CLIENT removes them).
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Replies that are errors say what to do:
  MOVED 0 ADDRESS ...   ask there: that machine leads, or, of GET and MGET, answers reads
  TRYAGAIN ...          nothing has changed: ask again
  UNKNOWN ...           it may have happened or not: ask again with ONCE, at the machine that leads
  STALE, INSUFFICIENT, FULL, ERR ...

Exit codes:
  0  stopped as it was told to
  1  the file is damaged
  2  wrong usage, or the file, an address or the chain cannot be used

Examples:
  cairn chain serve bank --machine 1 --listen 10.0.0.1:7500 --clients 10.0.0.1:7600 --etcd http://e1:2379 --prefix /cairn/bank --secret-file secret --first-members 1,2,3 --password-file password
      likewise on machines 2 and 3; then: redis-cli -c -h 10.0.0.1 -p 7600 -a PASSWORD SET apples 17
  cairn chain serve bank --machine 4 --listen 10.0.0.4:7500 --clients 10.0.0.4:7600 --etcd http://e1:2379 --prefix /cairn/bank --secret-file secret --password-file password
      a further machine: it joins if the chain has fewer than f + 1 members, or when `cairn chain join 4` says so")]
pub struct ServeChain {
    /// This machine's copy; made if there is none, and the machine is no member that has had one
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// This machine's number, which no other has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub machine: u32,
    /// Where the other machines reach this one, host and port
    #[arg(long, value_name = "ADDR")]
    pub listen: String,
    /// The same address as the others have to use it, if it is another one
    #[arg(long, value_name = "ADDR")]
    pub announce: Option<String>,
    /// Where clients reach this machine
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7600")]
    pub clients: SocketAddr,
    /// The same address as clients have to use it, if it is another one
    #[arg(long, value_name = "ADDR")]
    pub announce_clients: Option<String>,
    /// Clients have to know the password in this file
    #[arg(long, value_name = "FILE", env = "CAIRN_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// Serve other machines without a password
    #[arg(long)]
    pub open: bool,
    /// Machines that a new chain begins with, head first: the same for all of them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub first_members: Vec<u32>,
    /// Failures that a new chain is to survive: with fewer than f + 1 members others join [default: one less than its first members]
    #[arg(long, value_name = "F")]
    pub f: Option<u32>,
    /// A member whose file is lost makes a new one; the one before counts no more, should it be found
    #[arg(long)]
    pub new_file: bool,
    /// Seconds of a member's lease: one that is gone is taken out after as long
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub ttl: u64,
    /// Bytes of each copy's heap, of a new chain: a machine that joins takes the chain's
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size::parse)]
    pub size: u64,
    /// Bytes of each copy's queue, likewise: a transaction writes an eighth of them at most
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    pub queue: u64,
    /// Seconds that a change waits for all members before its reply is UNKNOWN
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub commit_within: u64,
    #[command(flatten)]
    pub at: ChainAt,
    /// Plant a bug that must be found: reply before the commit
    #[arg(long, hide = true)]
    pub plant_early: bool,
}

/// Show the members of a chain in their order, how far each is, which of them answer reads, and what the loss of each would mean
///
/// Changes nothing, and disturbs no machine.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  the chain has its f + 1 members, and all of them serve and hold their leases
  1  a member is missing, does not serve, or has no lease
  2  wrong usage; there is no such chain, or etcd does not answer

Examples:
  cairn chain status --etcd http://e1:2379 --prefix /cairn/bank --secret-file secret
  cairn chain status --etcd http://e1:2379 --prefix /cairn/bank --secret-file secret --json | jq .members")]
pub struct StatusOfChain {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: ChainAt,
}

/// Take a machine into a chain, while it serves
///
/// The machine runs `cairn chain serve` with the same etcd and prefix. It joins behind the tail. A chain that has its f + 1 members gets one more, and f rises by one; with --instead-of
/// another member goes when the new one has everything.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  it is a member, and has everything
  2  wrong usage; it cannot join; it has not joined in time; etcd does not answer

Examples:
  cairn chain join 4 --etcd http://e1:2379 --prefix /cairn/bank --secret-file secret
  cairn chain join 4 --instead-of 2 --etcd http://e1:2379 --prefix /cairn/bank --secret-file secret")]
pub struct JoinChain {
    /// Its number
    #[arg(value_name = "MACHINE")]
    pub machine: u32,
    /// The member that goes when the new one has everything
    #[arg(long, value_name = "MACHINE")]
    pub instead_of: Option<u32>,
    /// Wait so many seconds at most
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: ChainAt,
}

/// Take a machine out of a chain, while it serves
///
/// Its copy counts no more, and is erased if the machine still runs. It does not come back by itself: `cairn chain join` takes it in again. The others go on: of the head, the next one leads. f stays as
/// it is, so another machine may join in its place.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  it is out
  2  wrong usage; there is no such machine, or it is needed; etcd does not answer

Examples:
  cairn chain remove 2 --etcd http://e1:2379 --prefix /cairn/bank --secret-file secret")]
pub struct RemoveFromChain {
    /// Its number
    #[arg(value_name = "MACHINE")]
    pub machine: u32,
    /// Wait so many seconds at most until the others go on
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: ChainAt,
}

/// Kill each machine of a chain of three, while clients transfer money, and show that nothing is lost
///
/// Starts an etcd and three processes on this machine. Clients number their transfers and ask until they are answered, others look at all accounts, at the head and at the tail; head, middle, tail and all three are killed in turn with SIGKILL, and
/// started again. At the end each machine leads in turn, and what its copy has is held against what was acknowledged.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Exit codes:
  0  nothing that was acknowledged is lost, or was done twice
  1  something is: what was expected, and what was found; files are kept
  2  wrong usage, or it could not be run to its end

Examples:
  cairn chain demo
  cairn chain demo --kills 20 --seconds 30 --ttl 2")]
pub struct DemoOfChain {
    /// Kills in all
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub kills: u32,
    /// Clients work for so long, beside what kills and starts take
    #[arg(long, value_name = "S", default_value = "10", value_parser = super::demo::seconds)]
    pub seconds: Duration,
    /// Clients at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub clients: u64,
    /// Seconds of a member's lease
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub ttl: u64,
    /// Make the files in this directory [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Plant a bug that must be found: reply before the commit
    #[arg(long, hide = true)]
    pub plant_early: bool,
}
