//! One of the machines that serve one store: it follows until it is elected, leads until it loses that, and follows again.
//!
//! ```text
//!                      elected: the log is taken over
//!   follow ───────────────────────────────────────────────> lead
//!     ^  │ further behind than the log: a seed of the leader's store
//!     │  └─┘                                                 │
//!     └──────────────────────────────────────────────────────┘
//!                      lease lost, fenced, too few replicas
//! ```
//!
//! `docs/replication.md` says why nothing acknowledged is lost and no stale read is answered, also while another machine believes that it leads.

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use kv::Follower;
use membership::{Leadership, Member, Members};
use server::Config;

use super::super::{Outcome, copies};
use super::machine::{Log, MADE, Machine, Notice, is_nowhere, log_of, no_log, now, resign};
use super::node::{self, Next};
use super::{leading, opening, options};
use crate::args::{Asked, Engine};
use crate::failure::Failure;
use crate::output::note;

/// Default of `--lease`.
const LEASE: u64 = 3;
/// Default of `--machines`.
const MACHINES: u32 = 3;
/// Nothing is said of an etcd that answers sooner.
const LATE: Duration = Duration::from_secs(2);

pub fn run(path: &Path, asked: &Asked, config: Config) -> Outcome {
    let Some((mut machine, follower)) = begin(path, asked, config)? else {
        note!("cairn: stopped, before etcd has answered");
        return Ok(ExitCode::SUCCESS);
    };
    let mut next = Next::Follow(follower);
    let mut notice: Option<Notice> = None;
    loop {
        next = match next {
            Next::Follow(follower) => node::follow(&mut machine, follower, &mut notice)?,
            Next::Lead(follower, leadership) => take_over(&machine, follower, leadership, &mut notice)?,
            Next::Stop => break,
        };
        notice.as_ref().map_or(Ok(()), Notice::check)?;
    }
    drop(notice);
    note!("cairn: stopped");
    Ok(ExitCode::SUCCESS)
}

/// None if it is to stop before etcd has answered.
fn begin(path: &Path, asked: &Asked, config: Config) -> Result<Option<(Machine, Follower)>, Failure> {
    let missing =
        |what: &str| Failure::new(format!("--etcd needs {what}"), "see the last example of `cairn help serve`");
    let prefix = asked.prefix.as_deref().ok_or_else(|| missing("--prefix, the same on all machines of the group"))?;
    let log = asked.log.clone().ok_or_else(|| missing("--log, where this machine's replica of the log is kept"))?;
    let listen = asked.listen.as_deref().ok_or_else(|| missing("--listen, where the other machines reach this one"))?;
    if !asked.replica.is_empty() {
        return Err(Failure::new(
            "--replica and --etcd exclude each other",
            "leave --replica out: machines are found in etcd",
        ));
    }
    if asked.engine == Some(Engine::Heap) {
        return Err(Failure::new("stores of engine heap are on one machine", "leave --engine out"));
    }
    let ttl = Duration::from_secs(asked.lease.unwrap_or(LEASE));
    let machines = asked.machines.unwrap_or(MACHINES);
    let write_quorum = asked.write_quorum.unwrap_or(machines / 2 + 1);
    if !(1..=machines).contains(&write_quorum) {
        let what = format!("--write-quorum {write_quorum} of {machines} machines cannot be");
        return Err(Failure::new(what, format!("give one of 1 to {machines}; {} without", machines / 2 + 1)));
    }
    let mut trust = copies::known(&asked.known())?;
    // One that is reached, and hangs, must not keep a new leader from leading.
    trust.greeting_timeout = (ttl / 3).max(Duration::from_secs(1));
    trust.send_timeout = trust.greeting_timeout;
    let stopped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stopped);
    ctrlc::set_handler(move || told.store(true, Release))
        .map_err(|error| Failure::new(format!("signals cannot be waited for: {error}"), "see `cairn help serve`"))?;
    let Some(members) = connect(asked, prefix, ttl, &stopped)? else { return Ok(None) };

    let store = opening::shown(options(asked));
    let follower =
        Follower::serve_holding(&store, path, &log, listen, &trust).map_err(|error| refused(path, listen, &error))?;
    let at = asked.announce.clone().unwrap_or_else(|| follower.address());
    if is_nowhere(&at) {
        return Err(Failure::new(
            format!("{at} is no address where other machines reach this one"),
            "give the one that they do with --announce",
        ));
    }
    let me = Member::new(asked.name.clone().unwrap_or_else(|| at.replace('/', "-")), at);
    let me = asked.announce_redis.iter().fold(me, |me, address| me.serving(address));
    let name = prefix.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let log_options = super::log_options(asked);
    let path = path.to_owned();
    let machine = Machine {
        path,
        log,
        trust,
        members,
        me,
        ttl,
        name,
        store,
        log_options,
        machines,
        write_quorum,
        config,
        stopped,
    };
    Ok(Some((machine, follower)))
}

/// Why this machine cannot follow.
fn refused(path: &Path, listen: &str, error: &kv::Error) -> Failure {
    let message = error.to_string();
    if message.contains("cannot listen") {
        return Failure::new(
            message,
            format!("end the process that has {listen}, or give another address with --listen"),
        );
    }
    Failure::kv(path, error)
}

/// As soon as etcd answers: all machines may have been started at once. None if it is to stop before.
fn connect(asked: &Asked, prefix: &str, ttl: Duration, stopped: &AtomicBool) -> Result<Option<Members>, Failure> {
    let etcd = copies::access(&asked.etcd, &asked.access())?;
    let timeout = (ttl / 3).max(Duration::from_secs(1));
    let members = Members::prepare(&etcd, prefix, timeout).map_err(|error| Failure::membership(&error))?;
    let (began, late, mut said) = (now(), Cell::new(false), String::new());
    loop {
        // With a long lease the first attempt is long, and an operator would see nothing.
        let is_over = || {
            if !late.get() && began.elapsed() > LATE {
                late.set(true);
                note!("cairn: waiting for etcd at {}", asked.etcd.join(", "));
            }
            stopped.load(Acquire)
        };
        match members.reach(is_over) {
            Ok(true) => return Ok(Some(members)),
            Ok(false) => return Ok(None),
            Err(_) if stopped.load(Acquire) => return Ok(None),
            Err(error @ membership::Error::Unreachable { .. }) => {
                let why = error.to_string();
                if why != said {
                    note!("cairn: waiting: {why}");
                }
                said = why;
            }
            Err(error) => return Err(Failure::membership(&error)),
        }
    }
}

// ---- taking over ----------------------------------------------------------------------------------------------------

/// Leads, or follows on if that cannot be.
fn take_over(
    machine: &Machine,
    follower: Follower,
    leadership: Leadership,
    notice: &mut Option<Notice>,
) -> Result<Next, Failure> {
    let own = follower.status().log.is_some_and(|status| status.quorum.is_some());
    let looked = machine.others().and_then(|others| Ok((log_of(machine, own, &others)?, others)));
    let (found, others) = match looked {
        Ok(looked) => looked,
        Err(error) => return Ok(step_back(machine, follower, leadership, &error.to_string())),
    };
    let replicas = machine.replicas(&others, &leadership)?;
    if let Log::Unknown(why) = &found {
        return Ok(step_back(machine, follower, leadership, &no_log(why)));
    }
    if let Some(why) = leadership.reason() {
        return Ok(step_back(machine, follower, leadership, &why));
    }
    let address = follower.address();
    let led = match found {
        Log::ToBeMade => follower.found(&replicas, &machine.log_options),
        _ => follower.promote(&replicas, &machine.log_options),
    };
    let store = match led {
        Ok(store) => store,
        Err(not) => {
            let why = not.error.to_string();
            let follower = not.follow().map_err(|error| machine.failure(&error))?;
            return Ok(step_back(machine, follower, leadership, &why));
        }
    };
    let id = store.leader_status().map_err(|error| machine.failure(&error))?.log;
    // No client is served before it is certain that this is the group's log.
    let own = format!("{id:x}");
    let declared = machine.members.declare(MADE, &own);
    let is_certain = declared.and_then(|first| Ok(first || machine.members.declared(MADE)? == Some(own)));
    if !matches!(is_certain, Ok(true)) {
        drop(store);
        resign(leadership);
        if let Err(error) = is_certain {
            note!("cairn: {error}");
        }
        machine.check_log(id)?;
        return follow_again(machine, &address);
    }
    if leading::lead(machine, store, leadership, &address, notice)? {
        follow_again(machine, &address)
    } else {
        Ok(Next::Stop)
    }
}

/// Another one may be able to lead.
fn step_back(machine: &Machine, follower: Follower, leadership: Leadership, why: &str) -> Next {
    note!("cairn: elected, and cannot lead: {why}");
    // The leader before may have left the leadership to this machine.
    if let Err(error) = machine.members.expect_any(&machine.me.name) {
        note!("cairn: {error}");
    }
    resign(leadership);
    // Another machine that stands is elected meanwhile.
    std::thread::sleep(machine.ttl / 4);
    Next::Follow(follower)
}

fn follow_again(machine: &Machine, address: &str) -> Result<Next, Failure> {
    let follower = Follower::serve_holding(&machine.store, &machine.path, &machine.log, address, &machine.trust);
    follower.map(Next::Follow).map_err(|error| machine.failure(&error))
}
