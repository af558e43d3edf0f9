//! The way to everything: a prefix in etcd, and what stands below it.

use std::sync::Arc;
use std::time::Duration;

use crate::arguments::{argument, check_ttl, text};
use crate::etcd::Claim;
use crate::inner::Inner;
use crate::member::{leader_in, parse};
use crate::{
    Access, Announcement, Error, Held, Leader, LeaderWatch, Leadership, Member, Register, Result, announcement,
    campaign, register, watch,
};

/// Of a key that stays.
const NO_LEASE: i64 = 0;
/// The members of one log. Cheap to clone; the connection ends with the last clone and what was made from it.
#[derive(Clone, Debug)]
pub struct Members(Arc<Inner>);

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

    /// As [`connect`](Self::connect), with nothing asked yet: for a caller that waits until etcd is there, and calls [`reach`](Self::reach) until it is. A
    /// log-in that takes long goes on between the calls.
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
        Ok(Self(Arc::new(Inner::start(access, prefix, timeout)?)))
    }

    /// Waits for a first answer, as long as [`connect`](Self::connect) does, or until `is_over`, which is asked several times in a second. True if etcd has answered.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses; the leader's key holds something else.
    pub fn reach(&self, is_over: impl Fn() -> bool) -> Result<bool> {
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.0.leader_key());
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
        announcement::announce(self.0.clone(), member, ttl)
    }

    /// Every copy that is announced, by name.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses; a key below the prefix is no announcement.
    pub fn copies(&self) -> Result<Vec<Member>> {
        let (etcd, timeout, prefix) = (self.0.etcd.clone(), self.0.timeout, self.0.copy_key(""));
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
        campaign::campaign(self.0.clone(), member, ttl, limit)
    }

    /// The leader now. It may have lost its leadership by the time this returns.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses; the leader's key holds something else.
    pub fn leader(&self) -> Result<Option<Leader>> {
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.0.leader_key());
        self.0.runtime.wait(move || async move {
            let read = async |within| etcd.read(&key, false, within).await;
            leader_in(&etcd.retrying("read", timeout, read).await?.entries)
        })
    }

    /// Asks the others to leave the leadership to the member of this name, for `ttl` (whole seconds, rounded up): those that ask for the [`successor`](Self::successor) before they stand.
    /// It is a request, on which nothing depends that was promised.
    ///
    /// # Errors
    /// An argument makes no sense; etcd cannot be reached, or refuses.
    pub fn expect_successor(&self, name: &str, ttl: Duration) -> Result<()> {
        text("the name of a member", name, false)?;
        check_ttl(ttl)?;
        let (etcd, timeout, key, name) = (self.0.etcd.clone(), self.0.timeout, self.0.successor_key(), name.to_owned());
        self.0.runtime.wait(move || async move {
            let (lease, _) = etcd.retrying("lease", timeout, async |within| etcd.grant(ttl, within).await).await?;
            let put = async |within| etcd.put(&key, name.as_bytes(), lease, within).await;
            etcd.retrying("name the successor", timeout, put).await
        })
    }

    /// Takes back what [`expect_successor`](Self::expect_successor) asked for, if it still is for the member of this name: any may stand. Nothing if another one is named, or none.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses.
    pub fn expect_any(&self, instead_of: &str) -> Result<()> {
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.0.successor_key());
        let name = instead_of.to_owned();
        self.0.runtime.wait(move || async move {
            let take_back = async |within| etcd.delete_if(&key, name.as_bytes(), within).await;
            etcd.retrying("name no successor", timeout, take_back).await
        })
    }

    /// To which member the leadership is to be left now, if it is to one.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses; what stands there is no name.
    pub fn successor(&self) -> Result<Option<String>> {
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.0.successor_key());
        self.0.runtime.wait(move || async move {
            let read = async |within| etcd.read(&key, false, within).await;
            let found = etcd.retrying("read", timeout, read).await?.entries.into_iter().next();
            let name = found.map(|entry| String::from_utf8(entry.value));
            let name =
                name.transpose().map_err(|error| Error::ForeignValue { key: key.clone(), why: error.to_string() })?;
            Ok(name.filter(|name| !name.is_empty()))
        })
    }

    /// Says something for good, below the prefix and once: it stays when every process has ended. True if no process had said anything under this name before.
    ///
    /// # Errors
    /// An argument makes no sense; etcd cannot be reached, or refuses. Then it may have been said all the same.
    pub fn declare(&self, name: &str, value: &str) -> Result<bool> {
        text("the name of what is declared", name, false)?;
        text("what is declared", value, true)?;
        let (etcd, timeout, key, value) =
            (self.0.etcd.clone(), self.0.timeout, self.0.said_key(name), value.to_owned());
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
        let (etcd, timeout, key) = (self.0.etcd.clone(), self.0.timeout, self.0.said_key(name));
        self.0.runtime.wait(move || async move {
            let read = async |within| etcd.read(&key, false, within).await;
            let found = etcd.retrying("read", timeout, read).await?.entries.into_iter().next();
            let said = found.map(|entry| String::from_utf8(entry.value));
            said.transpose().map_err(|error| Error::ForeignValue { key: key.clone(), why: error.to_string() })
        })
    }

    /// Opens a session of `machine` for the register called `name`: earlier ones of the machine change nothing any more.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses.
    pub fn register(&self, name: &str, machine: &str) -> Result<Register> {
        register::open(self.0.clone(), name, machine)
    }

    /// What the register called `name` holds now, linearizably, for a caller that does not replace it: no session is opened.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses.
    pub fn held(&self, name: &str) -> Result<Option<Held>> {
        register::held(&self.0, name)
    }

    /// Follows who leads.
    #[must_use]
    pub fn watch_leader(&self) -> LeaderWatch {
        watch::start(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
