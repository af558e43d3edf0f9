//! `cairn log stats`.

use std::process::ExitCode;

use ::log::Error;
use serde::Serialize;

use super::super::{Outcome, print_json};
use super::read;
use crate::args::StatsOfLog;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct StatsJson {
    closed: bool,
    head: u64,
    next: u64,
    /// Known to be durable through this number.
    durable: u64,
    records: u64,
    bytes: u64,
    longest: u64,
    live_bytes: u64,
    capacity: u64,
    segment_bytes: u64,
    growths: u64,
    epoch: u32,
}

pub fn run(args: &StatsOfLog) -> Outcome {
    let mut follower = read::open(&args.path)?.eager();
    let (mut records, mut bytes, mut longest) = (0, 0, 0);
    loop {
        match follower.next() {
            Ok(Some((_, payload))) => {
                let len = payload.len() as u64;
                (records, bytes, longest) = (records + 1, bytes + len, longest.max(len));
            }
            Ok(None) => break,
            // It is counted from there.
            Err(Error::Overtaken { head, .. }) => {
                (records, bytes, longest) = (0, 0, 0);
                follower.from(head).map_err(|error| Failure::log(&args.path, &error))?;
            }
            Err(error) => return Err(Failure::log(&args.path, &error)),
        }
    }
    let log = follower.stats();
    let stats = StatsJson {
        closed: follower.is_closed(),
        head: log.head.get(),
        next: log.next.get(),
        durable: log.forced.get(),
        records,
        bytes,
        longest,
        live_bytes: log.live_bytes,
        capacity: log.capacity,
        segment_bytes: log.segment_bytes,
        growths: log.growths,
        epoch: log.epoch,
    };
    if args.json {
        print_json(&stats)?;
    } else {
        print(&stats)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(stats: &StatsJson) -> Result<(), Failure> {
    let StatsJson { head, next, durable, records, growths, epoch, .. } = stats;
    let state = if stats.closed { "closed" } else { "being written, or not closed" };
    say!("state     {state}")?;
    say!("records   {records} with {}, the longest {}", size::human(stats.bytes), size::human(stats.longest))?;
    say!("numbers   from {head}; the next is {next}; durable through {durable}, at least")?;
    say!("space     {} used of {}", size::human(stats.live_bytes), size::human(stats.capacity))?;
    say!("segments  {} of {}", stats.capacity / stats.segment_bytes, size::human(stats.segment_bytes))?;
    say!("grown     {growths} times")?;
    say!("opened    {epoch} times")?;
    Ok(())
}
