//! `cairn log promote`: a log on several machines is taken over, its replicas are repaired.

use std::process::ExitCode;
use std::time::Duration;

use ::log::{Options, Recovered, ReplicaHealth, ReplicaStatus, Tail};
use serde::Serialize;

use super::super::{Outcome, copies, print_json};
use super::replicas::look_at_all;
use crate::args::Promote;
use crate::failure::Failure;
use crate::output::say;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct PromoteJson {
    head: u64,
    next: u64,
    records: u64,
    bytes: u64,
    epoch: u32,
    /// The record that may have been acknowledged, and is on no replica.
    in_doubt: Option<u64>,
    /// How many replicas the log has, and on how many each record is.
    copies: Option<u32>,
    write_quorum: Option<u32>,
    /// Those that were asked, but for the one that is here.
    asked: Vec<CopyJson>,
}

#[derive(Serialize)]
struct CopyJson {
    address: String,
    /// It has the whole log now.
    repaired: bool,
    /// Why it takes no part.
    why: Option<String>,
}

pub fn run(args: &Promote) -> Outcome {
    let options = Options::new().idle(None);
    let leader = copies::lead_with(args.path.as_deref(), &args.copies, &options, |named| {
        args.lost.iter().fold(named.accept_doubt(args.accept_doubt), |named, &lost| named.lost(lost))
    })?;
    let trust = copies::trust(&args.copies.trust)?;
    let timeout = Duration::from_millis(args.copies.trust.connect_within);
    let looked = look_at_all(&leader.addresses, &trust, timeout);
    let live: Vec<u64> = leader.log.replicas().iter().filter(|c| c.1 == ReplicaHealth::Live).map(|c| c.0).collect();
    let epoch = leader.log.stats().epoch;
    let quorum = looked.iter().flatten().flatten().find_map(|status| status.quorum);
    let copy = |(address, found): (&String, ::log::Result<Option<ReplicaStatus>>)| {
        let why = match &found {
            Err(error) => Some(error.to_string()),
            Ok(None) => Some("it is new, and none of the log's replicas".to_owned()),
            Ok(Some(status)) if live.contains(&status.id) => None,
            Ok(Some(_)) => Some("it was not reached, or failed, when the log was taken over".to_owned()),
        };
        CopyJson { address: address.clone(), repaired: why.is_none(), why }
    };
    let asked: Vec<CopyJson> = leader.addresses.iter().zip(looked).map(copy).collect();
    let found = leader.found;
    leader.close()?;
    let Recovered { records, bytes, head, next, tail, .. } = found;
    let in_doubt = match tail {
        Tail::Clean => None,
        Tail::InDoubt { lsn, .. } => Some(lsn.get()),
    };
    let (copies, write_quorum) = quorum.unzip();
    let said = PromoteJson {
        head: head.get(),
        next: next.get(),
        records,
        bytes,
        epoch,
        in_doubt,
        copies,
        write_quorum,
        asked,
    };
    if args.json {
        print_json(&said)?
    } else {
        print(&said)?
    }
    Ok(ExitCode::SUCCESS)
}

fn print(said: &PromoteJson) -> Result<(), Failure> {
    let PromoteJson { head, next, records, bytes, epoch, asked, .. } = said;
    say!("records  {records} with {bytes} bytes")?;
    say!("numbers  from {head}; the next is {next}")?;
    say!("epoch    {epoch}")?;
    match said.in_doubt {
        None => say!("end      clean")?,
        Some(lsn) => say!("end      record {lsn} may have been acknowledged, and is on no replica: it is gone")?,
    }
    if let (Some(copies), Some(quorum)) = (said.copies, said.write_quorum) {
        say!("quorum   each record on {quorum} of {copies} replicas")?;
    }
    for copy in asked {
        let state = copy.why.as_ref().map_or_else(|| "has all of it".to_owned(), |why| format!("missing: {why}"));
        say!("replica  {}  {state}", copy.address)?;
    }
    Ok(())
}
