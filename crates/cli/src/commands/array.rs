//! `cairn array`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use eaw::Error;
use eaw::array::{Array, Options, Recovered};
use serde::Serialize;

use super::{Outcome, print_json};
use crate::args;
use crate::failure::Failure;
use crate::output::{Standard, note, say};
use crate::size;

/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;

/// The JSON object; field names are a contract.
#[derive(Serialize)]
struct StatusJson {
    members: usize,
    stripe_bytes: u64,
    transactions: u32,
    /// Number of the newest commit.
    last: u64,
    files: Vec<FileJson>,
    /// Of each member.
    log_bytes: Vec<u64>,
}

#[derive(Serialize)]
struct FileJson {
    name: String,
    bytes: u64,
}

pub fn run(action: &args::Array) -> Outcome {
    match action {
        args::Array::Create(args) => create(args),
        args::Array::Write(args) => write(args),
        args::Array::Read(args) => read(args),
        args::Array::Check(args) => check(args),
        args::Array::Status(args) => status(args),
    }
}

/// Where an error is, unless it says so itself.
fn named(paths: &[PathBuf]) -> impl Fn(Error) -> Failure + '_ {
    |error| Failure::array(paths.first().map_or(Path::new(""), |path| path), &error)
}

fn create(args: &args::CreateArray) -> Outcome {
    let failed = named(&args.paths);
    let mut pool = pmem::Options::new().domain(args.media.domain);
    if let Some(latency) = args.media.nvm_latency {
        pool = pool.latency(latency);
    }
    let array = Options::new().log_bytes(args.log).pool(pool).create(&args.paths).map_err(&failed)?;
    let file = match array.create_file(&args.file, args.bytes) {
        Ok(file) => file,
        Err(error) => {
            drop(array);
            // They were just made, and are of no use. What cannot be removed the next try finds.
            let files = args.paths.iter().filter(|path| path.is_file()); // a device stays
            files.for_each(|path| drop(std::fs::remove_file(path)));
            return Err(failed(error));
        }
    };
    let status = array.status();
    array.close().map_err(&failed)?;
    let (bytes, stripe) = (size::human(file.len()), size::human(status.stripe_bytes));
    say!("{}: {bytes} in stripes of {stripe} over {} members", file.name(), status.members)?;
    Ok(ExitCode::SUCCESS)
}

/// What is lost is told at once: it will not be told again.
fn open(paths: &[PathBuf]) -> Result<Array, Failure> {
    noted(Options::new().open(paths).map_err(named(paths))?)
}

/// Its members need not be writable, unless it was not closed.
fn open_to_read(paths: &[PathBuf]) -> Result<Array, Failure> {
    let unclosed = match Options::new().open_read_only(paths) {
        Err(Error::Pool(pmem::Error::NeedsRecovery { path })) => path,
        other => return noted(other.map_err(named(paths))?),
    };
    let is_denied = |error: &std::io::Error| {
        matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
    };
    match Options::new().open(paths) {
        Err(Error::Pool(pmem::Error::Io { path, source, .. })) if is_denied(&source) => {
            let (unclosed, path) = (unclosed.display(), path.display());
            let what = format!("{unclosed}: not closed cleanly, and its recovery cannot write to {path}: {source}");
            Err(Failure::new(what, format!("{}, as a user who may write", recover(paths))))
        }
        other => noted(other.map_err(named(paths))?),
    }
}

fn noted(array: Array) -> Result<Array, Failure> {
    told(array.recovered()).iter().for_each(|line| note!("cairn: {line}"));
    Ok(array)
}

/// The command that recovers.
fn recover(paths: &[PathBuf]) -> String {
    let all = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    format!("cairn array check --recover {all}")
}

fn told(found: &Recovered) -> Vec<String> {
    let mut lines = Vec::new();
    for loss in &found.lost {
        let at = loss.member.map_or(String::new(), |member| format!(" on member {member}"));
        lines.push(format!("transaction {} is lost: {}{at}", loss.sequence, loss.why));
        let range =
            |(name, offset, len): &(String, u64, u64)| format!("  it was to change {len} bytes at {offset} of {name}");
        lines.extend(loss.ranges.iter().map(range));
    }
    if found.in_doubt > 0 {
        let lines_of = found.in_doubt;
        lines.push(format!("{lines_of} commits were cut short by the crash, or were among the last and are damaged"));
    }
    lines
}

fn write(args::WriteArray { place: args }: &args::WriteArray) -> Outcome {
    let failed = named(&args.paths);
    let array = open(&args.paths)?;
    let file = array.file(&args.file).map_err(&failed)?;
    let mut tx = array.begin().map_err(&failed)?;
    let (mut input, mut chunk, mut at) = (std::io::stdin().lock(), vec![0; CHUNK as usize], args.offset);
    loop {
        let count =
            input.read(&mut chunk).map_err(|error| Failure::file("read", Path::new("standard input"), &error))?;
        if count == 0 {
            break;
        }
        tx.log_write(&file, at, &chunk[..count]).map_err(&failed)?;
        at += count as u64;
    }
    drop(tx.commit().map_err(&failed)?);
    array.close().map_err(&failed)?;
    say!("{} bytes at {} of {}", at - args.offset, args.offset, file.name())?;
    Ok(ExitCode::SUCCESS)
}

fn read(args::ReadArray { place: args, len }: &args::ReadArray) -> Outcome {
    let failed = named(&args.paths);
    let array = open_to_read(&args.paths)?;
    let file = array.file(&args.file).map_err(&failed)?;
    let mut left = len.unwrap_or(file.len().saturating_sub(args.offset));
    let (mut at, mut chunk) = (args.offset, vec![0; CHUNK as usize]);
    // All of it is asked for before any is printed.
    array.read(&file, at.saturating_add(left), &mut []).map_err(&failed)?;
    while left > 0 {
        let count = left.min(CHUNK);
        array.read(&file, at, &mut chunk[..count as usize]).map_err(&failed)?;
        Standard.write_all(&chunk[..count as usize]).map_err(|error| Failure::output(&error))?;
        (at, left) = (at + count, left - count);
    }
    array.close().map_err(&failed)?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &args::CheckArray) -> Outcome {
    let failed = named(&args.paths);
    let options = Options::new();
    let opened = if args.recover { options.open(&args.paths) } else { options.open_read_only(&args.paths) };
    let array = opened.map_err(|error| match error {
        Error::Pool(pmem::Error::NeedsRecovery { path }) => {
            Failure::new(format!("{}: not closed cleanly", path.display()), recover(&args.paths))
        }
        other => failed(other),
    })?;
    let (found, files) = (array.recovered().clone(), array.files().len());
    let status = array.status();
    array.close().map_err(&failed)?;
    let (applied, dropped) = (found.applied, found.dropped);
    say!(
        "{} members, {files} files, {} commits; {applied} applied now, {dropped} dropped",
        status.members,
        status.last
    )?;
    for line in told(&found) {
        say!("{line}")?;
    }
    Ok(if found.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn status(args: &args::StatusOfArray) -> Outcome {
    let array = open_to_read(&args.paths)?;
    let (status, files) = (array.status(), array.files());
    array.close().map_err(named(&args.paths))?;
    if args.json {
        let files = files.iter().map(|file| FileJson { name: file.name().to_owned(), bytes: file.len() }).collect();
        print_json(&StatusJson {
            members: status.members,
            stripe_bytes: status.stripe_bytes,
            transactions: status.transactions,
            last: status.last,
            files,
            log_bytes: status.log_bytes,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("members       {}", status.members)?;
    say!("stripes of    {}", size::human(status.stripe_bytes))?;
    say!("transactions  {} at once, {} so far", status.transactions, status.last)?;
    for (member, bytes) in status.log_bytes.iter().enumerate() {
        say!("log           {} on member {member}", size::human(*bytes))?;
    }
    for file in files {
        say!("file          {}: {}", file.name(), size::human(file.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}
