//! `cairn log join` and `cairn log remove`: which replicas a log on several machines has.

use std::process::ExitCode;
use std::time::Duration;

use ::log::{Log, Options, ReplicaHealth, look};
use serde::Serialize;

use super::super::{Outcome, copies, print_json};
use crate::args::{JoinCopy, RemoveCopy};
use crate::failure::Failure;
use crate::output::say;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct ChangeJson {
    /// The replica that joined, or is dropped.
    id: String,
    /// False if it had the whole log before.
    changed: bool,
    epoch: u32,
    next: u64,
    /// All that the log has now, and on how many each record is.
    copies: Vec<String>,
    write_quorum: u32,
}

impl ChangeJson {
    fn of(log: &Log, id: u64, changed: bool) -> Self {
        let (ids, write_quorum) = log.members();
        let (stats, hex) = (log.stats(), |id: u64| format!("{id:x}"));
        let copies = ids.into_iter().map(hex).collect();
        Self { id: hex(id), changed, epoch: stats.epoch, next: stats.next.get(), copies, write_quorum }
    }

    fn print(&self, json: bool, what: &str) -> Result<(), Failure> {
        if json {
            return print_json(self);
        }
        say!("replica  {} {what}", self.id)?;
        say!("records  before {}, epoch {}", self.next, self.epoch)?;
        say!(
            "quorum   each record on {} of {} replicas: {}",
            self.write_quorum,
            self.copies.len(),
            self.copies.join(", ")
        )?;
        Ok(())
    }
}

fn is_live(log: &Log, id: u64) -> bool {
    log.replicas().iter().any(|(live, state, _)| *live == id && *state == ReplicaHealth::Live)
}

pub fn join(args: &JoinCopy) -> Outcome {
    let trust = copies::trust(&args.copies.trust)?;
    let timeout = Duration::from_millis(args.copies.trust.connect_within);
    let ask = || look(&args.address, &trust, timeout);
    let unreached = |error: ::log::Error| {
        let next = "see whether `cairn log-replica` serves it there, and with the same secret";
        Failure::new(format!("{}: {error}", args.address), next)
    };
    ask().map_err(unreached)?; // before a leader is shut out for nothing
    let leader = copies::lead(args.path.as_deref(), &args.copies, &Options::new().idle(None))?;
    let done = (|| {
        let before = ask().map_err(unreached)?.filter(|status| is_live(&leader.log, status.id));
        if let Some(status) = &before {
            return Ok(ChangeJson::of(&leader.log, status.id, false));
        }
        leader.log.join(&args.address, &trust).map_err(|error| leader.failure(&error))?;
        let joined = ask().map_err(unreached)?;
        Ok(ChangeJson::of(&leader.log, joined.map_or(0, |status| status.id), true))
    })();
    end(leader, done, args.json, |change| {
        if change.changed { "joined: it has all of it" } else { "has all of it: it was one of the replicas" }
    })
}

pub fn remove(args: &RemoveCopy) -> Outcome {
    let leader = copies::lead(args.path.as_deref(), &args.copies, &Options::new().idle(None))?;
    let done = (|| {
        let (ids, quorum) = leader.log.members();
        if !ids.contains(&args.id) {
            let ids: Vec<String> = ids.iter().map(|id| format!("{id:x}")).collect();
            let what = format!("{}: no replica {:x} of this log", leader.place.display(), args.id);
            return Err(Failure::new(what, format!("its replicas are {}", ids.join(", "))));
        }
        if ids.len() <= quorum as usize {
            let what = format!("{}: each record is on all {quorum} replicas", leader.place.display());
            return Err(Failure::new(what, "take another one in first, with `cairn log join`"));
        }
        leader.log.remove(args.id).map_err(|error| leader.failure(&error))?;
        Ok(ChangeJson::of(&leader.log, args.id, true))
    })();
    end(leader, done, args.json, |_| "is none of the replicas any more")
}

fn end(
    leader: copies::Leader,
    done: Result<ChangeJson, Failure>,
    json: bool,
    what: impl Fn(&ChangeJson) -> &'static str,
) -> Outcome {
    match done {
        Ok(change) => {
            leader.close()?;
            change.print(json, what(&change))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            leader.leave();
            Err(failure)
        }
    }
}
