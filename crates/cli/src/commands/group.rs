//! `cairn group`: the machines that serve one store, as their leader sees them.

mod change;
mod outlook;
mod status;
mod transfer;

use std::time::{Duration, Instant};

use ::log::fabric::Options as Trusted;
use kv::LeaderStatus;
use membership::{Member, Members};

use super::{Outcome, copies};
use crate::args::{self, GroupAt};
use crate::failure::Failure;
use crate::output::note;

/// Between two searches for a leader.
const LOOK: Duration = Duration::from_millis(200);

pub fn run(action: &args::Group) -> Outcome {
    match action {
        args::Group::Status(args) => status::run(args),
        args::Group::Join(args) => change::join(args),
        args::Group::Remove(args) => change::remove(args),
        args::Group::Transfer(args) => transfer::run(args),
    }
}

/// A group that has a leader.
struct Group {
    trust: Trusted,
    /// How long a machine may take to answer.
    timeout: Duration,
    /// All that are announced, the leader among them.
    machines: Vec<Member>,
    leader: Member,
    status: LeaderStatus,
}

impl Group {
    /// Asks the machines that are announced until the one that etcd names answers as the leader; again for as long as the arguments say, and then takes what another one answers, which may be about to
    /// step down.
    fn find(at: &GroupAt) -> Result<Self, Failure> {
        let mut trust = copies::known(&at.known)?;
        let timeout = Duration::from_millis(at.connect_within);
        (trust.greeting_timeout, trust.send_timeout) = (timeout, timeout);
        let failed = |error: membership::Error| Failure::membership(&error);
        let etcd = copies::access(&at.etcd, &at.access)?;
        let members = Members::connect(etcd, &at.prefix, timeout.max(Duration::from_secs(1))).map_err(failed)?;
        let end = now() + Duration::from_secs(at.wait);
        loop {
            let elected = members.leader().map_err(failed)?.map(|leader| leader.member);
            let mut machines = members.copies().map_err(failed)?;
            let late = now() >= end;
            match ask(elected.as_ref(), &machines, &trust) {
                Ok((leader, status)) if late || elected.as_ref() == Some(&leader) => {
                    if elected.as_ref() != Some(&leader) {
                        note!("note: {} answers as the leader, and etcd does not name it", leader.name);
                    }
                    if machines.iter().all(|machine| machine.name != leader.name) {
                        machines.push(leader.clone());
                    }
                    return Ok(Self { trust, timeout, machines, leader, status });
                }
                Err(why) if late => return Err(nobody_leads(at, elected.as_ref(), &machines, &why)),
                _ => std::thread::sleep(LOOK),
            }
        }
    }

    /// Asks the leader again.
    fn renew(&mut self) -> Result<(), Failure> {
        self.status = kv::leader_status(&self.leader.address, &self.trust).map_err(|error| self.refused(&error))?;
        Ok(())
    }

    /// As many replicas are live as must have each record.
    fn writes_go_on(&self) -> bool {
        let live = usize::from(self.status.own != 0) + self.status.copies.iter().filter(|copy| copy.live).count();
        live >= self.status.write_quorum as usize
    }

    /// The ids of all replicas that count.
    fn ids(&self) -> Vec<u64> {
        outlook::ids(&self.status)
    }

    /// What the leader answered instead.
    fn refused(&self, error: &kv::Error) -> Failure {
        let message = match error {
            kv::Error::Log(error) => match &**error {
                ::log::Error::Replica { why, .. } => why.clone(),
                other => other.to_string(),
            },
            other => other.to_string(),
        };
        let (what, next) = message.split_once("; ").unwrap_or((&message, "see what `cairn group status` says"));
        Failure::new(format!("{}, which leads: {what}", self.leader.name), next)
    }
}

/// The machine that etcd names is asked first; if it does not answer as a leader, all others are, at once. Else what the first said.
fn ask(elected: Option<&Member>, machines: &[Member], trust: &Trusted) -> Result<(Member, LeaderStatus), String> {
    let asked = |member: &Member| kv::leader_status(&member.address, trust).map(|status| (member.clone(), status));
    let why = match elected.map(asked) {
        Some(Ok(found)) => return Ok(found),
        Some(Err(error)) => error.to_string(),
        None => String::new(),
    };
    let others = machines.iter().filter(|machine| elected.is_none_or(|elected| elected.name != machine.name));
    let answers: Vec<_> = std::thread::scope(|threads| {
        let asking: Vec<_> = others.map(|machine| threads.spawn(move || asked(machine))).collect();
        asking
            .into_iter()
            .map(|asking| asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    answers.into_iter().find_map(Result::ok).ok_or(why)
}

fn nobody_leads(at: &GroupAt, elected: Option<&Member>, machines: &[Member], why: &str) -> Failure {
    let prefix = at.prefix.trim_end_matches('/');
    if machines.is_empty() {
        let next = "see whether `cairn serve` runs on the machines, with this --etcd and --prefix";
        return Failure::new(format!("no machine is announced below {prefix}"), next);
    }
    let names: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
    let (leader, next) = match elected {
        None => (
            "etcd names no leader".to_owned(),
            "start the machines that are missing: a leader needs a write quorum of replicas; `cairn serve` says on its standard error what it waits for",
        ),
        Some(elected) => (
            format!("{}, which etcd names as the leader, does not answer as one: {why}", elected.name),
            "see what `cairn serve` says there on its standard error, and whether it has the same secret",
        ),
    };
    Failure::new(format!("no machine leads below {prefix}; {leader}; announced are {}", names.join(", ")), next)
}

#[expect(clippy::disallowed_methods, reason = "time-outs are in real time")]
fn now() -> Instant {
    Instant::now()
}

fn hex(id: u64) -> String {
    format!("{id:x}")
}
