//! `cairn group join` and `cairn group remove`: the leader does it, and goes on serving.

use std::process::ExitCode;

use ::log::{ReplicaStatus, look};
use serde::Serialize;

use super::super::{Outcome, print_json};
use super::{Group, hex};
use crate::args::{JoinGroup, RemoveFromGroup};
use crate::failure::Failure;
use crate::output::{note, say};

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct ChangeJson {
    /// The replica that joined, or is dropped.
    id: String,
    /// False if it took part before.
    changed: bool,
    /// All that count now, and on how many each record is.
    copies: Vec<String>,
    write_quorum: u32,
}

pub fn join(args: &JoinGroup) -> Outcome {
    let mut group = Group::find(&args.at)?;
    if args.address == group.leader.address {
        let next =
            "give the address of the machine that is to join; `cairn group status` shows those that are announced";
        return Err(Failure::new(format!("{} is the leader, {}", args.address, group.leader.name), next));
    }
    if group.machines.iter().all(|machine| machine.address != args.address) {
        let announced: Vec<&str> = group.machines.iter().map(|machine| machine.address.as_str()).collect();
        return Err(Failure::new(
            format!("no machine is announced at {} below {}", args.address, args.at.prefix.trim_end_matches('/')),
            format!("start `cairn serve` there, with this --etcd and --prefix; announced are {}", announced.join(", ")),
        ));
    }
    let found = look_at(&group, args)?;
    if let Some(status) = found.as_ref().filter(|status| status.log != group.status.log) {
        let what = format!("{}: its replica is of log {:x}, not of {:x}", args.address, status.log, group.status.log);
        return Err(Failure::new(what, "stop `cairn serve` there, delete its log and store, and start it again"));
    }
    let is_live = |group: &Group, id| group.status.copies.iter().any(|copy| copy.id == id && copy.live);
    if let Some(status) = found.as_ref().filter(|status| is_live(&group, status.id)) {
        return end(&group, status.id, false, args.json, "takes part: it was one of the replicas");
    }
    let is_new = found.is_none_or(|status| !group.ids().contains(&status.id));
    if let Some(away) = group.status.copies.iter().find(|copy| is_new && !copy.live) {
        note!(
            "note: replica {:x} is away, and still counts; `cairn group remove {:x}` if it is lost for good",
            away.id,
            away.id
        );
    }
    kv::ask_to_join(&group.leader.address, &group.trust, &args.address).map_err(|error| group.refused(&error))?;
    let done = "the replica has joined";
    group.renew().map_err(|failure| failure.after(done))?;
    let joined = look_at(&group, args).map_err(|failure| failure.after(done))?;
    end(&group, joined.map_or(0, |status| status.id), true, args.json, "joined: it has the whole log")
}

/// What the replica says of itself that is to join.
fn look_at(group: &Group, args: &JoinGroup) -> Result<Option<ReplicaStatus>, Failure> {
    look(&args.address, &group.trust, group.timeout).map_err(|error| {
        let next = "see whether `cairn serve` runs there with the same --etcd and --prefix, and with the same secret";
        Failure::new(format!("{}: {error}", args.address), next)
    })
}

pub fn remove(args: &RemoveFromGroup) -> Outcome {
    let mut group = Group::find(&args.at)?;
    let (id, ids) = (args.id, group.ids());
    if !ids.contains(&id) {
        let ids: Vec<String> = ids.into_iter().map(hex).collect();
        return Err(Failure::new(
            format!("no replica {id:x} of the group's log"),
            format!("its replicas are {}", ids.join(", ")),
        ));
    }
    if id == group.status.own {
        let next = "stop `cairn serve` there: another machine leads then, and can do without it";
        return Err(Failure::new(format!("replica {id:x} is that of the leader, {}", group.leader.name), next));
    }
    if ids.len() <= group.status.write_quorum as usize {
        let what = format!("each record is on all {} replicas", ids.len());
        return Err(Failure::new(what, "take another one in first, with `cairn group join`"));
    }
    kv::ask_to_remove(&group.leader.address, &group.trust, id).map_err(|error| in_doubt(&mut group, id, &error))?;
    group.renew().map_err(|failure| failure.after("the replica is removed"))?;
    end(&group, id, true, args.json, "is none of the replicas any more")
}

/// A change that the leader could not complete may be done, now or by its successor.
fn in_doubt(group: &mut Group, id: u64, error: &kv::Error) -> Failure {
    let failure = group.refused(error);
    match group.renew() {
        Ok(()) if group.ids().contains(&id) => failure.after("the replica counts as before"),
        Ok(()) => failure.after("the replica is none of those that count any more, all the same"),
        Err(_) => failure.after("whether it was done, `cairn group status` says when there is a leader again"),
    }
}

fn end(group: &Group, id: u64, changed: bool, json: bool, what: &str) -> Outcome {
    let copies: Vec<String> = group.ids().into_iter().map(hex).collect();
    let write_quorum = group.status.write_quorum;
    if json {
        print_json(&ChangeJson { id: hex(id), changed, copies, write_quorum })?;
    } else {
        say!("replica  {id:x} {what}")?;
        say!("quorum   each record on {write_quorum} of {} replicas: {}", copies.len(), copies.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}
