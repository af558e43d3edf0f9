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
    let (log, found) = opened.map_err(failed)?;
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
