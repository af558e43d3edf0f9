//! `cairn chain`: a map on a chain of machines.

mod change;
mod demo;
mod serve;
mod status;

use std::time::Duration;

use chain::process::{self, Chain};

use super::{Outcome, copies};
use crate::args::{self, ChainAt};
use crate::failure::Failure;

pub fn run(action: &args::Chain) -> Outcome {
    match action {
        args::Chain::Serve(args) => serve::run(args),
        args::Chain::Status(args) => status::run(args),
        args::Chain::Join(args) => change::join(args),
        args::Chain::Remove(args) => change::remove(args),
        args::Chain::Demo(args) => demo::run(args),
    }
}

fn find(at: &ChainAt) -> Result<Chain, Failure> {
    let trust = copies::trust(&at.trust)?;
    let most = Duration::from_millis(at.trust.connect_within);
    let etcd = copies::access(&at.etcd, &at.access)?;
    Chain::find(etcd, &at.prefix, trust, most).map_err(|error| failure(&error))
}

fn failure(error: &process::Failure) -> Failure {
    match error {
        process::Failure::Membership(error @ membership::Error::Argument { .. }) => {
            Failure::new(error.to_string(), "see `cairn help chain`")
        }
        process::Failure::Membership(error) => Failure::membership(error),
        process::Failure::Replica(chain::Error::Pool(error)) => pool(error),
        other => {
            let message = other.to_string();
            let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "see `cairn help chain`"));
            Failure::new(what, next)
        }
    }
}

fn pool(error: &pmem::Error) -> Failure {
    let message = error.to_string();
    let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "check the path and the file system"));
    let failure = Failure::new(what, next);
    if crate::failure::is_damage(error) { failure.damaged() } else { failure }
}
