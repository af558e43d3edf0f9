//! What a server tells its clients of the other machines that serve the same store, one of which leads.
//!
//! The program that starts the server keeps this up to date. A server that follows answers nothing about data: what it has may be out of date, and a client that came to it by mistake
//! is told so at once, and where the leader is. It answers `ROLE`, `INFO replication` and, as a Redis Sentinel would, `SENTINEL`: so clients of Sentinel find the leader by asking
//! any of the servers.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

/// What is known at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// By what clients of Sentinel know the group.
    pub name: String,
    /// Where clients reach this server, host and port.
    pub own: String,
    /// The leader, if any is known: this server, or another one.
    pub leader: Option<String>,
    /// The other servers.
    pub others: Vec<Machine>,
    /// The term of the leader.
    pub term: u64,
    /// The last commit here; they are counted from 1.
    pub commits: u64,
    /// How many copies have a write before its reply is sent; 0 if it is not known.
    pub write_quorum: u32,
    /// What keeps this server from doing its part; none if nothing does.
    pub trouble: Option<String>,
    /// The newest version that it speaks of what servers say to one another; none if that is not known.
    pub wire: Option<u32>,
}

/// Another server of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// Where clients reach it.
    pub address: String,
    /// The leader says that its copy has all; false of all as seen by a server that follows.
    pub live: bool,
    /// Records of the log that its copy lacks.
    pub behind: u64,
    /// What keeps it from doing its part, as it says itself: a word, a colon, and why; none if nothing does.
    pub trouble: Option<String>,
    /// As [`View::wire`].
    pub wire: Option<u32>,
}

impl Machine {
    /// A server at this address.
    #[must_use]
    pub fn new(address: impl Into<String>, live: bool, behind: u64) -> Self {
        Self { address: address.into(), live, behind, trouble: None, wire: None }
    }

    /// The same, with what keeps it from doing its part.
    #[must_use]
    pub fn in_trouble(self, trouble: Option<String>) -> Self {
        Self { trouble, ..self }
    }

    /// The same, with the newest version that it speaks.
    #[must_use]
    pub fn speaking(self, wire: Option<u32>) -> Self {
        Self { wire, ..self }
    }

    /// As Redis names the state of a replica; if something keeps it from doing its part, the first word of that.
    pub(crate) fn state(&self) -> &str {
        match &self.trouble {
            _ if !self.live => "wait_bgsave",
            None => "online",
            Some(trouble) => {
                let word = trouble.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
                if word.is_empty() { "trouble" } else { word }
            }
        }
    }
}

/// What a client has asked the server that leads: to leave the leadership to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failover {
    /// Where clients reach the one that is to lead; none for any.
    pub to: Option<String>,
    /// How long may be waited for it to have nearly all; none if the client has not said.
    pub within: Option<Duration>,
}

/// How far a [`Failover`] is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Handover {
    #[default]
    None,
    Asked(Failover),
    /// The program has taken it.
    Begun,
    /// The program steps down: no client can call it off any more.
    Committed,
}

/// A group, as its servers tell of it.
#[derive(Debug)]
pub struct Group {
    follows: AtomicBool,
    view: RwLock<View>,
    handover: Mutex<Handover>,
}

impl Group {
    /// Of a server that follows, or one that leads.
    #[must_use]
    pub fn new(follows: bool, view: View) -> Self {
        Self { follows: follows.into(), view: RwLock::new(view), handover: Mutex::default() }
    }

    /// What a client has asked for since this was called last: the program does it, and says [`failover_is_over`](Self::failover_is_over) if it comes to nothing.
    #[must_use]
    pub fn take_failover(&self) -> Option<Failover> {
        let mut handover = self.handover.lock();
        let Handover::Asked(asked) = handover.clone() else { return None };
        *handover = Handover::Begun;
        Some(asked)
    }

    /// A failover that was [taken](Self::take_failover) goes on: no client has called it off.
    #[must_use]
    pub fn is_failing_over(&self) -> bool {
        *self.handover.lock() == Handover::Begun
    }

    /// The failover that was [taken](Self::take_failover) came to nothing. One that was asked for since, when that one had been called off, stays.
    pub fn failover_is_over(&self) {
        let mut handover = self.handover.lock();
        if *handover == Handover::Begun {
            *handover = Handover::None;
        }
    }

    /// From now on no client can call the failover that was [taken](Self::take_failover) off: the program steps down. False if one has, which was told so: the program leads on.
    #[must_use]
    pub fn commit_failover(&self) -> bool {
        let mut handover = self.handover.lock();
        let goes_on = *handover == Handover::Begun;
        if goes_on {
            *handover = Handover::Committed;
        }
        goes_on
    }

    /// False if there is one already.
    pub(crate) fn ask_failover(&self, failover: Failover) -> bool {
        let mut handover = self.handover.lock();
        let is_first = *handover == Handover::None;
        if is_first {
            *handover = Handover::Asked(failover);
        }
        is_first
    }

    /// How far one is that a client has asked for, as Redis names it.
    pub(crate) fn failover_state(&self) -> &'static str {
        match *self.handover.lock() {
            Handover::None => "no-failover",
            Handover::Asked(_) | Handover::Begun => "waiting-for-sync",
            Handover::Committed => "failover-in-progress",
        }
    }

    /// Calls it off; an error if there is none, or none that could be.
    pub(crate) fn abort_failover(&self) -> Result<(), &'static str> {
        let mut handover = self.handover.lock();
        match *handover {
            Handover::None => Err("ERR No failover in progress."),
            Handover::Committed => Err(
                "ERR it is too late for FAILOVER ABORT: this server leaves the leadership now; next: ask ROLE which server leads, and FAILOVER there",
            ),
            Handover::Asked(_) | Handover::Begun => {
                *handover = Handover::None;
                Ok(())
            }
        }
    }

    /// From now on nothing about data is answered.
    pub fn step_down(&self) {
        self.follows.store(true, Release);
    }

    /// True of a server that does not lead.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.follows.load(Acquire)
    }

    /// What is known now.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.read().clone()
    }

    /// Tells what is known from now on.
    pub fn tell(&self, view: View) {
        *self.view.write() = view;
    }

    /// What a client is told that asks for data here.
    pub(crate) fn refusal(&self) -> String {
        let view = self.view.read();
        match &view.leader {
            Some(leader) if *leader != view.own => {
                format!("READONLY this server follows and answers nothing about data; the leader is at {leader}")
            }
            _ => "READONLY this server does not lead, and no leader is known yet; ask again in a moment".to_owned(),
        }
    }
}

impl View {
    /// Of a server at `own`, in the group of this name.
    #[must_use]
    pub fn new(name: impl Into<String>, own: impl Into<String>) -> Self {
        Self { name: name.into(), own: own.into(), ..Self::default() }
    }
}

/// Host and port of an address; port 0 if it has none.
pub(crate) fn split(address: &str) -> (&str, &str) {
    match address.rsplit_once(':') {
        Some((host, port)) => (host.trim_start_matches('[').trim_end_matches(']'), port),
        None => (address, "0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_that_was_answered_outlasts_the_end_of_the_one_before() {
        let group = Group::new(false, View::new("shop", "a:1"));
        let to = |to: &str| Failover { to: Some(to.to_owned()), within: None };
        assert!(group.ask_failover(to("b:1")) && group.take_failover() == Some(to("b:1")));
        // The program has not seen yet that it was called off.
        assert!(group.abort_failover().is_ok() && !group.is_failing_over() && group.ask_failover(to("c:1")));
        group.failover_is_over();
        assert_eq!(group.take_failover(), Some(to("c:1")));
        group.failover_is_over();
        assert!(group.failover_state() == "no-failover" && group.take_failover().is_none());
    }

    #[test]
    fn a_failover_is_called_off_or_carried_out() {
        let group = Group::new(false, View::new("shop", "a:1"));
        let to = |to: &str| Failover { to: Some(to.to_owned()), within: None };
        assert!(!group.commit_failover() && group.abort_failover().unwrap_err().contains("No failover"));
        // Called off at the last moment, and another one was asked for behind it.
        assert!(group.ask_failover(to("b:1")) && group.take_failover().is_some());
        assert!(group.abort_failover().is_ok() && !group.commit_failover());
        assert!(group.ask_failover(to("c:1")) && !group.commit_failover());
        assert_eq!(group.take_failover(), Some(to("c:1")));
        assert_eq!(group.failover_state(), "waiting-for-sync");
        // It is carried out, and stays.
        assert!(group.commit_failover() && !group.commit_failover());
        let why = group.abort_failover().unwrap_err();
        assert!(why.contains("too late") && why.contains("next: "), "{why}");
        assert!(!group.ask_failover(to("b:1")) && group.take_failover().is_none());
        assert_eq!(group.failover_state(), "failover-in-progress");
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        assert_eq!(split("10.0.0.1:6379"), ("10.0.0.1", "6379"));
        assert_eq!(split("[::1]:7"), ("::1", "7"));
        assert_eq!(split("nowhere"), ("nowhere", "0"));
    }

    #[test]
    fn whoever_comes_to_the_wrong_one_is_told_where_to_go() {
        let group = Group::new(true, View::new("shop", "a:1"));
        assert!(group.refusal().contains("no leader is known"));
        group.tell(View { leader: Some("b:1".into()), ..group.view() });
        assert!(group.refusal().starts_with("READONLY ") && group.refusal().ends_with("the leader is at b:1"));
        // It has led until now.
        group.tell(View { leader: Some("a:1".into()), ..group.view() });
        assert!(group.refusal().contains("no leader is known"));
    }
}
