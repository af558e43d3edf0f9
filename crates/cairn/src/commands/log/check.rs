//! `cairn log check`.

use std::process::ExitCode;

use ::log::{Options, Recovered, Tail};
use serde::Serialize;

use super::super::{Outcome, print_json};
use crate::args::CheckLog;
use crate::failure::Failure;

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
        print(args, &found);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(args: &CheckLog, found: &Recovered) {
    println!("records  {} with {} bytes, each read and whole", found.records, found.bytes);
    match found.next.get() - found.head.get() {
        0 => println!("numbers  none; the next is {}", found.next),
        _ => println!(
            "numbers  {} to {}, those without a record of the program included",
            found.head,
            found.next.get() - 1
        ),
    }
    println!("closed   {}", if found.was_closed { "yes" } else { "no: recovered, and closed now" });
    println!("end      {}", super::doubt(found).unwrap_or_else(|| "clean".into()));
    if found.superline_repaired {
        println!("note: one copy of the superline was not whole; the other one was used");
    }
    println!("{}: sound", args.path.display());
}
