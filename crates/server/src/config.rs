//! What a server is to do.

mod eviction;
mod notify;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::eviction::{By, Eviction};
pub use self::notify::Notify;
pub(crate) use self::notify::class;
pub use crate::data::chunks::Chunks;
use crate::durability::Durability;
use crate::group::Group;

/// Where a server listens, and with how many threads it serves. What it serves is given beside it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses of Redis' protocol.
    pub redis: Vec<SocketAddr>,
    /// ... and of the same with TLS.
    pub redis_tls: Vec<SocketAddr>,
    /// A socket in the file system, for Redis' protocol.
    pub unix: Option<PathBuf>,
    /// Addresses of memcached's protocols. They know no passwords.
    pub memcached: Vec<SocketAddr>,
    /// The address of metrics, health and the status page.
    pub http: Option<SocketAddr>,
    /// What TLS needs.
    pub tls: Option<Tls>,
    /// The default user's password.
    pub password: Option<String>,
    /// Whether a client that reaches an address that is not this machine's own needs no password.
    pub open: bool,
    /// Threads that serve; 0 for one for every two processors.
    pub threads: usize,
    /// The servers of which it is one, if there are others that serve the same store.
    pub group: Option<Arc<Group>>,
    /// What may be changed while it runs.
    pub settings: Settings,
    /// Whether it starts with these settings, whatever `CONFIG REWRITE` has kept in the store.
    pub ignore_kept: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            redis: vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6379)],
            redis_tls: Vec::new(),
            unix: None,
            memcached: Vec::new(),
            http: None,
            tls: None,
            password: None,
            open: false,
            threads: 0,
            group: None,
            settings: Settings::default(),
            ignore_kept: false,
        }
    }
}

/// Files in PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The server's certificate, and those up to the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that may sign clients' certificates; clients need none if it is not given.
    pub clients: Option<PathBuf>,
}

/// Limits. `CONFIG SET` changes them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Connections at one time (`maxclients`).
    pub connections: usize,
    /// Bytes of an argument (`proto-max-bulk-len`).
    pub argument: usize,
    /// Bytes of a request (`client-query-buffer-limit`).
    pub request: usize,
    /// How long a connection may say nothing (`timeout`); for ever if it is 0.
    pub idle: Duration,
    /// How long a client may take to authenticate, and how long to take its replies.
    pub wait_limit: Duration,
    /// Bytes of memory that the store was opened to use for its index, to be told (`maxmemory`); 0 for no limit.
    pub memory: u64,
    /// Which keys go when there is no room (`maxmemory-policy`); none of a store that other machines have, too.
    pub eviction: Eviction,
    /// Of so many keys that are looked at one goes (`maxmemory-samples`).
    pub samples: usize,
    /// How many uses a count of the policies `*-lfu` stands for: the more, the greater it is (`lfu-log-factor`).
    pub lfu_log_factor: u32,
    /// Minutes without use in which such a count falls by one; it never does if it is 0 (`lfu-decay-time`).
    pub lfu_decay_minutes: u32,
    /// Bytes of memcached's items.
    pub item: usize,
    /// Which strings are kept in chunks.
    pub chunks: Chunks,
    /// How long a script may run (`lua-time-limit`).
    pub script_time: Duration,
    /// What is told of keys (`notify-keyspace-events`).
    pub notify: Notify,
    /// What is kept for a subscriber that does not read (`client-output-buffer-limit pubsub`).
    pub subscriber: SubscriberLimit,
    /// The least that an answer to a write means, whatever its connection settles for (`least-durability`).
    pub least_durability: Durability,
}

/// Bytes of messages that are kept for a subscriber before it is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberLimit {
    /// So many at once; 512 MiB if it is 0.
    pub hard_bytes: usize,
    /// More than these for [`soft_seconds`](Self::soft_seconds); no such limit if it is 0.
    pub soft_bytes: usize,
    /// How long there may be more than [`soft_bytes`](Self::soft_bytes).
    pub soft_seconds: u32,
}

impl SubscriberLimit {
    pub(crate) fn soft_ms(self) -> u64 {
        u64::from(self.soft_seconds) * 1000
    }
}

impl Default for SubscriberLimit {
    fn default() -> Self {
        Self { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_seconds: 60 }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 10_000,
            argument: 512 << 20,
            request: 1 << 30,
            idle: Duration::ZERO,
            wait_limit: Duration::from_secs(60),
            memory: 0,
            eviction: Eviction::default(),
            samples: 5,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
            item: 1 << 20,
            chunks: Chunks::default(),
            script_time: Duration::from_secs(5),
            notify: Notify::default(),
            subscriber: SubscriberLimit::default(),
            least_durability: Durability::default(),
        }
    }
}
