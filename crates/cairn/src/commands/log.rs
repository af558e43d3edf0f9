//! `cairn log`.

mod append;
mod check;
mod print;
mod read;
mod stats;

use std::process::ExitCode;

use ::log::{Options, Recovered, Tail};

use super::Outcome;
use crate::args;
use crate::failure::Failure;
use crate::size;

pub fn run(action: &args::Log) -> Outcome {
    match action {
        args::Log::Create(args) => create(args),
        args::Log::Append(args) => append::run(args),
        args::Log::Cat(args) => read::cat(args),
        args::Log::Tail(args) => read::tail(args),
        args::Log::Check(args) => check::run(args),
        args::Log::Stats(args) => stats::run(args),
    }
}

fn create(args: &args::CreateLog) -> Outcome {
    let failed = |error: ::log::Error| Failure::log(&args.path, &error);
    let mut pool = pmem::Options::new().domain(args.media.domain);
    if let Some(latency) = args.media.nvm_latency {
        pool = pool.latency(latency);
    }
    let mut options = Options::new().bytes(args.bytes).idle(None).pool(pool);
    if let Some(segment) = args.segment {
        options = options.segment(segment);
    }
    let log = options.create(&args.path).map_err(failed)?;
    let (stats, domain) = (log.stats(), log.pool().domain());
    log.close().map_err(failed)?;
    let (capacity, segment) = (size::human(stats.capacity), size::human(stats.segment_bytes));
    let path = args.path.display();
    println!("{path}: {capacity} in segments of {segment}, domain {domain}: survives {}", domain.survives());
    Ok(ExitCode::SUCCESS)
}

/// What is worth knowing of how a log ended.
pub fn doubt(found: &Recovered) -> Option<String> {
    let Tail::InDoubt { lsn, offset } = found.tail else { return None };
    Some(format!(
        "record {lsn} at byte {offset} is not whole: it was never forced, or it was one of the last and is damaged"
    ))
}
