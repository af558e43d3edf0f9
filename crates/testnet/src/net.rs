//! Hosts, what joins them, and what cuts them off.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::OnceLock;

use crate::ip::{batch, iptables};
use crate::{Host, Result, names};

/// Hosts are 10.66.0.1 and on.
const NETWORK: [u8; 3] = [10, 66, 0];
/// Most hosts.
const HOSTS_MAX: usize = 250;

/// Hosts joined by a bridge; all is removed when it is dropped.
#[derive(Debug)]
pub struct Net {
    hosts: Vec<Host>,
    /// Every namespace that was made, or may have been.
    made: Vec<String>,
}

impl Net {
    /// Whether there can be one here, and if not, why. What is needed is tried, once.
    ///
    /// # Errors
    /// Why not.
    pub fn available() -> std::result::Result<(), String> {
        static KNOWN: OnceLock<std::result::Result<(), String>> = OnceLock::new();
        let attempt = || -> Result<()> {
            let net = Self::new(2)?;
            net.cut(0, 1)?;
            net.heal()
        };
        if !rustix::process::geteuid().is_root() {
            return Err("this process is not root".to_owned());
        }
        KNOWN.get_or_init(|| attempt().map_err(|error| error.to_string())).clone()
    }

    /// So many hosts; or none, and why is said on standard error, past what captures the output of tests.
    ///
    /// # Panics
    /// There can be a network here and this one cannot be made.
    #[must_use]
    pub fn or_say_why(hosts: usize) -> Option<Self> {
        if let Err(why) = Self::available() {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            drop(writeln!(std::io::stderr(), "NOT TESTED: {test} needs a network of processes: {why}"));
            return None;
        }
        match Self::new(hosts) {
            Ok(net) => Some(net),
            Err(error) => panic!("{error}"),
        }
    }

    /// So many hosts, each of which reaches all others. What dead processes have left is removed first.
    ///
    /// # Errors
    /// A command is missing or fails; most often, this is not root.
    ///
    /// # Panics
    /// No host at all, or more than an address has room for.
    pub fn new(hosts: usize) -> Result<Self> {
        assert!((1..=HOSTS_MAX).contains(&hosts), "a network has 1 to {HOSTS_MAX} hosts, not {hosts}");
        names::sweep();
        let prefix = names::fresh();
        let switch = format!("{prefix}-switch");
        let named: Vec<String> = (0..hosts).map(|index| format!("{prefix}-h{index}")).collect();
        // From here on its drop removes what was made, however far it came.
        let mut net = Self { hosts: Vec::new(), made: named.iter().chain([&switch]).cloned().collect() };
        batch(None, &net.made.iter().map(|name| format!("netns add {name}")).collect::<Vec<_>>())?;

        let mut lines = vec!["link add bridge0 type bridge".to_owned(), "link set bridge0 up".to_owned()];
        for (index, name) in named.iter().enumerate() {
            lines.push(format!("link add port{index} type veth peer name eth0 netns {name}"));
            lines.push(format!("link set port{index} master bridge0 up"));
        }
        batch(Some(&switch), &lines)?;
        for (index, name) in named.into_iter().enumerate() {
            let [a, b, c] = NETWORK;
            let addr = Ipv4Addr::new(a, b, c, index as u8 + 1);
            let lines =
                ["link set lo up".to_owned(), format!("addr add {addr}/24 dev eth0"), "link set eth0 up".to_owned()];
            batch(Some(&name), &lines)?;
            net.hosts.push(Host::open(name, addr)?);
        }
        Ok(net)
    }

    /// How many hosts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Never: there is one at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// One host, counted from 0.
    ///
    /// # Panics
    /// There are fewer.
    #[must_use]
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// Cuts two hosts off from each other.
    ///
    /// # Errors
    /// `iptables` fails.
    pub fn cut(&self, one: usize, other: usize) -> Result<()> {
        self.cut_one_way(one, other)?;
        self.cut_one_way(other, one)
    }

    /// From now on nothing that `from` sends reaches `to`.
    ///
    /// # Errors
    /// `iptables` fails.
    pub fn cut_one_way(&self, from: usize, to: usize) -> Result<()> {
        // Dropped where it arrives: at the sender, it would be told.
        let from = self.host(from).addr().to_string();
        self.host(to).inside(|| iptables(&["-A", "INPUT", "-s", &from, "-j", "DROP"]))?
    }

    /// Cuts a host off from all others.
    ///
    /// # Errors
    /// `iptables` fails.
    pub fn isolate(&self, index: usize) -> Result<()> {
        (0..self.len()).filter(|other| *other != index).try_for_each(|other| self.cut(index, other))
    }

    /// Undoes all cuts.
    ///
    /// # Errors
    /// `iptables` fails.
    pub fn heal(&self) -> Result<()> {
        self.hosts.iter().try_for_each(|host| host.inside(|| iptables(&["-F", "INPUT"]))?)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.hosts.clear();
        for name in self.made.iter().filter(|name| std::path::Path::new(names::PLACE).join(name).exists()) {
            if let Err(error) = names::remove(name) {
                drop(writeln!(std::io::stderr(), "a network of a test is not removed: {error}"));
            }
        }
    }
}
