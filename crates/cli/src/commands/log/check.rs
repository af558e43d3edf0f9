//! `cairn log check`.

use std::process::ExitCode;

use ::log::{Options, Recovered, Tail};
use serde::Serialize;

use super::super::{Outcome, print_json};
use crate::args::CheckLog;
use crate::failure::Failure;
use crate::output::say;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct CheckLogJson {
    head: u64,
    next: u64,
    records: u64,
    bytes: u64,
    was_closed: bool,
    superline_repaired: bool,
    /// The record that the log may have ended with.
    in_doubt: Option<u64>,
}

pub fn run(args: &CheckLog) -> Outcome {
    let failed = |error: ::log::Error| Failure::log(&args.path, &error);
    let options = Options::new().idle(None);
    let opened = if args.recover { options.open(&args.path) } else { options.open_read_only(&args.path) };
    let (log, found) = match opened {
        Err(::log::Error::IsReplica { .. }) => return check_copy(args),
        other => other.map_err(failed)?,
    };
    log.close().map_err(failed)?;
    if args.json {
        let Recovered { records, bytes, head, next, tail, was_closed, superline_repaired } = found;
        let in_doubt = match tail {
            Tail::Clean => None,
            Tail::InDoubt { lsn, .. } => Some(lsn.get()),
        };
        let (head, next) = (head.get(), next.get());
        print_json(&CheckLogJson { head, next, records, bytes, was_closed, superline_repaired, in_doubt })?;
    } else {
        print(args, &found)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A replica of a log on several machines: its leader recovers it, so it is only read.
fn check_copy(args: &CheckLog) -> Outcome {
    let failed = |error: ::log::Error| Failure::log(&args.path, &error);
    let options = pmem::Options::new();
    let opened = if args.recover { options.open(&args.path) } else { options.open_read_only(&args.path) };
    let pool = opened.map_err(|error| failed(error.into()))?;
    let found = ::log::check_replica(&pool, ::log::NAME).map_err(failed)?;
    let path = args.path.display();
    let Some(found) = found else {
        say!("{path}: a new replica, of no log yet")?;
        return Ok(ExitCode::SUCCESS);
    };
    let ::log::ReplicaStatus { id, log, head, .. } = found.status;
    let (records, bytes, next, in_doubt) = (found.records, found.bytes, found.next, found.in_doubt);
    if args.json {
        let in_doubt = in_doubt.then_some(next.get());
        let (head, next) = (head.get(), next.get());
        let (was_closed, superline_repaired) = (pool.info().was_clean, false);
        print_json(&CheckLogJson { head, next, records, bytes, was_closed, superline_repaired, in_doubt })?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("replica  {id:x} of log {log:x}")?;
    say!("records  {records} with {bytes} bytes, each read and whole; numbers {head} to {next}, not included")?;
    say!("end      {}", if in_doubt { "something stands behind them: the other replicas tell" } else { "clean" })?;
    say!("{path}: sound")?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &CheckLog, found: &Recovered) -> Result<(), Failure> {
    say!("records  {} with {} bytes, each read and whole", found.records, found.bytes)?;
    match found.next.get() - found.head.get() {
        0 => say!("numbers  none; the next is {}", found.next)?,
        _ => {
            say!("numbers  {} to {}, those without a record of the program included", found.head, found.next.get() - 1)?
        }
    }
    say!("closed   {}", if found.was_closed { "yes" } else { "no: recovered, and closed now" })?;
    say!("end      {}", super::doubt(found).unwrap_or_else(|| "clean".into()))?;
    if found.superline_repaired {
        say!("note: one copy of the superline was not whole; the other one was used")?;
    }
    say!("{}: sound", args.path.display())?;
    Ok(())
}
