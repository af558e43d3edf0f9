//! Measurements of `cairn serve`.

use clap::Args as ClapArgs;

use super::{Run, threads};
use crate::size;

/// `cairn serve` beside Redis with appendfsync always, as redis-benchmark sees them, or beside memcached
///
/// Both keep their files in the same directory, and are asked in turn by the same client (Debian's redis-tools and redis-server, which `make setup` installs).
/// Latencies are the client's, medians of the rounds. redis-volatile keeps nothing: it shows what the
/// client can do at best.
///
/// The client is the limit, as a rule: it needs more CPU for a request than a server does. "CPU ns/op" is what the server's process has had of a processor in a round, in its own code and
/// in the kernel's, divided by the requests (cpu_ns_per_op in JSON); behind it stands that, divided by Redis' of the same round (cpu_ratio): less than 1 is cheaper.
///
/// With --memcached, cairn is asked in memcached's protocol beside memcached, which keeps nothing either, by a client of this program's: each connection sends its requests,
/// and waits for all answers. Latencies are those of all rounds.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  cairn bench server --quick
  cairn bench server --connections 50,500 --pipeline 1,16 --threads 1,2
  cairn bench server --dir /var/tmp --test set --connections 50,500 --pipeline 1
      on a disk
  cairn bench server --memcached --test set,get,mix --threads 1,2
      beside memcached
  cairn bench server --idle 10000 --pipeline 1
      while ten thousand others are connected and say nothing")]
pub struct ServedBench {
    /// Speak memcached's protocol, beside memcached
    #[arg(long)]
    pub memcached: bool,
    /// Threads of the client of memcached's protocol
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads, requires = "memcached")]
    pub clients: usize,
    /// Tests of redis-benchmark; of memcached's protocol: set, get, mix (one set in ten), half (one in two) [default: set,get]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub test: Vec<String>,
    /// Connections at a time [default: 50]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub connections: Vec<usize>,
    /// Requests that a connection sends before it waits [default: 1,16]
    #[arg(long, value_name = "N,M", value_delimiter = ',')]
    pub pipeline: Vec<usize>,
    /// Threads that serve in cairn and in memcached; Redis has one [default: 1]
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<usize>,
    /// Requests of a round; k and M are powers of 1000 [default: 200k, or 20k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub requests: Option<u64>,
    /// Different keys [default: 100k, or 1k if quick]
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    pub keys: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub value_bytes: usize,
    /// Connections that are there besides, and say nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub idle: usize,
    #[command(flatten)]
    pub run: Run,
}
