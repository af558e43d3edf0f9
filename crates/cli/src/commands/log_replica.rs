//! `cairn log-replica`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use ::log::Replica;
use membership::{Announcement, Member};

use super::{Outcome, copies};
use crate::args::LogReplica;
use crate::failure::Failure;
use crate::output::{note, say};

/// Between two looks at how everything is going.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub fn run(args: &LogReplica) -> Outcome {
    let failed = |error: ::log::Error| Failure::log(&args.path, &error);
    let trust = copies::trust(&args.trust)?;
    let mut pool = pmem::Options::new().domain(args.media.domain);
    if let Some(latency) = args.media.nvm_latency {
        pool = pool.latency(latency);
    }
    let stopped = signals()?;
    let replica = Replica::serve_with(&pool, &args.path, &args.listen, trust).map_err(failed)?;
    let address = replica.address().map_err(failed)?;
    let announcement = announce(args, address)?;
    say!("{address}")?;
    let what = replica.status().map_or_else(|| "new".to_owned(), |status| format!("of log {:x}", status.log));
    note!("cairn: serving {}, {what}, at {address}", args.path.display());

    let outcome = wait(&replica, announcement.as_ref(), &stopped, failed);
    drop(announcement); // no program is to look for it here any more
    outcome?;
    note!("cairn: stopping");
    replica.stop().map_err(failed)?;
    note!("cairn: stopped, the replica is closed");
    Ok(ExitCode::SUCCESS)
}

pub(super) fn signals() -> Result<Receiver<()>, Failure> {
    let (send, receive) = mpsc::channel();
    ctrlc::set_handler(move || send.send(()).unwrap_or(())).map_err(|error| {
        Failure::new(format!("signals cannot be waited for: {error}"), "see `cairn help log-replica`")
    })?;
    Ok(receive)
}

fn announce(args: &LogReplica, address: SocketAddr) -> Result<Option<Announcement>, Failure> {
    let Some(members) = copies::members(&args.etcd)? else { return Ok(None) };
    let at = match &args.announce {
        Some(at) => at.clone(),
        None if address.ip().is_unspecified() => {
            let what = format!("{address} is no address where others reach this replica");
            return Err(Failure::new(what, "give the one that they do with --announce"));
        }
        None => address.to_string(),
    };
    let name = args.etcd.name.clone().unwrap_or_else(|| at.clone());
    let announced = members.announce(&Member::new(name, at), args.etcd.ttl());
    announced.map(Some).map_err(|error| Failure::membership(&error))
}

/// Until a signal comes, or something fails that cannot be made good.
fn wait(
    replica: &Replica,
    announcement: Option<&Announcement>,
    stopped: &Receiver<()>,
    failed: impl Fn(::log::Error) -> Failure,
) -> Result<(), Failure> {
    let mut is_announced = true;
    while stopped.try_recv().is_err() {
        replica.wait(POLL_INTERVAL).map_err(&failed)?;
        match announcement.map_or(Ok(()), Announcement::check) {
            Ok(()) => {
                if !is_announced {
                    note!("cairn: announced again");
                }
                is_announced = true;
            }
            Err(error @ membership::Error::Replaced { .. }) => return Err(Failure::membership(&error)),
            Err(error) => {
                // Leaders that know the address still come.
                if is_announced {
                    note!("cairn: not announced any more: {error}");
                }
                is_announced = false;
            }
        }
    }
    Ok(())
}
