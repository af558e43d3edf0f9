//! Where the replicas of a log are, who is trusted, who elects.

use std::path::PathBuf;
use std::time::Duration;

use ::log::fabric::Transport;
use clap::Args as ClapArgs;

/// Where the help shows these.
pub const GROUP: &str = "On several machines";

/// The replicas of a log, for a program that leads it or looks at it.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct Copies {
    /// Host and port of a replica that `cairn log-replica` serves; once for each
    #[arg(long, value_name = "ADDR")]
    pub replica: Vec<String>,
    #[command(flatten)]
    pub trust: Trust,
    /// Milliseconds after which a replica is given up that does not acknowledge
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub give_up_after: u64,
    #[command(flatten)]
    pub etcd: Etcd,
    /// Wait so many seconds at most while another program leads [default: as long as it takes]
    #[arg(long, value_name = "S", requires = "etcd")]
    pub wait: Option<u64>,
}

impl Copies {
    /// True if a log on several machines is meant.
    pub fn are_named(&self) -> bool {
        !self.replica.is_empty() || self.etcd.is_given()
    }
}

/// How leaders and replicas reach each other, and how they know each other.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct Trust {
    /// How they reach each other: tcp, or libfabric:PROVIDER (libfabric:verbs for RDMA), the same for all. Addresses are those of TCP all the same: ends meet there.
    /// By libfabric records travel as they are: certificates prove who connects, and encrypt nothing
    #[arg(long, value_name = "HOW", env = "CAIRN_FABRIC", default_value = "tcp")]
    pub fabric: Transport,
    #[command(flatten)]
    pub known: Known,
    /// Milliseconds that connecting may take
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    pub connect_within: u64,
}

/// How machines know each other: a secret, certificates, or both.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct Known {
    /// File with 16 random bytes or more that all of them have, readable by its owner alone. It proves who connects; it encrypts nothing
    #[arg(long, value_name = "FILE", env = "CAIRN_SECRET_FILE")]
    pub secret_file: Option<PathBuf>,
    /// This machine's certificate (PEM), and those up to the root: everything is encrypted that goes by TCP
    #[arg(long, value_name = "FILE", env = "CAIRN_CERT", requires_all = ["key", "ca"])]
    pub cert: Option<PathBuf>,
    /// Its private key (PEM), readable by its owner alone
    #[arg(long, value_name = "FILE", env = "CAIRN_KEY", requires = "cert")]
    pub key: Option<PathBuf>,
    /// The roots that the others' certificates lead to (PEM)
    #[arg(long, value_name = "FILE", env = "CAIRN_CA", requires = "cert")]
    pub ca: Option<PathBuf>,
}

/// How etcd lets this program in.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct EtcdAccess {
    /// The roots (PEM) that the certificates of etcd's members lead to: their addresses are https://host:port then
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_CA")]
    pub etcd_ca: Option<PathBuf>,
    /// This program's certificate (PEM), for an etcd that asks for one
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_CERT", requires_all = ["etcd_key", "etcd_ca"])]
    pub etcd_cert: Option<PathBuf>,
    /// Its private key (PEM), readable by its owner alone
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_KEY", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// The user that this program is, for an etcd that asks who may read and write
    #[arg(long, value_name = "USER", env = "CAIRN_ETCD_USER", requires = "etcd_password_file")]
    pub etcd_user: Option<String>,
    /// File whose first line is that user's password, readable by its owner alone
    #[arg(long, value_name = "FILE", env = "CAIRN_ETCD_PASSWORD_FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
}

impl EtcdAccess {
    pub fn is_given(&self) -> bool {
        let files = [&self.etcd_ca, &self.etcd_cert, &self.etcd_key, &self.etcd_password_file];
        files.into_iter().any(Option::is_some) || self.etcd_user.is_some()
    }
}

/// An etcd, where replicas are announced and leaders elected.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = GROUP)]
pub struct Etcd {
    /// A member of an etcd (http://host:port, or https://host:port with --etcd-ca), once for each: replicas are announced there, and leaders elected
    #[arg(long, value_name = "URL", requires = "prefix")]
    pub etcd: Vec<String>,
    #[command(flatten)]
    pub access: EtcdAccess,
    /// Where the keys of this log begin, such as /cairn/orders
    #[arg(long, value_name = "KEY", requires = "etcd")]
    pub prefix: Option<String>,
    /// This one's name there, which no other process has [default: made from host and address, or process]
    #[arg(long, value_name = "NAME", requires = "etcd")]
    pub name: Option<String>,
    /// Seconds after which one that is gone is missed
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lease: u64,
}

impl Etcd {
    pub fn is_given(&self) -> bool {
        !self.etcd.is_empty()
    }

    pub fn ttl(&self) -> Duration {
        Duration::from_secs(self.lease)
    }
}
