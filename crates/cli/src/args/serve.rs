//! What a server is asked for.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, ValueEnum};
use pmem::DomainChoice;
use serde::Deserialize;

use super::copies::{EtcdAccess, GROUP, Known};
use crate::size;

/// Which store is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The key-value store: many writers, one barrier for a commit, readers wait for no transaction
    Kv,
    /// A B+tree of objects changed in place: no index in memory, opens at once; keys up to 1999 bytes
    Heap,
}

impl Engine {
    /// As the flag has it, and the pool.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kv => kv::NAME,
            Self::Heap => server::tree::NAME,
        }
    }

    /// The engine of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|engine| engine.name() == name)
    }
}

/// Serve a store to clients of Redis and memcached
///
/// The store is made if there is none, and recovered if it was not closed; one whose opening finds damage is not served. What opening does not read, values
/// among it, a store of engine kv holds against its checksum at each read: the reply is an error that names the damage. One of engine heap cannot: `cairn check` finds
/// it in a closed store. Every write is durable when its reply is sent. SIGTERM and SIGINT end it without losing anything; so does a crash.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Everything can be given by flags, by the environment (CAIRN_REDIS, CAIRN_PASSWORD_FILE, ...), and in a file (--config), in this order. The file is TOML,
with the names of the flags:

  store = \"/var/lib/cairn/data.cairn\"
  redis = [\"127.0.0.1:6379\"]
  http = \"127.0.0.1:9121\"
  max-connections = 20000

Exit codes:
  0  stopped as it was told to
  1  the store is damaged: `cairn kv check` says how
  2  wrong usage, or the store or an address cannot be used

Examples:
  cairn serve data.cairn
      then: redis-cli set apples 17
  cairn serve data.cairn --redis 127.0.0.1:6380 --memcached 127.0.0.1:11211 --http 127.0.0.1:9121
      http://127.0.0.1:9121/ shows how it is doing, /metrics tells Prometheus
  cairn serve data.cairn --redis 0.0.0.0:6379 --password-file secret.txt
  cairn serve data.cairn --redis-tls 0.0.0.0:6380 --tls-certificate server.pem --tls-key server.key --password-file secret.txt
  cairn serve data.cairn --engine heap
      a store of another kind, if it is made now
  cairn serve data.cairn --log data.log --replica b1:7400 --replica b2:7400 --write-quorum 2 --secret-file secret
      on two machines of three when a reply is sent; `cairn help kv follow` says how the others come to it
  cairn serve data.cairn --log data.log --etcd http://e1:2379 --prefix /cairn/shop --listen 10.0.0.1:7400 --redis 10.0.0.1:6379 --secret-file secret --password-file password
      the same on each of three machines, with its own addresses and the same two files: one leads, and another one when that is gone
  cairn serve --config /etc/cairn.toml")]
pub struct Serve {
    #[command(flatten)]
    pub asked: Asked,
    /// Read what is not given here from this file
    #[arg(long, value_name = "FILE", env = "CAIRN_CONFIG")]
    pub config: Option<PathBuf>,
}

/// The same by flags, environment and file.
#[derive(Clone, Debug, Default, ClapArgs, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Asked {
    /// The store
    #[arg(env = "CAIRN_STORE")]
    pub store: Option<PathBuf>,
    /// What the store is, if it is made now [default: kv]; one that is there says so itself
    #[arg(long, value_enum, env = "CAIRN_ENGINE")]
    pub engine: Option<Engine>,
    /// Persistence domain: auto, pmem, emulated or file
    #[arg(long, value_name = "DOMAIN", env = "CAIRN_DOMAIN")]
    #[serde(deserialize_with = "parsed")]
    pub domain: Option<DomainChoice>,
    /// Where Redis' protocol is spoken; may be given several times [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDRESS", env = "CAIRN_REDIS", value_delimiter = ',')]
    pub redis: Vec<SocketAddr>,
    /// ... with TLS
    #[arg(long, value_name = "ADDRESS", env = "CAIRN_REDIS_TLS", value_delimiter = ',')]
    pub redis_tls: Vec<SocketAddr>,
    /// ... at a socket in the file system
    #[arg(long, value_name = "PATH", env = "CAIRN_UNIX")]
    pub unix: Option<PathBuf>,
    /// Where memcached's protocols are spoken: they know no passwords
    #[arg(long, value_name = "ADDRESS", env = "CAIRN_MEMCACHED", value_delimiter = ',')]
    pub memcached: Vec<SocketAddr>,
    /// Where the status page, metrics and health are
    #[arg(long, value_name = "ADDRESS", env = "CAIRN_HTTP")]
    pub http: Option<SocketAddr>,
    /// The server's certificate, and those up to the root, in PEM
    #[arg(long, value_name = "FILE", env = "CAIRN_TLS_CERTIFICATE")]
    pub tls_certificate: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", env = "CAIRN_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Authorities that may sign clients' certificates, in PEM; clients need none without
    #[arg(long, value_name = "FILE", env = "CAIRN_TLS_CLIENTS")]
    pub tls_clients: Option<PathBuf>,
    /// The default user's password is in this file: a flag would be seen by every user of the machine
    #[arg(long, value_name = "FILE", env = "CAIRN_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// Serve other machines without a password
    #[arg(long, env = "CAIRN_OPEN")]
    pub open: bool,
    /// Threads that serve [default: one for every two processors]
    #[arg(long, value_name = "N", env = "CAIRN_THREADS", value_parser = clap::value_parser!(u16).range(1..=256))]
    #[serde(deserialize_with = "within::<_, u16, 1, 256>")]
    pub threads: Option<u16>,
    /// Connections at one time [default: 10000]
    #[arg(long, value_name = "N", env = "CAIRN_MAX_CONNECTIONS")]
    pub max_connections: Option<usize>,
    /// Seconds after which a silent connection is ended; 0 for never [default: 0]
    #[arg(long, value_name = "SECONDS", env = "CAIRN_IDLE")]
    pub idle: Option<u64>,
    /// Milliseconds that a script or a function may run (lua-time-limit) [default: 5000]
    #[arg(long, value_name = "MS", env = "CAIRN_LUA_TIME_LIMIT", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub lua_time_limit: Option<u64>,
    /// What is told of changes of keys, as Redis' notify-keyspace-events: KEA for all [default: nothing]
    #[arg(long, value_name = "CLASSES", env = "CAIRN_NOTIFY_KEYSPACE_EVENTS")]
    pub notify_keyspace_events: Option<String>,
    /// Start with what is said here and in the file, whatever CONFIG REWRITE has kept in the store: that goes before both otherwise
    #[arg(long, env = "CAIRN_IGNORE_KEPT_CONFIG")]
    pub ignore_kept_config: bool,
    /// Bytes of an argument [default: 512M]
    #[arg(long, value_name = "SIZE", env = "CAIRN_MAX_ARGUMENT", value_parser = size::parse)]
    #[serde(deserialize_with = "bytes")]
    pub max_argument: Option<u64>,
    /// Bytes of a request [default: 1G]
    #[arg(long, value_name = "SIZE", env = "CAIRN_MAX_REQUEST", value_parser = size::parse)]
    #[serde(deserialize_with = "bytes")]
    pub max_request: Option<u64>,
    /// The least that an answer to a write means, for connections and users that settle for less than the write quorum (CLIENT DURABILITY, ACL SETUSER name durability=...): its place in the order of
    /// commits (bounded), this machine (local), the write quorum [default: quorum]
    #[arg(long, value_name = "LEVEL", env = "CAIRN_LEAST_DURABILITY", value_parser = PossibleValuesParser::new(server::Durability::names()))]
    pub least_durability: Option<String>,
    /// What goes when there is no room, as Redis' maxmemory-policy: of all keys, or of those that expire, what was used longest ago (lru), is used least often (lfu), any, or what expires first (ttl)
    /// [default: noeviction: writes are refused]
    #[arg(long, value_name = "POLICY", env = "CAIRN_MAX_MEMORY_POLICY", value_parser = PossibleValuesParser::new(server::Eviction::names()))]
    pub max_memory_policy: Option<String>,
    /// Bytes of memory for kv's index of keys; new keys are refused beyond, or others go: --max-memory-policy [default: no limit]
    #[arg(long, value_name = "SIZE", env = "CAIRN_MAX_MEMORY", value_parser = size::parse)]
    #[serde(deserialize_with = "bytes")]
    pub max_memory: Option<u64>,
    /// Bytes the store may grow to; writes are refused beyond, or keys go: --max-memory-policy [default: no limit]
    #[arg(long, value_name = "SIZE", env = "CAIRN_MAX_SIZE", value_parser = size::parse)]
    #[serde(deserialize_with = "bytes")]
    pub max_size: Option<u64>,
    /// Host and port of a replica of the store's log, that `cairn kv follow` or `cairn log-replica` serves; once for each
    #[arg(long, value_name = "ADDR", env = "CAIRN_REPLICA", value_delimiter = ',', help_heading = GROUP)]
    pub replica: Vec<String>,
    /// This machine's replica of the store's log
    #[arg(long, value_name = "PATH", env = "CAIRN_LOG", help_heading = GROUP)]
    pub log: Option<PathBuf>,
    /// How many replicas must have a write before its reply is sent, if the log is made now [default: all; with --etcd, more than half]
    #[arg(long, value_name = "N", env = "CAIRN_WRITE_QUORUM", help_heading = GROUP)]
    pub write_quorum: Option<u32>,
    /// Bytes of the log, if it is made now [default: 64M]. A transaction, and so what one command or one MULTI writes, is one record of it: an eighth of the log at most, and 64 MiB at most
    #[arg(long, value_name = "SIZE", env = "CAIRN_LOG_SIZE", value_parser = size::parse, help_heading = GROUP)]
    #[serde(deserialize_with = "bytes")]
    pub log_size: Option<u64>,
    /// File with 16 random bytes or more that all of them have, readable by its owner alone. It proves who connects; it encrypts nothing
    #[arg(long, value_name = "FILE", env = "CAIRN_SECRET_FILE", help_heading = GROUP)]
    pub secret_file: Option<PathBuf>,
    /// This machine's certificate for the other machines (PEM), and those up to the root: everything is encrypted that goes between them
    #[arg(long, value_name = "FILE", env = "CAIRN_CERT", help_heading = GROUP)]
    pub cert: Option<PathBuf>,
    /// Its private key (PEM), readable by its owner alone
    #[arg(long, value_name = "FILE", env = "CAIRN_KEY", help_heading = GROUP)]
    pub key: Option<PathBuf>,
    /// The roots that the other machines' certificates lead to (PEM)
    #[arg(long, value_name = "FILE", env = "CAIRN_CA", help_heading = GROUP)]
    pub ca: Option<PathBuf>,
    /// A member of an etcd (http://host:port, or https://host:port with --etcd-ca), once for each: the machines that are started with the same etcd and prefix serve one store. One leads, the others follow; when it is gone, another one leads
    #[arg(long, value_name = "URL", env = "CAIRN_ETCD", value_delimiter = ',', help_heading = GROUP)]
    pub etcd: Vec<String>,
    /// The roots (PEM) that the certificates of etcd's members lead to: their addresses are https://host:port then
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_CA", help_heading = GROUP)]
    pub etcd_ca: Option<PathBuf>,
    /// This program's certificate (PEM), for an etcd that asks for one
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_CERT", help_heading = GROUP)]
    pub etcd_cert: Option<PathBuf>,
    /// Its private key (PEM), readable by its owner alone
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_KEY", help_heading = GROUP)]
    pub etcd_key: Option<PathBuf>,
    /// The user that this program is, for an etcd that asks who may read and write
    #[arg(long, value_name = "USER", env = "CAIRN_ETCD_USER", help_heading = GROUP)]
    pub etcd_user: Option<String>,
    /// File whose first line is that user's password, readable by its owner alone
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_PASSWORD_FILE", help_heading = GROUP)]
    pub etcd_password_file: Option<PathBuf>,
    /// Where the keys of the group begin in etcd, such as /cairn/shop: the last part is the name by which clients of Redis Sentinel ask for it
    #[arg(long, value_name = "KEY", env = "CAIRN_PREFIX", help_heading = GROUP)]
    pub prefix: Option<String>,
    /// This machine's name in the group, which no other has [default: its announced address]
    #[arg(long, value_name = "NAME", env = "CAIRN_NAME", help_heading = GROUP)]
    pub name: Option<String>,
    /// Where this machine's replica of the log is reached by the other machines, host and port
    #[arg(long, value_name = "ADDR", env = "CAIRN_LISTEN", help_heading = GROUP)]
    pub listen: Option<String>,
    /// The same address as the others have to use it, if it is another one
    #[arg(long, value_name = "ADDR", env = "CAIRN_ANNOUNCE", help_heading = GROUP)]
    pub announce: Option<String>,
    /// Where clients reach this machine, if it is not the first address of --redis
    #[arg(long, value_name = "ADDR", env = "CAIRN_ANNOUNCE_REDIS", help_heading = GROUP)]
    pub announce_redis: Option<String>,
    /// How many machines the group has at its beginning: the log is made when all of them are there [default: 3]
    #[arg(long, value_name = "N", env = "CAIRN_MACHINES", value_parser = clap::value_parser!(u32).range(2..=7), help_heading = GROUP)]
    #[serde(deserialize_with = "within::<_, u32, 2, 7>")]
    pub machines: Option<u32>,
    /// Seconds after which a leader that is gone is missed; etcd takes a second more or so [default: 3]
    #[arg(long, value_name = "S", env = "CAIRN_LEASE", value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = GROUP)]
    #[serde(deserialize_with = "within::<_, u64, 1, 3600>")]
    pub lease: Option<u64>,
}

impl Asked {
    /// What is not given is taken from `file`.
    #[must_use]
    pub fn or(self, file: Self) -> Self {
        let list = |given: Vec<SocketAddr>, other| if given.is_empty() { other } else { given };
        Self {
            store: self.store.or(file.store),
            engine: self.engine.or(file.engine),
            domain: self.domain.or(file.domain),
            redis: list(self.redis, file.redis),
            redis_tls: list(self.redis_tls, file.redis_tls),
            unix: self.unix.or(file.unix),
            memcached: list(self.memcached, file.memcached),
            http: self.http.or(file.http),
            tls_certificate: self.tls_certificate.or(file.tls_certificate),
            tls_key: self.tls_key.or(file.tls_key),
            tls_clients: self.tls_clients.or(file.tls_clients),
            password_file: self.password_file.or(file.password_file),
            open: self.open || file.open,
            threads: self.threads.or(file.threads),
            max_connections: self.max_connections.or(file.max_connections),
            idle: self.idle.or(file.idle),
            lua_time_limit: self.lua_time_limit.or(file.lua_time_limit),
            notify_keyspace_events: self.notify_keyspace_events.or(file.notify_keyspace_events),
            ignore_kept_config: self.ignore_kept_config || file.ignore_kept_config,
            max_argument: self.max_argument.or(file.max_argument),
            max_request: self.max_request.or(file.max_request),
            least_durability: self.least_durability.or(file.least_durability),
            max_memory_policy: self.max_memory_policy.or(file.max_memory_policy),
            max_memory: self.max_memory.or(file.max_memory),
            max_size: self.max_size.or(file.max_size),
            replica: if self.replica.is_empty() { file.replica } else { self.replica },
            log: self.log.or(file.log),
            write_quorum: self.write_quorum.or(file.write_quorum),
            log_size: self.log_size.or(file.log_size),
            secret_file: self.secret_file.or(file.secret_file),
            cert: self.cert.or(file.cert),
            key: self.key.or(file.key),
            ca: self.ca.or(file.ca),
            etcd: if self.etcd.is_empty() { file.etcd } else { self.etcd },
            etcd_ca: self.etcd_ca.or(file.etcd_ca),
            etcd_cert: self.etcd_cert.or(file.etcd_cert),
            etcd_key: self.etcd_key.or(file.etcd_key),
            etcd_user: self.etcd_user.or(file.etcd_user),
            etcd_password_file: self.etcd_password_file.or(file.etcd_password_file),
            prefix: self.prefix.or(file.prefix),
            name: self.name.or(file.name),
            listen: self.listen.or(file.listen),
            announce: self.announce.or(file.announce),
            announce_redis: self.announce_redis.or(file.announce_redis),
            machines: self.machines.or(file.machines),
            lease: self.lease.or(file.lease),
        }
    }

    /// How the machines know each other.
    pub fn known(&self) -> Known {
        let (secret_file, cert) = (self.secret_file.clone(), self.cert.clone());
        Known { secret_file, cert, key: self.key.clone(), ca: self.ca.clone() }
    }

    /// How etcd lets this one in.
    pub fn access(&self) -> EtcdAccess {
        EtcdAccess {
            etcd_ca: self.etcd_ca.clone(),
            etcd_cert: self.etcd_cert.clone(),
            etcd_key: self.etcd_key.clone(),
            etcd_user: self.etcd_user.clone(),
            etcd_password_file: self.etcd_password_file.clone(),
        }
    }
}

fn parsed<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<DomainChoice>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// A number with the bounds that the flag of its name has.
fn within<'de, D: serde::Deserializer<'de>, N: TryFrom<i64>, const LEAST: i64, const MOST: i64>(
    from: D,
) -> Result<Option<N>, D::Error> {
    let found = i64::deserialize(from)?;
    let fits = Some(found).filter(|found| (LEAST..=MOST).contains(found)).and_then(|found| N::try_from(found).ok());
    fits.map(Some).ok_or_else(|| serde::de::Error::custom(format!("{found} is not in {LEAST}..={MOST}")))
}

/// A number, or text with a unit.
fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u64),
        Text(String),
    }
    match Either::deserialize(from)? {
        Either::Number(bytes) => Ok(Some(bytes)),
        Either::Text(text) => size::parse(&text).map(Some).map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_bounds_of_the_flags() {
        for (name, least, most) in [("machines", 2, 7), ("lease", 1, 3600), ("threads", 1, 256)] {
            let read = |number: i64| toml::from_str::<Asked>(&format!("{name} = {number}"));
            assert!(read(least).is_ok() && read(most).is_ok(), "{name}");
            for number in [least - 1, most + 1, -1, i64::MAX] {
                let error = read(number).unwrap_err().to_string();
                assert!(error.contains(&format!("{number} is not in {least}..={most}")), "{error}");
            }
        }
        let asked: Asked = toml::from_str("machines = 5\nlease = 20\nthreads = 3").unwrap();
        assert_eq!((asked.machines, asked.lease, asked.threads), (Some(5), Some(20), Some(3)));
    }

    #[test]
    fn a_file_gives_what_flags_do_not() {
        let file: Asked =
            toml::from_str("store = 'a'\nredis = ['[::1]:1']\nmax-memory = '1G'\nmax-size = 5\ndomain = 'file'")
                .unwrap();
        let flags = Asked { redis: vec!["127.0.0.1:2".parse().unwrap()], ..Asked::default() };
        let both = flags.or(file);
        assert_eq!((both.store, both.max_memory, both.max_size), (Some("a".into()), Some(1 << 30), Some(5)));
        assert_eq!(both.redis, ["127.0.0.1:2".parse().unwrap()]);
        assert!(toml::from_str::<Asked>("stor = 'a'").is_err() && toml::from_str::<Asked>("max-size = 'x'").is_err());
    }
}
