//! `cairn log`.

mod append;
mod change;
mod check;
mod print;
mod promote;
mod read;
mod replicas;
mod stats;

use std::path::Path;
use std::process::ExitCode;

use ::log::{Options, Recovered, Tail};

pub(super) use self::replicas::look_at_all;
use super::{Outcome, copies};
use crate::args;
use crate::failure::Failure;
use crate::output::say;
use crate::size;

pub fn run(action: &args::Log) -> Outcome {
    match action {
        args::Log::Create(args) => create(args),
        args::Log::Append(args) => append::run(args),
        args::Log::Cat(args) => read::cat(args),
        args::Log::Tail(args) => read::tail(args),
        args::Log::Check(args) => check::run(args),
        args::Log::Convert(args) => convert(args),
        args::Log::Stats(args) => stats::run(args),
        args::Log::Replicas(args) => replicas::run(args),
        args::Log::Promote(args) => promote::run(args),
        args::Log::Join(args) => change::join(args),
        args::Log::Remove(args) => change::remove(args),
    }
}

fn create(args: &args::CreateLog) -> Outcome {
    let mut pool = pmem::Options::new().domain(args.media.domain);
    if let Some(latency) = args.media.nvm_latency {
        pool = pool.latency(latency);
    }
    let mut options = Options::new().bytes(args.bytes).idle(None).pool(pool);
    if let Some(segment) = args.segment {
        options = options.segment_bytes(segment);
    }
    match &args.path {
        Some(path) if !args.copies.are_named() => create_here(args, path, &options),
        path => create_there(args, path.as_deref(), &options),
    }
}

fn create_here(args: &args::CreateLog, path: &Path, options: &Options) -> Outcome {
    if args.write_quorum.is_some() {
        let next = "name the replicas with --replica, or leave --write-quorum out";
        return Err(Failure::new("a write quorum is of a log on several machines", next));
    }
    let failed = |error: ::log::Error| Failure::log(path, &error);
    let log = options.create(path).map_err(failed)?;
    let (stats, domain) = (log.stats(), log.pool().domain());
    log.close().map_err(failed)?;
    let (capacity, segment) = (size::human(stats.capacity), size::human(stats.segment_bytes));
    let path = path.display();
    say!("{path}: {capacity} in segments of {segment}, domain {domain}: survives {}", domain.survives())?;
    Ok(ExitCode::SUCCESS)
}

fn convert(args: &args::ConvertLog) -> Outcome {
    let done = Options::new().convert(&args.from, &args.to).map_err(|error| Failure::log(&args.from, &error))?;
    say!("{}: {} records, the next is {}", args.to.display(), done.records, done.next)?;
    Ok(ExitCode::SUCCESS)
}

fn create_there(args: &args::CreateLog, path: Option<&Path>, options: &Options) -> Outcome {
    let (log, place, count) = copies::create(path, &args.copies, args.write_quorum, options)?;
    let stats = log.stats();
    log.close().map_err(|error| Failure::log(&place, &error))?;
    let (capacity, segment) = (size::human(stats.capacity), size::human(stats.segment_bytes));
    let quorum = args.write_quorum.map_or(count, |quorum| quorum as usize);
    say!("{}: {capacity} in segments of {segment}, each record on {quorum} of {count} replicas", place.display())?;
    Ok(ExitCode::SUCCESS)
}

/// What is worth knowing of how a log ended.
pub fn doubt(found: &Recovered) -> Option<String> {
    let Tail::InDoubt { lsn, offset } = found.tail else { return None };
    Some(format!(
        "record {lsn} at byte {offset} is not whole: it was never forced, or it was one of the last and is damaged"
    ))
}
