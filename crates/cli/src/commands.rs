//! One module per command; each returns the exit code of a command that ran to its end.

pub mod array;
pub mod backup;
pub mod bench;
pub mod carry;
pub mod chain;
pub mod check;
pub mod convert;
pub mod copies;
pub mod crash;
pub mod create;
pub mod demo;
pub mod group;
pub mod info;
pub mod kv;
pub mod log;
pub mod log_replica;
pub mod man;
mod object_engine;
pub mod scrub;
pub mod serve;
pub mod top;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::output::{Standard, say};

/// What a command ends with.
pub type Outcome = Result<ExitCode, Failure>;

/// Where `--json` goes, and its path for error messages.
type Output<'a> = (&'a Path, Box<dyn Write>);

/// Standard output for `-`, else a new file.
fn open_output(path: Option<&Path>) -> Result<Option<Output<'_>>, Failure> {
    let Some(path) = path else { return Ok(None) };
    if path == Path::new("-") {
        return Ok(Some((Path::new("standard output"), Box::new(Standard))));
    }
    let file = File::create(path).map_err(|error| Failure::file("create", path, &error))?;
    Ok(Some((path, Box::new(BufWriter::new(file)))))
}

/// One pretty JSON object on standard output.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::output(&error.into()))?;
    say!("{text}")
}
