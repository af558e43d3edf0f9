//! `cairn kv scan` and `cairn kv dump`.

use std::path::Path;
use std::process::ExitCode;

use kv::{Keys, Store};

use super::super::Outcome;
use super::print::{Printer, Stop, finish};
use crate::args::{Dump, Format, Scan};
use crate::failure::Failure;
use crate::output::say;

/// What of the pairs is printed.
struct What {
    format: Format,
    limit: u64,
    values: bool,
    expires: bool,
}

pub fn scan(args: &Scan) -> Outcome {
    let path = &args.source.path;
    let mut keys = super::keys(&args.range, args.format)?;
    if args.reverse {
        keys = keys.reverse();
    }
    let limit = args.limit.unwrap_or(u64::MAX);
    let what = What { format: args.format, limit, values: !args.keys_only, expires: false };
    super::read(&args.source, |store| {
        if args.count {
            say!("{}", count(store, keys, limit).map_err(|error| Failure::kv(path, &error))?)?;
            return Ok(ExitCode::SUCCESS);
        }
        print(store, path, keys, &what)
    })
}

pub fn dump(args: &Dump) -> Outcome {
    let what = What { format: args.format, limit: u64::MAX, values: true, expires: true };
    super::read(&args.source, |store| print(store, &args.source.path, Keys::all(), &what))
}

fn count(store: &Store, keys: Keys, limit: u64) -> kv::Result<u64> {
    let mut count = 0;
    let snapshot = store.snapshot()?;
    let mut pairs = snapshot.scan(keys);
    while count < limit && pairs.next().transpose()?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn print(store: &Store, path: &Path, keys: Keys, what: &What) -> Outcome {
    let mut printer = Printer::new(what.format);
    let printed = pairs(store, keys, what, &mut printer);
    // What was read before something failed is printed.
    let flushed = printer.flush();
    match printed {
        Ok(()) => finish(flushed),
        Err(Stop::Output(error)) => finish(Err(error)),
        Err(Stop::Store(error)) => Err(Failure::kv(path, &error)),
    }
}

fn pairs(store: &Store, keys: Keys, what: &What, printer: &mut Printer) -> Result<(), Stop> {
    let snapshot = store.snapshot()?;
    let mut pairs = snapshot.scan(keys);
    for _ in 0..what.limit {
        let Some((key, value)) = pairs.next().transpose()? else { break };
        let expires = if what.expires { pairs.expires() } else { None };
        printer.pair(key, what.values.then_some(value), expires)?;
    }
    Ok(())
}
