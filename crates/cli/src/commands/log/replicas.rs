//! `cairn log replicas`: how the replicas of a log are doing, by their own account.

use std::process::ExitCode;
use std::time::Duration;

use ::log::{ReplicaStatus, fabric, look};
use serde::Serialize;

use super::super::{Outcome, copies, print_json};
use crate::args::ReplicasOfLog;
use crate::output::say;

/// A replica; field names are a contract.
#[derive(Serialize)]
struct CopyJson {
    address: String,
    /// Why nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    status: Option<StatusJson>,
}

#[derive(Serialize)]
struct StatusJson {
    id: String,
    log: String,
    epoch: u32,
    promised: u32,
    owner: String,
    head: u64,
    next: u64,
    /// No leader has repaired it since it was started: it may have more records.
    current: bool,
    /// The newest wire version that its program speaks.
    wire: u32,
    copies: Option<u32>,
    write_quorum: Option<u32>,
}

impl StatusJson {
    fn of(status: &ReplicaStatus) -> Self {
        let hex = |number: u64| format!("{number:x}");
        let (copies, write_quorum) = status.quorum.unzip();
        Self {
            id: hex(status.id),
            log: hex(status.log),
            epoch: status.epoch,
            promised: status.promised,
            owner: hex(status.owner),
            head: status.head.get(),
            next: status.next.get(),
            current: status.current,
            wire: status.wire,
            copies,
            write_quorum,
        }
    }
}

/// What each replica says of itself, all asked at once.
pub fn look_at_all(
    addresses: &[String],
    trust: &fabric::Options,
    timeout: Duration,
) -> Vec<::log::Result<Option<ReplicaStatus>>> {
    std::thread::scope(|threads| {
        let asked: Vec<_> =
            addresses.iter().map(|address| threads.spawn(move || look(address, trust, timeout))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

pub fn run(args: &ReplicasOfLog) -> Outcome {
    let trust = copies::trust(&args.copies.trust)?;
    let addresses = copies::addresses(&args.copies, copies::members(&args.copies.etcd)?.as_ref())?;
    let timeout = Duration::from_millis(args.copies.trust.connect_within);
    let all = look_at_all(&addresses, &trust, timeout);
    let logs: Vec<u64> = all.iter().flatten().flatten().map(|status| status.log).collect();
    let is_well = logs.len() == addresses.len() && logs.windows(2).all(|two| two[0] == two[1]);
    if args.json {
        let copy = |(address, found): (&String, ::log::Result<Option<ReplicaStatus>>)| CopyJson {
            address: address.clone(),
            error: found.as_ref().err().map(ToString::to_string),
            status: found.ok().flatten().as_ref().map(StatusJson::of),
        };
        print_json(&addresses.iter().zip(all).map(copy).collect::<Vec<_>>())?;
    } else {
        let width = addresses.iter().map(String::len).max().unwrap_or(0);
        for (address, found) in addresses.iter().zip(&all) {
            say!("{address:width$}  {}", describe(found))?;
        }
    }
    Ok(ExitCode::from(u8::from(!is_well)))
}

fn describe(found: &::log::Result<Option<ReplicaStatus>>) -> String {
    match found {
        Err(error) => format!("unknown: {error}"),
        Ok(None) => "new: a replica of no log yet".to_owned(),
        Ok(Some(status)) => {
            let ReplicaStatus { id, log, epoch, promised, owner, head, next, wire, .. } = status;
            let quorum = match status.quorum {
                Some((copies, quorum)) => format!("each record on {quorum} of {copies} replicas"),
                None => "never repaired to the end".to_owned(),
            };
            let more = if status.current { "" } else { " or more" };
            let led =
                if promised == epoch { String::new() } else { format!(", taken by {owner:x} for epoch {promised}") };
            format!(
                "replica {id:x} of log {log:x}, {quorum}; records from {head}, before {next}{more}; epoch {epoch}{led}; wire version {wire}"
            )
        }
    }
}
