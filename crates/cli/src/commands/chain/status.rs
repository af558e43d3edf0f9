//! `cairn chain status`.

use std::process::ExitCode;

use chain::process::{Look, Outlook, Seen};
use serde::Serialize;

use super::super::{Outcome, print_json};
use super::{failure, find};
use crate::args::StatusOfChain;
use crate::failure::{Failure, Tame};
use crate::output::say;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct ChainJson {
    view: u64,
    mode: &'static str,
    /// Failures that are to be survived, and that would be now.
    failures_wanted: u32,
    failures_survived: usize,
    head: Option<u32>,
    tail: Option<u32>,
    /// In their order.
    members: Vec<MachineJson>,
    /// Announced, and no members.
    others: Vec<MachineJson>,
    /// They do not join by themselves.
    removed: Vec<u32>,
}

#[derive(Serialize)]
struct MachineJson {
    machine: u32,
    address: Option<String>,
    clients: Option<String>,
    /// What it is doing; none if it does not answer.
    stage: Option<String>,
    executed: Option<u64>,
    acknowledged: Option<u64>,
    has_lease: Option<bool>,
    /// It answers what only reads: the head, and the tail, unless another machine could contradict it.
    answers_reads: Option<bool>,
    /// The machine that joins behind it.
    joiner: Option<u32>,
    /// Why it does not answer, or does nothing any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// If it went now: unchanged, go-on, go-on-elsewhere, stop.
    loss: &'static str,
}

pub fn run(args: &StatusOfChain) -> Outcome {
    let look = find(&args.at)?.look().map_err(|error| failure(&error))?;
    if args.json {
        print_json(&to_json(&look))?
    } else {
        print(&args.at.prefix, &look)?
    }
    let serving = look.serving().filter(|seen| seen.report.as_ref().is_ok_and(|report| report.has_lease)).count();
    let is_well = serving == look.view.members.len() && serving > look.view.f as usize;
    Ok(ExitCode::from(u8::from(!is_well)))
}

// ---- for people -----------------------------------------------------------------------------------------------------

fn print(prefix: &str, look: &Look) -> Result<(), Failure> {
    let view = &look.view;
    say!(
        "chain    {}, view {}, by values: {} failures are to be survived, {} would be now",
        Tame(prefix),
        view.id.0,
        view.f,
        look.serving().count().saturating_sub(1)
    )?;
    let (members, others) = look.machines.split_at(view.members.len());
    for (at, seen) in members.iter().enumerate() {
        let place = match at {
            0 => "head",
            _ if at + 1 == members.len() => "tail",
            _ => "member",
        };
        say!("{place:<8} {}", Tame(&format!("machine {}{}: {}", seen.machine, place_of(seen), what(seen))))?;
    }
    for seen in others.iter().filter(|seen| !look.removed.contains(&seen.machine)) {
        let waits = if view.has_room() { "joins" } else { "waits" };
        let next =
            if view.has_room() { String::new() } else { format!("; `cairn chain join {}` takes it in", seen.machine) };
        say!("{waits:<8} {}", Tame(&format!("machine {}{}: {}{next}", seen.machine, place_of(seen), what(seen))))?;
    }
    for machine in &look.removed {
        say!("removed  machine {machine}: `cairn chain join {machine}` takes it in again")?;
    }
    say!("reads    {}", where_reads_are_answered(members))?;
    for seen in members {
        say!("loss     of machine {}: {}", seen.machine, describe(look.outlook(seen.machine)))?;
    }
    Ok(())
}

fn where_reads_are_answered(members: &[Seen]) -> String {
    let answers = |seen: &&Seen| seen.report.as_ref().is_ok_and(|report| report.reads);
    let machines: Vec<String> =
        members.iter().filter(answers).map(|seen| format!("machine {}", seen.machine)).collect();
    if machines.is_empty() {
        return "are answered by no machine now: see whether the members hold their leases".to_owned();
    }
    format!("are answered by {}", machines.join(" and "))
}

fn place_of(seen: &Seen) -> String {
    let clients = seen.serves.as_deref().map_or_else(String::new, |at| format!(", clients at {at}"));
    seen.address.as_deref().map_or_else(|| ", not announced".to_owned(), |at| format!(" at {at}{clients}"))
}

fn what(seen: &Seen) -> String {
    let report = match &seen.report {
        Ok(report) => report,
        Err(why) => return format!("does not answer: {why}"),
    };
    if let Some(why) = &report.stopped {
        return format!("has stopped: {why}");
    }
    if !report.serves() {
        return format!("{:?}", report.stage).to_lowercase();
    }
    let joiner = report.joiner.map_or_else(String::new, |joiner| format!("; machine {joiner} joins behind it"));
    let lease = if !report.has_lease { ", without a lease" } else { "" };
    let stage = format!("{:?}", report.stage).to_lowercase();
    format!(
        "{stage}{lease}, transactions through {} executed, through {} acknowledged{joiner}",
        report.executed, report.acknowledged
    )
}

fn describe(outlook: Outlook) -> String {
    let more = |more: usize| match more {
        0 => "and no further one may be lost".to_owned(),
        1 => "and 1 more may be lost".to_owned(),
        more => format!("and {more} more may be lost"),
    };
    match outlook {
        Outlook::Unchanged => "nothing changes".to_owned(),
        Outlook::GoesOn { leads: Some(leads), more: left } => {
            format!("nothing acknowledged is lost; machine {leads} leads when its lease has ended, {}", more(left))
        }
        Outlook::GoesOn { leads: None, more: left } => {
            format!("nothing acknowledged is lost; changes go on when its lease has ended, {}", more(left))
        }
        Outlook::Stops => {
            "the chain stands still until it, or another member, is back; no other member that serves has the data"
                .to_owned()
        }
    }
}

// ---- for programs ---------------------------------------------------------------------------------------------------

fn to_json(look: &Look) -> ChainJson {
    let (members, others) = look.machines.split_at(look.view.members.len());
    let machine = |seen: &Seen| {
        let report = seen.report.as_ref().ok();
        MachineJson {
            machine: seen.machine,
            address: seen.address.clone(),
            clients: seen.serves.clone(),
            stage: report.map(|report| format!("{:?}", report.stage).to_lowercase()),
            executed: report.map(|report| report.executed),
            acknowledged: report.map(|report| report.acknowledged),
            has_lease: report.map(|report| report.has_lease),
            answers_reads: report.map(|report| report.reads),
            joiner: report.and_then(|report| report.joiner),
            why: seen.report.as_ref().err().cloned().or_else(|| report.and_then(|report| report.stopped.clone())),
            loss: match look.outlook(seen.machine) {
                Outlook::Unchanged => "unchanged",
                Outlook::GoesOn { leads: None, .. } => "go-on",
                Outlook::GoesOn { leads: Some(_), .. } => "go-on-elsewhere",
                Outlook::Stops => "stop",
            },
        }
    };
    ChainJson {
        view: look.view.id.0,
        mode: "values",
        failures_wanted: look.view.f,
        failures_survived: look.serving().count().saturating_sub(1),
        head: look.view.head().map(|id| id.machine),
        tail: look.view.tail().map(|id| id.machine),
        members: members.iter().map(machine).collect(),
        others: others.iter().map(machine).collect(),
        removed: look.removed.clone(),
    }
}
