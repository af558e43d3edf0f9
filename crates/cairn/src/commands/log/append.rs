//! `cairn log append`.

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use ::log::{Log, Lsn, Options, RECORD_HEADER};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::Outcome;
use crate::args::Append;
use crate::failure::Failure;

/// Records between two looks at the terminal.
const STEP: u64 = 1000;

pub fn run(args: &Append) -> Outcome {
    let failed = |error: ::log::Error| Failure::log(&args.path, &error);
    let options = Options::new().frequency(args.frequency).threads(1).within(args.within);
    let (log, found) = options.open(&args.path).map_err(|error| match error {
        ::log::Error::Pool(pmem::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Failure::new(
            format!("{}: no such file", args.path.display()),
            "check the path; `cairn log create` makes a log",
        ),
        error => failed(error),
    })?;
    if let Some(doubt) = super::doubt(&found) {
        eprintln!("note: {doubt}; it is gone now");
    }
    let mut done = Done { records: 0, last: Lsn::default() };
    let outcome = append_all(args, &log, &mut done);
    // What was appended before something failed is kept, and counted.
    let closed = log.force_now(done.last).and_then(|()| log.close()).map_err(failed);
    outcome.and(closed).map_err(|failure| failure.after(&done.to_string()))?;
    println!("{done}");
    Ok(ExitCode::SUCCESS)
}

struct Done {
    records: u64,
    last: Lsn,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.records {
            0 => write!(f, "0 records appended"),
            1 => write!(f, "1 record appended, number {}", self.last),
            n => write!(f, "{n} records appended, the last is number {}", self.last),
        }
    }
}

fn append_all(args: &Append, log: &Log, done: &mut Done) -> Result<(), Failure> {
    let longest = log.stats().segment_bytes - RECORD_HEADER;
    let read = if args.binary_len { read_counted } else { read_line };
    let mut input = io::stdin().lock();
    let bar = progress();
    let mut record = Vec::new();
    while read(&mut input, longest, &mut record).map_err(|error| input_failed(&error))? {
        done.last = log.append(&record).map_err(|error| Failure::log(&args.path, &error))?;
        done.records += 1;
        if done.records.is_multiple_of(STEP) {
            bar.set_position(done.records);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn input_failed(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::new(
            "standard input ends inside of a record",
            "with --binary-len each record stands behind its number of bytes, four bytes, least first",
        ),
        _ => Failure::file("read", Path::new("standard input"), error),
    }
}

/// The next line without its end; false if there is none. One that is too long is read as far as to see that.
fn read_line(input: &mut dyn BufRead, longest: u64, record: &mut Vec<u8>) -> io::Result<bool> {
    record.clear();
    if input.take(longest + 1).read_until(b'\n', record)? == 0 {
        return Ok(false);
    }
    record.pop_if(|end| *end == b'\n');
    Ok(true)
}

/// The next record behind its length.
fn read_counted(input: &mut dyn BufRead, longest: u64, record: &mut Vec<u8>) -> io::Result<bool> {
    record.clear();
    if input.fill_buf()?.is_empty() {
        return Ok(false);
    }
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u64::from(u32::from_le_bytes(len));
    let wanted = len.min(longest + 1);
    let found = input.take(wanted).read_to_end(record)? as u64;
    if found < wanted { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(true) }
}

fn progress() -> ProgressBar {
    let terminal = io::stderr().is_terminal() && !io::stdin().is_terminal();
    let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{pos} records, {per_sec}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(
        read: fn(&mut dyn BufRead, u64, &mut Vec<u8>) -> io::Result<bool>,
        mut input: &[u8],
    ) -> io::Result<Vec<Vec<u8>>> {
        let (mut record, mut records) = (Vec::new(), Vec::new());
        while read(&mut input, 4, &mut record)? {
            records.push(record.clone());
        }
        Ok(records)
    }

    #[test]
    fn lines() {
        assert_eq!(all(read_line, b"a\n\nbcde\nlast").unwrap(), [&b"a"[..], b"", b"bcde", b"last"]);
        assert_eq!(all(read_line, b"").unwrap(), [b""; 0]);
        assert_eq!(all(read_line, b"fives\n").unwrap()[0].len(), 5, "too long for the log, which says so");
    }

    #[test]
    fn counted() {
        assert_eq!(all(read_counted, b"\x02\0\0\0a\n\0\0\0\0").unwrap(), [&b"a\n"[..], b""]);
        assert_eq!(all(read_counted, b"\xff\xff\xff\xff12345").unwrap()[0].len(), 5);
        for cut in [&b"\x02\0\0"[..], b"\x02\0\0\0a"] {
            assert_eq!(all(read_counted, cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
