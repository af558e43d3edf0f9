//! The way to everything: a prefix in etcd, and what stands below it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::etcd::{Claim, Entry, Etcd};
use crate::runtime::Runtime;
use crate::{Access, Announcement, Error, LeaderWatch, Leadership, Result, announcement, campaign, watch};

/// Longest name, address and prefix, in bytes.
const TEXT_MAX: usize = 255;
/// Of a key that stays.
const NO_LEASE: i64 = 0;
/// Least and most time to live of a lease: etcd counts in seconds, and a leader that is gone is missed for as long.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// A process that keeps a copy of the log, may lead it, or both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Who: no two processes have one name at a time.
    pub name: String,
    /// Where the others reach it; opaque here.
    pub address: String,
    /// Where clients reach what it serves, if it serves any; opaque here. An earlier version passes over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<String>,
}

impl Member {
    /// ```
    /// let member = membership::Member::new("b", "10.0.0.2:7000");
    /// assert_eq!(member.address, "10.0.0.2:7000");
    /// ```
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { name: name.into(), address: address.into(), serves: None }
    }

    /// The same, with where clients reach it.
    ///
    /// ```
    /// let member = membership::Member::new("b", "10.0.0.2:7000").serving("10.0.0.2:6379");
    /// assert_eq!(member.serves.as_deref(), Some("10.0.0.2:6379"));
    /// ```
    #[must_use]
    pub fn serving(self, address: impl Into<String>) -> Self {
        Self { serves: Some(address.into()), ..self }
    }

    fn check(&self) -> Result<()> {
        text("the name of a member", &self.name, false)?;
        text("the address of a member", &self.address, true)?;
        self.serves.as_ref().map_or(Ok(()), |serves| text("the clients' address of a member", serves, true))
    }
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Name and address.
    pub member: Member,
    /// Its fencing number.
    pub term: u64,
}

/// The members of one log. Cheap to clone; the connection ends with the last clone and what was made from it.
#[derive(Clone, Debug)]
pub struct Members(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) etcd: Arc<Etcd>,
    prefix: String,
    /// Longest that a call waits for etcd.
    pub(crate) timeout: Duration,
    pub(crate) runtime: Runtime,
}

impl Members {
    /// Speaks to an etcd: its members' addresses, or [`Access`] with certificates or a user. All keys are below `prefix`. Calls that say nothing else wait `timeout` at most; a third of the
    /// shortest time to live is a good one. With a user, this one waits 5 seconds more for the log-in.
    ///
    /// # Errors
    /// An argument makes no sense; etcd cannot be reached, or refuses.
    pub fn connect(etcd: impl Into<Access>, prefix: &str, timeout: Duration) -> Result<Self> {
        let members = Self::prepare(etcd, prefix, timeout)?;
        members.reach(|| false)?;
        Ok(members)
    }

    /// As [`connect`](Self::connect), with nothing asked yet: for who waits until etcd is there, and calls [`reach`](Self::reach) until it is. A log-in that takes long goes on between the calls.
    ///
    /// # Errors
    /// An argument makes no sense.
    ///
    /// ```no_run
    /// # fn is_to_stop() -> bool { false }
    /// # fn main() -> membership::Result<()> {
    /// # let (etcd, timeout) = (["http://10.0.0.1:2379"], std::time::Duration::from_secs(3));
    /// let members = membership::Members::prepare(&etcd, "/cairn/orders", timeout)?;
    /// while let Err(error) = members.reach(is_to_stop) {
    ///     assert!(error.is_retry(), "{error}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn prepare(etcd: impl Into<Access>, prefix: &str, timeout: Duration) -> Result<Self> {
        let access = etcd.into();
        access.check()?;
        let prefix = prefix.trim_end_matches('/');
        text("the prefix of the keys", prefix, true)?;
        if timeout.is_zero() {
            return Err(argument("the longest wait for etcd", format!("{timeout:?}"), "more than nothing"));
        }
        let etcd = Arc::new(Etcd::new(access, timeout));
        let runtime = Runtime::start(timeout)?;
        Ok(Self(Arc::new(Inner { etcd, prefix: prefix.to_owned(), timeout, runtime })))
    }

    /// Waits for a first answer, as long as [`connect`](Self::connect) does, or until `is_over`, which is asked several times in a second. True if etcd has answered.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses; the leader's key holds something else.
    pub fn reach(&self, is_over: impl Fn() -> bool) -> Result<bool> {
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.leader_key());
        let answer = self.0.runtime.wait_unless(is_over, move || async move {
            let read = async |within| etcd.read(&key, false, within).await;
            leader_in(&etcd.beginning("read", timeout, read).await?.entries)
        })?;
        Ok(answer.is_some())
    }

    /// Says where a copy is, until what is returned is dropped, or the process ends and `ttl` has passed (whole seconds, rounded up). An earlier
    /// announcement of the same name is replaced.
    ///
    /// # Errors
    /// An argument makes no sense; etcd cannot be reached, or refuses.
    pub fn announce(&self, member: &Member, ttl: Duration) -> Result<Announcement> {
        member.check()?;
        check_ttl(ttl)?;
        announcement::announce(self, member, ttl)
    }

    /// Every copy that is announced, by name.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses; a key below the prefix is nobody's announcement.
    pub fn copies(&self) -> Result<Vec<Member>> {
        let (etcd, timeout, prefix) = (self.0.etcd.clone(), self.0.timeout, self.copy_key(""));
        self.0.runtime.wait(move || async move {
            let read = async |within| etcd.read(&prefix, true, within).await;
            let found = etcd.retrying("read", timeout, read).await?;
            found.entries.iter().map(parse).collect()
        })
    }

    /// Stands for leadership until elected, at most for `limit`. The lease is kept for as long as the leadership is; when the process ends or is cut off,
    /// another can be elected after `ttl` (whole seconds, rounded up).
    ///
    /// # Errors
    /// An argument makes no sense; [`Error::NotElected`]; etcd cannot be reached in all that time, or refuses.
    pub fn campaign(&self, member: &Member, ttl: Duration, limit: Duration) -> Result<Leadership> {
        member.check()?;
        check_ttl(ttl)?;
        campaign::campaign(self, member, ttl, limit)
    }

    /// Who leads now. It may have lost its leadership by the time this returns.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses; the leader's key holds something else.
    pub fn leader(&self) -> Result<Option<Leader>> {
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.leader_key());
        self.0.runtime.wait(move || async move {
            let read = async |within| etcd.read(&key, false, within).await;
            leader_in(&etcd.retrying("read", timeout, read).await?.entries)
        })
    }

    /// Says something for good, below the prefix and once: it stays when every process has ended. True if nobody had said anything under this name before.
    ///
    /// # Errors
    /// An argument makes no sense; etcd cannot be reached, or refuses. Then it may have been said all the same.
    pub fn declare(&self, name: &str, value: &str) -> Result<bool> {
        text("the name of what is declared", name, false)?;
        text("what is declared", value, true)?;
        let (etcd, timeout, key, value) = (self.0.etcd.clone(), self.0.timeout, self.said_key(name), value.to_owned());
        self.0.runtime.wait(move || async move {
            let claim = async |within| etcd.claim(&key, value.as_bytes(), NO_LEASE, within).await;
            Ok(matches!(etcd.retrying("declare", timeout, claim).await?, Claim::Won { .. }))
        })
    }

    /// What was [declared](Self::declare) under this name.
    ///
    /// # Errors
    /// As [`declare`](Self::declare); what stands there is no text.
    pub fn declared(&self, name: &str) -> Result<Option<String>> {
        text("the name of what is declared", name, false)?;
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.said_key(name));
        self.0.runtime.wait(move || async move {
            let read = async |within| etcd.read(&key, false, within).await;
            let found = etcd.retrying("read", timeout, read).await?.entries.into_iter().next();
            let said = found.map(|entry| String::from_utf8(entry.value));
            said.transpose().map_err(|error| Error::ForeignValue { key: key.clone(), why: error.to_string() })
        })
    }

    /// Follows who leads.
    #[must_use]
    pub fn watch_leader(&self) -> LeaderWatch {
        watch::start(self)
    }

    pub(crate) fn leader_key(&self) -> String {
        format!("{}/leader", self.0.prefix)
    }

    fn said_key(&self, name: &str) -> String {
        format!("{}/said/{name}", self.0.prefix)
    }

    pub(crate) fn register_key(&self, name: &str) -> String {
        format!("{}/registers/{name}", self.0.prefix)
    }

    pub(crate) fn copy_key(&self, name: &str) -> String {
        format!("{}/copies/{name}", self.0.prefix)
    }
}

pub(crate) fn value_of(member: &Member) -> Result<Vec<u8>> {
    // Two strings have a representation; the error is for the type's sake.
    serde_json::to_vec(member).map_err(|error| argument("a member", error.to_string(), "text"))
}

pub(crate) fn leader_in(entries: &[Entry]) -> Result<Option<Leader>> {
    let leader = |entry: &Entry| Ok(Leader { member: parse(entry)?, term: entry.created });
    entries.first().map(leader).transpose()
}

fn parse(entry: &Entry) -> Result<Member> {
    let member = serde_json::from_slice::<Member>(&entry.value).map_err(|error| error.to_string());
    let checked = member.and_then(|member| member.check().map(|()| member).map_err(|error| error.to_string()));
    checked.map_err(|why| Error::ForeignValue { key: String::from_utf8_lossy(&entry.key).into_owned(), why })
}

fn check_ttl(ttl: Duration) -> Result<()> {
    if TTL.contains(&ttl) {
        return Ok(());
    }
    Err(argument("a lease's time to live", format!("{ttl:?}"), "from a second to an hour"))
}

fn text(what: &'static str, found: &str, path: bool) -> Result<()> {
    let plain = found.chars().all(|c| !c.is_control() && !c.is_whitespace() && (path || c != '/'));
    if plain && !found.is_empty() && found.len() <= TEXT_MAX {
        return Ok(());
    }
    let must = if path {
        "1 to 255 bytes without spaces and control characters"
    } else {
        "1 to 255 bytes without spaces, control characters and slashes"
    };
    Err(argument(what, found.to_owned(), must))
}

pub(crate) fn argument(what: &'static str, found: String, must: &'static str) -> Error {
    Error::Argument { what, found, must }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &str) -> Entry {
        Entry { key: b"/p/copies/a".to_vec(), value: value.as_bytes().to_vec(), created: 1, modified: 1, lease: 2 }
    }

    #[test]
    fn a_value_is_read_back() {
        let member = Member::new("a", "h:1");
        let value = String::from_utf8(value_of(&member).unwrap()).unwrap();
        assert_eq!(value, r#"{"name":"a","address":"h:1"}"#);
        assert_eq!(parse(&entry(&value)).unwrap(), member);
        let member = member.serving("h:2");
        let value = String::from_utf8(value_of(&member).unwrap()).unwrap();
        assert_eq!(value, r#"{"name":"a","address":"h:1","serves":"h:2"}"#);
        assert_eq!(parse(&entry(&value)).unwrap(), member);
    }

    #[test]
    fn a_newer_value_with_more_in_it_is_read() {
        assert_eq!(parse(&entry(r#"{"name":"a","address":"h:1","zone":"x"}"#)).unwrap(), Member::new("a", "h:1"));
    }

    #[test]
    fn foreign_values_are_refused() {
        for value in ["", "h:1", "{}", r#"{"name":"a/b","address":"h:1"}"#, r#"{"name":"","address":"h:1"}"#, "[[[["] {
            assert!(matches!(parse(&entry(value)), Err(Error::ForeignValue { .. })), "{value}");
        }
    }

    #[test]
    fn arguments_are_checked_before_anything_is_sent() {
        let none: [&str; 0] = [];
        let wait = Duration::from_secs(1);
        for found in [
            Members::connect(&none, "/p", wait),
            Members::connect(&["https://127.0.0.1:1"], "/p", wait),
            Members::connect(&["http://127.0.0.1:1"], "/", wait),
            Members::connect(&["http://127.0.0.1:1"], "/a b", wait),
            Members::connect(&["http://127.0.0.1:1"], "/p", Duration::ZERO),
        ] {
            assert!(matches!(found, Err(Error::Argument { .. })), "{found:?}");
        }
        assert!(check_ttl(Duration::from_millis(999)).is_err());
        assert!(check_ttl(Duration::from_secs(1)).is_ok());
    }
}
