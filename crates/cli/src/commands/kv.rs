//! `cairn kv`.

mod check;
mod copy;
mod follow;
mod format;
mod load;
pub(super) mod opening;
mod print;
mod scan;
mod shell;
mod stats;

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use kv::{Keys, Options, Store};

use self::format::word;
use super::Outcome;
use crate::args;
use crate::failure::Failure;
use crate::output::{Standard, note, say};
use crate::size;

pub fn run(action: &args::Kv) -> Outcome {
    match action {
        args::Kv::Create(args) => create(args),
        args::Kv::Get(args) => get(args),
        args::Kv::Put(args) => put(args),
        args::Kv::Delete(args) => delete(args),
        args::Kv::Scan(args) => scan::scan(args),
        args::Kv::Load(args) => load::run(args),
        args::Kv::Dump(args) => scan::dump(args),
        args::Kv::Stats(args) => stats::run(args),
        args::Kv::Check(args) => check::run(args),
        args::Kv::Backup(args) => copy::backup(args),
        args::Kv::Restore(args) => copy::restore(args),
        args::Kv::Shell(args) => shell::run(args),
        args::Kv::Follow(args) => follow::follow(args),
        args::Kv::Promote(args) => follow::promote(args),
        args::Kv::Seed(args) => follow::seed(args),
    }
}

fn create(args: &args::CreateStore) -> Outcome {
    let failed = |error: kv::Error| Failure::kv(&args.path, &error);
    let mut pool = pmem::Options::new().domain(args.media.domain);
    if let Some(latency) = args.media.nvm_latency {
        pool = pool.latency(latency);
    }
    let options = Options::new().segment_bytes(args.segment).background(false).pool(pool);
    let store = options.create(&args.path).map_err(failed)?;
    let (stats, domain) = (store.stats(), store.effective_durability());
    store.close().map_err(failed)?;
    let (bytes, segment) = (size::human(stats.file_bytes), size::human(stats.segment_bytes));
    let path = args.path.display();
    say!("{path}: {bytes}, in segments of {segment}, domain {domain}: survives {}", domain.survives())?;
    Ok(ExitCode::SUCCESS)
}

/// Opens a store that is there for writing, which recovers it, and closes it whatever comes of `f`.
fn write<R>(path: &Path, options: &Options, f: impl FnOnce(&Store) -> Result<R, Failure>) -> Result<R, Failure> {
    let failed = |error: kv::Error| Failure::kv(path, &error);
    let store = opening::shown(options.clone()).open(path).map_err(failed)?;
    let result = f(&store);
    let closed = store.close().map_err(failed);
    let result = result?;
    closed?;
    Ok(result)
}

/// Opens a store for reading, or as it must be to recover it.
fn read<R>(source: &args::Source, f: impl FnOnce(&Store) -> Result<R, Failure>) -> Result<R, Failure> {
    let path = &source.path;
    // What is printed is taken for good.
    let options = Options::new().background(false).verify(true);
    if source.recover {
        return write(path, &options, f);
    }
    let store = opening::shown(options).open_read_only(path).map_err(|error| Failure::kv(path, &error))?;
    f(&store)
}

/// A key or value of the command line.
fn argument(text: &str, format: args::Format) -> Result<Vec<u8>, Failure> {
    word(text.as_bytes(), format)
        .map_err(|why| Failure::new(format!("{text:?}: {why}"), "`cairn help kv dump` tells about formats"))
}

fn keys(range: &args::Range, format: args::Format) -> Result<Keys, Failure> {
    if let Some(prefix) = &range.prefix {
        return Ok(Keys::prefix(&argument(prefix, format)?));
    }
    let mut keys = Keys::all();
    if let Some(from) = &range.from {
        keys = Keys::from(&argument(from, format)?);
    }
    if let Some(to) = &range.to {
        keys = keys.until(&argument(to, format)?);
    }
    Ok(keys)
}

/// Milliseconds of Unix time, so much later.
#[expect(clippy::disallowed_methods, reason = "what expires does so by the time of day")]
fn moment(later: Duration) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now + later).as_millis() as u64
}

// ---- one key ----------------------------------------------------------------------------------------------------------

fn get(args: &args::Get) -> Outcome {
    let path = &args.source.path;
    let key = argument(&args.key, args.format)?;
    let value = read(&args.source, |store| store.get(&key).map_err(|error| Failure::kv(path, &error)))?;
    let Some(value) = value else {
        note!("{}: key {} has no value", path.display(), kv::Key(key));
        return Ok(ExitCode::from(1));
    };
    let mut out = Standard;
    let written = match args.raw {
        true => out.write_all(&value),
        false => format::value(&mut out, &value, args.format).and_then(|()| out.write_all(b"\n")),
    };
    print::finish(written)
}

fn put(args: &args::Put) -> Outcome {
    let key = argument(&args.key, args.format)?;
    let value = match &args.value {
        Some(value) => argument(value, args.format)?,
        None => {
            let mut value = Vec::new();
            let limit = kv::VALUE_MAX as u64 + 1; // enough to see that it is too long
            let read = io::stdin().lock().take(limit).read_to_end(&mut value);
            read.map_err(|error| Failure::file("read", Path::new("standard input"), &error))?;
            value
        }
    };
    write(&args.path, &Options::new().background(false), |store| {
        let done = match args.expires_in {
            Some(later) => store.put_until(&key, &value, moment(later)),
            None => store.put(&key, &value),
        };
        done.map_err(|error| Failure::kv(&args.path, &error))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn delete(args: &args::Delete) -> Outcome {
    let chosen = args.keys.iter().map(|key| argument(key, args.format)).collect::<Result<Vec<_>, _>>()?;
    let range = keys(&args.range, args.format)?;
    // A range is one of keys that are read.
    let deleted = write(&args.path, &Options::new().background(false).verify(true), |store| {
        let deleted = store.transact(|tx| {
            if chosen.is_empty() {
                return tx.delete_range(range.clone());
            }
            let mut count = 0;
            for key in &chosen {
                count += u64::from(tx.delete(key)?);
            }
            Ok(count)
        });
        deleted.map_err(|error| Failure::kv(&args.path, &error))
    })?;
    say!("{deleted} deleted")?;
    Ok(ExitCode::SUCCESS)
}
