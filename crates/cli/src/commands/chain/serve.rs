//! `cairn chain serve`.

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use chain::Sizes;
use chain::process::{self, Options, Process};
use chainmap::{Service, Settings};

use super::super::serve::{is_nowhere, password};
use super::super::{Outcome, copies};
use super::failure;
use crate::args::ServeChain;
use crate::failure::{Failure, Tame};
use crate::output::note;

/// Between two looks at how it is.
const LOOK: Duration = Duration::from_millis(50);
/// Of heap and queue: the map itself takes some, and a value an eighth of the queue at most.
const SIZE_MIN: u64 = 1 << 20;
/// Between two attempts to reach etcd.
const AGAIN: Duration = Duration::from_millis(300);

pub fn run(args: &ServeChain) -> Outcome {
    let settings = settings(args)?;
    let listener = TcpListener::bind(args.clients).map_err(|error| {
        Failure::new(format!("{}: cannot be listened at: {error}", args.clients), "give another address with --clients")
    })?;
    let stop = stop_at_signals()?;
    let options = options(args, &listener)?;
    let Some(process) = start(args, &options, &stop)? else { return Ok(ExitCode::SUCCESS) };
    note!("cairn: machine {} at {}", args.machine, process.address());
    let service = Service::start(process, listener, settings).map_err(|error| {
        Failure::new(
            format!("{}: cannot be served at: {error}", args.clients),
            "raise the limits of this process (ulimit -u)",
        )
    })?;
    note!("cairn: clients at {}", service.address());
    let outcome = watch(args, &service, &stop);
    note!("cairn: stopping");
    drop(service);
    outcome?;
    note!("cairn: stopped; the others go on");
    Ok(ExitCode::SUCCESS)
}

pub(super) fn stop_at_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    ctrlc::set_handler(move || told.store(true, Release))
        .map_err(|error| Failure::new(format!("signals cannot be waited for: {error}"), "see `cairn help chain`"))?;
    Ok(stop)
}

fn settings(args: &ServeChain) -> Result<Settings, Failure> {
    if args.size < SIZE_MIN || args.queue < SIZE_MIN {
        let what = format!("a heap of {} bytes and a queue of {} are too small for a map", args.size, args.queue);
        return Err(Failure::new(what, "give --size and --queue a megabyte (1M) at least"));
    }
    let password = args.password_file.as_deref().map(password).transpose()?;
    if password.is_none() && !args.open && !args.clients.ip().is_loopback() {
        let what = format!("{}: other machines reach this address, and no password is asked for", args.clients);
        return Err(Failure::new(what, "give --password-file, or --open if all that reach it are trusted"));
    }
    let seed = random()?;
    Ok(Settings { password, seed, early: args.plant_early })
}

#[expect(clippy::disallowed_methods, reason = "of a new map: nobody is to know it")]
fn random() -> Result<u64, Failure> {
    getrandom::u64()
        .map_err(|error| Failure::new(format!("no random number: {error}"), "see whether /dev/urandom is there"))
}

fn options(args: &ServeChain, listener: &TcpListener) -> Result<Options, Failure> {
    let clients = match (&args.announce_clients, listener.local_addr()) {
        (Some(given), _) => given.clone(),
        (None, Ok(address)) => address.to_string(),
        (None, Err(error)) => {
            return Err(Failure::new(format!("{}: {error}", args.clients), "give another address with --clients"));
        }
    };
    if is_nowhere(&clients) {
        let next = "give the one that they do with --announce-clients";
        return Err(Failure::new(format!("{clients} is no address where clients reach this machine"), next));
    }
    if args.announce.is_none() && is_nowhere(&args.listen) {
        let next = "give the one that they do with --announce";
        return Err(Failure::new(format!("{} is no address where other machines reach this one", args.listen), next));
    }
    let ttl = Duration::from_secs(args.ttl);
    let etcd = copies::access(&args.at.etcd, &args.at.access)?;
    let options = Options::new(args.machine, &args.listen, etcd, &args.at.prefix)
        .fabric(copies::trust(&args.at.trust)?)
        .serves(&clients)
        .ttl(ttl)
        .timeout(Duration::from_secs(args.commit_within))
        .sizes(Sizes { capacity: args.size, queue: args.queue })
        .first_members(&args.first_members);
    let options = args.f.map_or(options.clone(), |f| options.failures(f));
    let options = if args.new_file { options.new_file() } else { options };
    Ok(match &args.announce {
        Some(address) => options.announce(address),
        None => options,
    })
}

/// As soon as etcd answers: all machines may have been started at once. None: it is to stop before.
fn start(args: &ServeChain, options: &Options, stop: &AtomicBool) -> Result<Option<Process>, Failure> {
    let mut said = false;
    while !stop.load(Acquire) {
        match Process::start(&args.path, options) {
            Ok(process) => return Ok(Some(process)),
            Err(process::Failure::Membership(error @ membership::Error::Unreachable { .. })) => {
                if !said {
                    note!("cairn: waiting: {error}");
                }
                said = true;
                std::thread::sleep(AGAIN);
            }
            Err(process::Failure::Replica(chain::Error::Pool(error))) => return Err(Failure::pool(&args.path, &error)),
            Err(error) => return Err(failure(&error)),
        }
    }
    Ok(None)
}

/// Tells what has changed, until it is to stop.
fn watch(args: &ServeChain, service: &Service<Process>, stop: &AtomicBool) -> Result<(), Failure> {
    let mut told = String::new();
    while !stop.load(Acquire) {
        service.member().check().map_err(|error| failure(&error))?;
        let is = describe(args, service.member());
        if is != told {
            note!("cairn: {}", Tame(&is));
            told = is;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn describe(args: &ServeChain, process: &Process) -> String {
    let status = process.node().status();
    let members = |view: &chain::View| -> String {
        let members: Vec<String> = view.members.iter().map(|id| id.machine.to_string()).collect();
        format!("members {}", members.join(", "))
    };
    match &status.view {
        Some(view) if status.is_head() && status.has_lease => format!("leads, {}", members(view)),
        Some(view) if status.is_head() => format!("is to lead and has no lease yet, {}", members(view)),
        Some(view) if status.is_tail() && status.reads => format!("is the tail and answers reads, {}", members(view)),
        Some(view) => format!("is a member, {}", members(view)),
        None if process.is_removed() => {
            let machine = args.machine;
            format!("was taken out of the chain, and waits: `cairn chain join {machine}` takes it in again")
        }
        None => match process.view() {
            Some(view) if !view.has_room() && !view.members.iter().any(|id| id.machine == args.machine) => format!(
                "is no member, and waits: the chain has its {} ({}); `cairn chain join {}` takes it in",
                view.members.len(),
                members(&view),
                args.machine
            ),
            _ => format!("joins: {}", format!("{:?}", status.stage).to_lowercase()),
        },
    }
}
