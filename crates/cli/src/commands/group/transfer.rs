//! `cairn group transfer`: the leader leaves the leadership to another machine.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use super::super::{Outcome, print_json};
use super::{Group, now};
use crate::args::{GroupAt, TransferGroup};
use crate::failure::Failure;
use crate::output::say;

/// For how long it is waited, at least, until the other machine leads.
const LEADS: Duration = Duration::from_secs(10);

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct TransferJson {
    /// Name and address of the machine that leads.
    leader: String,
    address: String,
    /// False if it led before.
    changed: bool,
    /// Milliseconds from the request until it answered as the leader.
    ms: u64,
}

pub fn run(args: &TransferGroup) -> Outcome {
    let group = Group::find(&args.at)?;
    let is_it = |name: &str, address: &str| name == args.to || address == args.to;
    let Some(to) = group.machines.iter().find(|machine| is_it(&machine.name, &machine.address)) else {
        let announced: Vec<&str> = group.machines.iter().map(|machine| machine.name.as_str()).collect();
        return Err(Failure::new(
            format!("no machine {} is announced below {}", args.to, args.at.prefix.trim_end_matches('/')),
            format!("start `cairn serve` there, with this --etcd and --prefix; announced are {}", announced.join(", ")),
        ));
    };
    if to.name == group.leader.name {
        return end(args, &group, false, 0);
    }
    let began = now();
    kv::ask_to_transfer(&group.leader.address, &group.trust, &to.address).map_err(|error| group.refused(&error))?;
    let at = GroupAt { wait: 0, ..args.at.clone() };
    let end_at = began + LEADS.max(Duration::from_secs(args.at.wait));
    loop {
        let found = Group::find(&at);
        let late = now() >= end_at;
        match found {
            Ok(found) if found.leader.name == to.name => {
                return end(args, &found, true, began.elapsed().as_millis() as u64);
            }
            Ok(found) if late => {
                return Err(Failure::new(
                    format!(
                        "{} has left the leadership to {}, and {} leads",
                        group.leader.name, to.name, found.leader.name
                    ),
                    format!(
                        "see what `cairn serve` says on {} on its standard error; `cairn group status` shows how far it is",
                        to.name
                    ),
                ));
            }
            Err(failure) if late => {
                return Err(failure.after(&format!("{} has left the leadership to {}", group.leader.name, to.name)));
            }
            _ => std::thread::sleep(super::LOOK / 4),
        }
    }
}

fn end(args: &TransferGroup, group: &Group, changed: bool, ms: u64) -> Outcome {
    let (leader, address) = (group.leader.name.clone(), group.leader.address.clone());
    if args.json {
        print_json(&TransferJson { leader, address, changed, ms })?;
    } else {
        let how =
            if changed { format!("leads, {ms} ms after it was asked for") } else { "leads: it did before".to_owned() };
        say!("leader   {leader} at {address} {how}")?;
    }
    Ok(ExitCode::SUCCESS)
}
