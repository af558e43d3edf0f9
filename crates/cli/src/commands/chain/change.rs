//! `cairn chain join` and `cairn chain remove`.

use std::process::ExitCode;
use std::time::Duration;

use chain::process::Chain;
use serde::Serialize;

use super::super::{Outcome, print_json};
use super::{failure, find};
use crate::args::{JoinChain, RemoveFromChain};
use crate::output::{note, say};

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct ChangeJson {
    machine: u32,
    /// False if it was so before.
    changed: bool,
    /// In their order, head first.
    members: Vec<u32>,
    failures_wanted: u32,
}

pub fn join(args: &JoinChain) -> Outcome {
    let chain = find(&args.at)?;
    let mut told = None;
    let changed = chain
        .join(args.machine, args.instead_of, Duration::from_secs(args.wait), &mut |report| {
            if told.replace(report.stage) != Some(report.stage) {
                note!("cairn: machine {} is {}", args.machine, format!("{:?}", report.stage).to_lowercase());
            }
        })
        .map_err(|error| failure(&error))?;
    end(
        &chain,
        args.machine,
        changed,
        args.json,
        if changed { "is a member, and has everything" } else { "was a member before" },
    )
}

pub fn remove(args: &RemoveFromChain) -> Outcome {
    let chain = find(&args.at)?;
    let changed = chain.remove(args.machine, Duration::from_secs(args.wait)).map_err(|error| failure(&error))?;
    end(&chain, args.machine, changed, args.json, if changed { "is out" } else { "was out before" })
}

fn end(chain: &Chain, machine: u32, changed: bool, json: bool, what: &str) -> Outcome {
    let look = chain.look().map_err(|error| failure(&error).after(&format!("machine {machine} {what}")))?;
    let members: Vec<u32> = look.view.members.iter().map(|id| id.machine).collect();
    if json {
        print_json(&ChangeJson { machine, changed, members, failures_wanted: look.view.f })?;
    } else {
        let members: Vec<String> = members.iter().map(u32::to_string).collect();
        say!("machine {machine} {what}; members are {}, head first", members.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}
