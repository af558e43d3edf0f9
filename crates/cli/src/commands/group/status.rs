//! `cairn group status`.

use std::process::ExitCode;

use ::log::ReplicaStatus;
use kv::CopyStatus;
use membership::Member;
use serde::Serialize;

use super::super::log::look_at_all;
use super::super::{Outcome, print_json};
use super::outlook::{Outlook, Writes, outlook};
use super::{Group, hex};
use crate::args::StatusOfGroup;
use crate::failure::{Failure, Tame};
use crate::output::say;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct GroupJson {
    leader: MemberJson,
    log: String,
    commits: u64,
    next: u64,
    write_quorum: u32,
    /// Enough replicas are live.
    writes_go_on: bool,
    /// All that count.
    copies: Vec<CopyJson>,
    /// All that are announced.
    machines: Vec<MachineJson>,
}

#[derive(Serialize)]
struct MemberJson {
    name: String,
    address: String,
    redis: Option<String>,
}

#[derive(Serialize)]
struct CopyJson {
    id: String,
    /// Name and address of the machine that has it, if that is known.
    machine: Option<String>,
    address: Option<String>,
    leads: bool,
    live: bool,
    /// How many records it does not have; none if that is not known.
    behind: Option<u64>,
    /// The newest wire version that its machine speaks; none if that is not known.
    wire: Option<u32>,
    /// Why it is not live.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Serialize)]
struct MachineJson {
    #[serde(flatten)]
    member: MemberJson,
    leads: bool,
    /// The id of its replica, if that is one of those that count.
    copy: Option<String>,
    /// Why it has none, or why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// well, or one word for what keeps it from doing its part: full, behind, stopped; and why, as it says itself.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    /// If it went now: unchanged, go-on, go-on-elsewhere, stop.
    writes: &'static str,
    records_only_here: Option<u64>,
    records_on_too_few: u64,
}

/// An announced machine, and which replica it has.
struct Machine {
    member: Member,
    copy: Result<u64, String>,
    outlook: Outlook,
}

pub fn run(args: &StatusOfGroup) -> Outcome {
    let mut group = Group::find(&args.at)?;
    let machines = machines(&mut group);
    let is_well = group.status.copies.iter().all(|copy| copy.live)
        && machines.iter().all(|m| m.copy.is_ok() && m.member.trouble.is_none());
    if args.json {
        print_json(&to_json(&group, &machines))?
    } else {
        print(&group, &machines)?
    }
    Ok(ExitCode::from(u8::from(!is_well)))
}

/// Which machine has which replica: each says so itself, but for the leader, whose replica is not served.
fn machines(group: &mut Group) -> Vec<Machine> {
    let others: Vec<Member> =
        group.machines.iter().filter(|member| member.name != group.leader.name).cloned().collect();
    let addresses: Vec<String> = others.iter().map(|member| member.address.clone()).collect();
    let looked = look_at_all(&addresses, &group.trust, group.timeout);
    let own = Some(group.status.own).filter(|own| *own != 0);
    let named = group.machines.iter().find(|member| member.name == group.leader.name);
    let trouble = named.and_then(|member| member.trouble.clone());
    let leader =
        (Member { trouble, ..group.leader.clone() }, own.ok_or_else(|| "it has no replica that counts".to_owned()));
    let copies = others.into_iter().zip(&looked).map(|(member, found)| {
        let copy = copy_of(group, &member, found);
        (member, copy)
    });
    let all: Vec<_> = std::iter::once(leader).chain(copies).collect();
    doubt(group, &all);
    all.into_iter()
        .map(|(member, copy)| {
            let outlook = outlook(&group.status, copy.as_ref().ok().copied(), member.name == group.leader.name);
            Machine { member, copy, outlook }
        })
        .collect()
}

/// The leader gives a replica up when it waits for it. One that hangs may be live to it for long, while its machine's announcement has ended with its lease.
fn doubt(group: &mut Group, all: &[(Member, Result<u64, String>)]) {
    for copy in group.status.copies.iter_mut().filter(|copy| copy.live) {
        if !all.iter().any(|(_, id)| *id == Ok(copy.id)) {
            copy.live = false;
            copy.what = format!(
                "the leader has not given it up, but no machine announces it: that at {} may hang, or be cut off",
                copy.what
            );
        }
    }
}

/// The id of its replica, or why it has none that counts.
fn copy_of(group: &Group, member: &Member, found: &::log::Result<Option<ReplicaStatus>>) -> Result<u64, String> {
    let join = || format!("`cairn group join {}` takes it in", member.address);
    match found {
        Ok(Some(status)) if status.log == group.status.log && group.ids().contains(&status.id) => Ok(status.id),
        Ok(Some(status)) if status.log == group.status.log => {
            Err(format!("its replica {:x} does not count: {}", status.id, join()))
        }
        Ok(Some(status)) => {
            Err(format!("its replica is of another log, {:x}: stop it, and delete its log and store", status.log))
        }
        Ok(None) => Err(format!("its replica is new, and has no part in the log yet: {}", join())),
        Err(error) => {
            // What the leader is told by it counts.
            let live = group.status.copies.iter().find(|copy| copy.live && copy.what == member.address);
            let error = error.to_string();
            let why = error.split_once("; ").map_or(&*error, |(why, _)| why);
            live.map(|copy| copy.id).ok_or_else(|| format!("it does not answer: {why}"))
        }
    }
}

impl Machine {
    fn has(&self, id: u64) -> bool {
        self.copy == Ok(id)
    }
}

/// Records that it does not have. Of a replica that is not live this is unknown.
fn behind(group: &Group, copy: &CopyStatus) -> Option<u64> {
    copy.live.then(|| group.status.next.saturating_sub(copy.through + 1))
}

// ---- for people -----------------------------------------------------------------------------------------------------

fn print(group: &Group, machines: &[Machine]) -> Result<(), Failure> {
    let (status, leader) = (&group.status, &group.leader);
    let redis = leader.serves.as_deref().map_or_else(String::new, |at| format!(", clients at {at}"));
    say!("leader   {} at {}{redis}", leader.name, leader.address)?;
    let all = group.ids().len();
    say!(
        "log      {:x}, {} commits, each record on {} of {all} replicas",
        status.log,
        status.commits,
        status.write_quorum
    )?;
    if !group.writes_go_on() {
        say!("writes   none go on: too few replicas are live")?;
    }
    let place = |id| machines.iter().find(|machine| machine.has(id)).map(|machine| &machine.member);
    let line = |id: u64, what: &str| {
        let place = place(id)
            .map_or_else(|| "of no machine that answers".to_owned(), |m| format!("{} at {}", m.name, m.address));
        say!("replica  {id:x}  {place}: {}", Tame(what))
    };
    let speaks = |wire: Option<u32>| wire.map_or_else(String::new, |version| format!(", wire version {version}"));
    if status.own != 0 {
        line(status.own, &format!("live, leads{}", speaks(status.wire)))?;
    }
    for copy in &status.copies {
        match behind(group, copy) {
            Some(behind) => line(copy.id, &format!("live, {behind} records behind{}", speaks(copy.wire)))?,
            None => line(copy.id, &format!("away: {}", copy.what))?,
        }
    }
    for machine in machines {
        let what = match &machine.copy {
            Ok(_) => format!("if it went now: {}", machine.outlook.describe()),
            Err(why) if machine.outlook.writes == Writes::Unchanged => why.clone(),
            Err(why) => format!("{why}; if it went now: {}", machine.outlook.describe()),
        };
        let trouble = machine.member.trouble.as_ref().map_or_else(String::new, |trouble| format!("{trouble}; "));
        let what = trouble + &what;
        say!("machine  {}  {}", machine.member.name, Tame(&what))?;
    }
    Ok(())
}

// ---- for programs ---------------------------------------------------------------------------------------------------

fn to_json(group: &Group, machines: &[Machine]) -> GroupJson {
    let status = &group.status;
    let copy = |id: u64, live, behind, wire, why: Option<&str>| {
        let member = machines.iter().find(|machine| machine.has(id)).map(|machine| &machine.member);
        CopyJson {
            id: hex(id),
            machine: member.map(|member| member.name.clone()),
            address: member.map(|member| member.address.clone()),
            leads: id == status.own,
            live,
            behind,
            wire,
            why: why.map(str::to_owned),
        }
    };
    let own = (status.own != 0).then(|| copy(status.own, true, Some(0), status.wire, None));
    let others = status
        .copies
        .iter()
        .map(|it| copy(it.id, it.live, behind(group, it), it.wire, (!it.live).then_some(it.what.as_str())));
    GroupJson {
        leader: MemberJson::of(&group.leader),
        log: hex(status.log),
        commits: status.commits,
        next: status.next,
        write_quorum: status.write_quorum,
        writes_go_on: group.writes_go_on(),
        copies: own.into_iter().chain(others).collect(),
        machines: machines.iter().map(|machine| MachineJson::of(machine, &group.leader)).collect(),
    }
}

/// In one word.
fn state(member: &Member) -> &str {
    member.trouble.as_deref().map_or("well", |trouble| trouble.split_once(": ").map_or("trouble", |(word, _)| word))
}

impl MemberJson {
    fn of(member: &Member) -> Self {
        Self { name: member.name.clone(), address: member.address.clone(), redis: member.serves.clone() }
    }
}

impl MachineJson {
    fn of(machine: &Machine, leader: &Member) -> Self {
        let Outlook { writes, only_here, too_few } = machine.outlook;
        Self {
            member: MemberJson::of(&machine.member),
            leads: machine.member.name == leader.name,
            copy: machine.copy.as_ref().ok().map(|id| hex(*id)),
            why: machine.copy.as_ref().err().cloned(),
            state: state(&machine.member).to_owned(),
            trouble: machine.member.trouble.clone(),
            writes: match writes {
                Writes::Unchanged => "unchanged",
                Writes::GoOn => "go-on",
                Writes::GoOnElsewhere => "go-on-elsewhere",
                Writes::Stop { .. } => "stop",
            },
            records_only_here: only_here,
            records_on_too_few: too_few,
        }
    }
}
