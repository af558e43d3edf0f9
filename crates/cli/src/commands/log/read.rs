//! `cairn log cat` and `cairn log tail`: what a log holds, also while another process writes it.

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ::log::{Error, Follower, Lsn, Options};

use super::super::{Outcome, copies};
use super::print::{Printer, Stop};
use crate::args::{Cat, Tail};
use crate::failure::Failure;
use crate::output::note;

/// Looks for more until then, before it says that there is none yet.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Opens the log, and says what to do if there is none.
pub fn open(path: &Path) -> Result<Follower, Failure> {
    Follower::open(path).map_err(|error| match error {
        Error::Pool(pmem::Error::NoRegion { .. }) => {
            Failure::new(format!("{}: a pool without a log", path.display()), "`cairn info` shows what is in it")
        }
        error => Failure::log(path, &error),
    })
}

fn end(outcome: Result<ExitCode, Stop>) -> Outcome {
    match outcome {
        Ok(code) => Ok(code),
        Err(Stop::NobodyReads) => Ok(ExitCode::SUCCESS),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

// ---- cat ------------------------------------------------------------------------------------------------------------

pub fn cat(args: &Cat) -> Outcome {
    let path = match &args.path {
        Some(path) if !args.copies.are_named() => path,
        path => return cat_there(args, path.as_deref()),
    };
    let failed = |error: Error| Failure::log(path, &error);
    let mut follower = open(path)?;
    if args.salvage {
        follower = follower.eager();
    }
    if let Some(lsn) = args.from {
        follower.from(Lsn::new(lsn)).map_err(failed)?;
    }
    let mut printer = Printer::new(&args.show);
    let outcome = print_all(path, args.salvage, &mut follower, &mut printer);
    printer.flush().and(outcome).map_or_else(|stop| end(Err(stop)), Ok)
}

fn print_all(path: &Path, salvage: bool, follower: &mut Follower, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let mut code = ExitCode::SUCCESS;
    loop {
        match follower.wait(Duration::ZERO) {
            Ok(Some((lsn, payload))) => printer.record(lsn, &payload)?,
            Ok(None) | Err(Error::Lost { .. }) if salvage => {
                let wanted = follower.position();
                let Some(next) = follower.skip_lost().map_err(|error| Failure::log(path, &error))? else { break };
                if wanted < next {
                    code = ExitCode::from(1);
                    note!("missing: records {wanted} to {}", next.get() - 1);
                }
            }
            Ok(None) => break,
            Err(error) => go_on(path, follower, &error)?,
        }
    }
    note_rest(follower);
    Ok(code)
}

/// All records of a log on several machines, which is taken over for that.
fn cat_there(args: &Cat, path: Option<&Path>) -> Outcome {
    let leader = copies::lead(path, &args.copies, &Options::new().idle(None))?;
    let mut printer = Printer::new(&args.show);
    let mut print = || -> Result<ExitCode, Stop> {
        let mut records = leader.log.iter_from(Lsn::new(args.from.unwrap_or(0)));
        while let Some(record) = records.next().map_err(|error| leader.failure(&error))? {
            printer.record(record.lsn, record.payload)?;
        }
        Ok(ExitCode::SUCCESS)
    };
    let outcome = print();
    let outcome = printer.flush().and(outcome).map_or_else(|stop| end(Err(stop)), Ok);
    leader.leave();
    outcome
}

/// Nothing is lost if the writer was faster: what is there is read on.
fn go_on(path: &Path, follower: &mut Follower, error: &Error) -> Result<(), Failure> {
    let Error::Overtaken { wanted, head } = *error else { return Err(Failure::log(path, error)) };
    note!("note: records {wanted} to {} were discarded meanwhile", head.get() - 1);
    follower.from(head).map_err(|error| Failure::log(path, &error))
}

fn note_rest(follower: &Follower) {
    let more = follower.ahead();
    if more > 0 {
        note!(
            "note: {more} more records are whole; nothing says yet that they are durable (`cairn log tail --eager` shows them)"
        );
    }
}

// ---- tail -----------------------------------------------------------------------------------------------------------

pub fn tail(args: &Tail) -> Outcome {
    let mut follower = open(&args.path)?;
    if args.eager {
        follower = follower.eager();
    }
    let mut printer = Printer::new(&args.show);
    end(print_last(args, &mut follower, &mut printer))
}

fn print_last(args: &Tail, follower: &mut Follower, printer: &mut Printer) -> Result<ExitCode, Stop> {
    let mut last = VecDeque::new();
    let end = loop {
        match next(&args.path, follower, Some(Duration::ZERO)) {
            Ok(Some(record)) => last.push_back(record),
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
        if last.len() > args.records {
            last.pop_front();
        }
    };
    for (lsn, payload) in last {
        printer.record(lsn, &payload)?;
    }
    printer.flush()?;
    end?;
    if !args.follow {
        note_rest(follower);
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let mut found = next(&args.path, follower, Some(TIMEOUT))?;
        while let Some((lsn, payload)) = found {
            printer.record(lsn, &payload)?;
            found = next(&args.path, follower, None)?;
        }
        printer.flush()?;
    }
}

/// The next record there is, when there is one.
fn next(path: &Path, follower: &mut Follower, wait: Option<Duration>) -> Result<Option<(Lsn, Vec<u8>)>, Failure> {
    loop {
        let found = match wait {
            Some(limit) => follower.wait(limit),
            None => follower.next(),
        };
        match found {
            Ok(found) => return Ok(found),
            Err(error) => go_on(path, follower, &error)?,
        }
    }
}
