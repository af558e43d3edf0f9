//! One machine of a [group](super::group): what it is started with, and what the others say of their log.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use ::log::Replicas;
use ::log::fabric::Options as Trusted;
use membership::{Announcement, Leadership, Member, Members};
use server::Config;
use server::group::View;

use super::super::copies;
use crate::failure::Failure;
use crate::output::note;

/// What was declared in etcd once the log has been made: its id.
pub const MADE: &str = "log";

/// What this machine is started with.
pub struct Machine {
    pub path: PathBuf,
    pub log: PathBuf,
    pub trust: Trusted,
    pub members: Members,
    pub me: Member,
    pub ttl: Duration,
    pub name: String,
    pub store: kv::Options,
    pub log_options: ::log::Options,
    pub machines: u32,
    pub write_quorum: u32,
    pub config: Config,
    pub stopped: Arc<AtomicBool>,
}

/// What the others see of this machine in etcd, until it is dropped.
pub struct Notice {
    announcement: Announcement,
    told: Told,
}

/// What keeps this machine from doing its part, as it stands there.
#[derive(Default)]
struct Told {
    trouble: Option<String>,
    /// It may be what it was before, too: etcd did not answer.
    is_uncertain: bool,
}

impl Told {
    /// Puts it there, unless it is certain that it stands there.
    fn tell(&mut self, trouble: Option<String>, put: impl FnOnce(Option<&str>) -> bool) {
        if self.is_uncertain || self.trouble != trouble {
            self.is_uncertain = !put(trouble.as_deref());
            self.trouble = trouble;
        }
    }
}

impl Notice {
    pub fn new(announcement: Announcement) -> Self {
        Self { announcement, told: Told::default() }
    }

    /// Says what keeps this machine from doing its part, or that nothing does; again another time if etcd does not answer.
    pub fn tell(&mut self, trouble: Option<String>) {
        self.told.tell(trouble, |trouble| self.announcement.tell(trouble).is_ok());
    }

    /// Two machines of one name would be one for the others.
    pub fn check(&self) -> Result<(), Failure> {
        match self.announcement.check() {
            Err(error @ membership::Error::Replaced { .. }) => Err(Failure::membership(&error)),
            _ => Ok(()), // it is made again as soon as etcd answers
        }
    }
}

impl Machine {
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Acquire)
    }

    pub fn failure(&self, error: &kv::Error) -> Failure {
        Failure::kv(&self.path, error)
    }

    /// All other machines that are announced.
    pub fn others(&self) -> membership::Result<Vec<Member>> {
        Ok(self.members.copies()?.into_iter().filter(|member| member.name != self.me.name).collect())
    }

    pub fn view(&self) -> View {
        let mut view = View::new(&self.name, self.me.serves.as_deref().unwrap_or_default());
        view.wire = Some(::log::WIRE_VERSION);
        view
    }

    /// An error if the group has another log than this; true if it has this one, false if that is not known.
    pub fn check_log(&self, log: u64) -> Result<bool, Failure> {
        let Ok(Some(of_group)) = self.members.declared(MADE) else { return Ok(false) };
        let own = format!("{log:x}");
        if of_group == own {
            return Ok(true);
        }
        let what = format!("this machine has log {own}, and the group {} has log {of_group}", self.name);
        Err(Failure::new(
            what,
            "give it the --prefix of its own group, or files of its own: it joins with a new replica",
        ))
    }

    /// The others, as the log is led with them.
    pub fn replicas(&self, others: &[Member], leadership: &Leadership) -> Result<Replicas, Failure> {
        let term = leadership.term();
        let replicas = Replicas::new()
            .trust(self.trust.clone())
            .write_quorum(self.write_quorum)
            // A machine that takes over waits no longer for one that hangs than was waited for the leader.
            .open_timeout(self.ttl)
            .elected(copies::owner(term)?, term)
            .make_again(true);
        Ok(others.iter().fold(replicas, |replicas, member| replicas.at(&member.address)))
    }
}

/// What the replicas say of the log before a machine is elected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Log {
    /// There is one.
    Made,
    /// There has never been one, and all machines of the group are there.
    ToBeMade,
    /// Machines are missing, or do not answer: which, and why.
    Unknown(String),
}

/// Whether there is a log to be led. It is made once: that is declared in etcd before any client is served, and replicas of a making that was cut short before are taken as they are.
pub fn log_of(machine: &Machine, own: bool, others: &[Member]) -> membership::Result<Log> {
    if own || machine.members.declared(MADE)?.is_some() {
        return Ok(Log::Made);
    }
    let (mut new, mut silent) = (0, Vec::new());
    for member in others {
        match ::log::look(&member.address, &machine.trust, machine.ttl) {
            Ok(Some(status)) if status.quorum.is_some() => return Ok(Log::Made),
            Ok(_) => new += 1,
            Err(error) => silent.push(format!("{} does not answer: {error}", member.name)),
        }
    }
    let (there, machines) = (others.len() + 1, machine.machines as usize);
    if there != machines {
        silent.insert(0, format!("{there} of {machines} machines are announced"));
    }
    Ok(if new + 1 == machines && silent.is_empty() { Log::ToBeMade } else { Log::Unknown(silent.join("; ")) })
}

/// The caller has said why the leadership is over, if it is.
pub fn resign(leadership: Leadership) {
    match leadership.resign() {
        Ok(()) | Err(membership::Error::Lost { .. }) => {}
        Err(error) => note!("cairn: {error}"),
    }
}

/// What a machine waits for while no log can be made.
pub fn no_log(why: &str) -> String {
    format!("there is no log yet, and it takes all machines of the group to make one: {why}")
}

#[expect(
    clippy::disallowed_methods,
    reason = "users are read again now and then; an operator is told what is waited for"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Whether an address is that of all interfaces.
pub fn is_nowhere(address: &str) -> bool {
    address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_stand_in_etcd_is_told_again() {
        let (mut told, mut puts) = (Told::default(), Vec::new());
        let mut tell = |trouble: Option<&str>, answers: bool| {
            told.tell(trouble.map(str::to_owned), |put| {
                puts.push(put.map(str::to_owned));
                answers
            });
        };
        tell(None, true);
        tell(Some("full"), true);
        tell(Some("full"), true);
        tell(None, true);
        // It may be there, though there was no answer.
        tell(Some("full"), false);
        tell(None, false);
        tell(None, true);
        tell(None, true);
        let full = Some("full".to_owned());
        assert_eq!(puts, [full.clone(), None, full, None, None]);
    }
}
