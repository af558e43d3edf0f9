//! Pairs on standard output.

use std::io::{self, BufWriter, StdoutLock, Write};
use std::process::ExitCode;

use super::super::Outcome;
use super::format;
use crate::args::Format;
use crate::failure::Failure;

/// Where pairs are printed.
pub struct Printer {
    out: BufWriter<StdoutLock<'static>>,
    format: Format,
}

/// Why printing ends early.
pub enum Stop {
    /// The output is no longer read, or writing failed.
    Output(io::Error),
    Store(kv::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<kv::Error> for Stop {
    fn from(error: kv::Error) -> Self {
        Self::Store(error)
    }
}

impl Printer {
    pub fn new(format: Format) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, io::stdout().lock()), format }
    }

    pub fn pair(&mut self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> io::Result<()> {
        format::pair(&mut self.out, self.format, key, value, expires)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A reader that has seen enough is no error.
pub fn finish(written: io::Result<()>) -> Outcome {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        _ => Ok(ExitCode::SUCCESS),
    }
}
