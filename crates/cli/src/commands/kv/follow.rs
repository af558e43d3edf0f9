//! `cairn kv follow`, `promote` and `seed`: a store on several machines.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ::log::Replicas;
use kv::{Follower, Options};

use super::super::{Outcome, copies, log_replica};
use super::opening;
use crate::args::{Follow, PromoteStore, Seed, StoreCopies};
use crate::failure::Failure;
use crate::output::{note, say};

/// Between two looks at how everything is going.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub fn follow(args: &Follow) -> Outcome {
    let failed = |error: kv::Error| Failure::kv(&args.path, &error);
    let trust = copies::trust(&args.trust)?;
    let mut pool = pmem::Options::new().domain(args.media.domain);
    if let Some(latency) = args.media.nvm_latency {
        pool = pool.latency(latency);
    }
    let stopped = log_replica::signals()?;
    let options = opening::shown(Options::new().pool(pool));
    let follower = Follower::serve_with(&options, &args.path, &args.log, &args.listen, &trust).map_err(failed)?;
    say!("{}", follower.address())?;
    let commits = follower.status().commits;
    note!("cairn: following with {}, {commits} commits so far, at {}", args.path.display(), follower.address());

    while stopped.try_recv().is_err() {
        follower.wait(POLL_INTERVAL).map_err(failed)?;
    }
    note!("cairn: stopping");
    let commits = follower.status().commits;
    follower.stop().map_err(failed)?;
    note!("cairn: stopped with {commits} commits, store and replica are closed");
    Ok(ExitCode::SUCCESS)
}

pub fn promote(args: &PromoteStore) -> Outcome {
    let (path, failed) = (args.path.display(), |error: kv::Error| Failure::kv(&args.path, &error));
    let store = open(&args.path, &args.copies)?;
    let live = store.copies().iter().filter(|copy| copy.1 == ::log::ReplicaHealth::Live).count();
    let pairs = store.stats().entries;
    store.close().map_err(failed)?;
    say!(
        "{path}: leads, with {pairs} keys and everything that was acknowledged; {live} other replicas of its log have all of it, too"
    )?;
    Ok(ExitCode::SUCCESS)
}

pub fn seed(args: &Seed) -> Outcome {
    let failed = |error: kv::Error| Failure::kv(&args.path, &error);
    let store = open(&args.path, &args.copies)?;
    let made = store.seed(&args.to, |_| ()).map_err(failed)?;
    store.close().map_err(failed)?;
    say!("{}: {} keys; a follower can begin with it", args.to.display(), made.pairs)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the store as the one that leads.
fn open(path: &Path, named: &StoreCopies) -> Result<kv::Store, Failure> {
    let replicas = Replicas::new().trust(copies::trust(&named.trust)?);
    let replicas = named.replica.iter().fold(replicas, |replicas, address| replicas.at(address));
    let replicas = named.log.iter().fold(replicas, Replicas::local);
    let options = opening::shown(Options::new()).replicated(&replicas, &::log::Options::new());
    options.open_or_create(path).map_err(|error| Failure::kv(path, &error))
}
