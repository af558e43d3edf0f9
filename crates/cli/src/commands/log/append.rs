//! `cairn log append`.

use std::collections::VecDeque;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ::log::{Log, Lsn, Options, RECORD_HEADER, ReplicaHealth};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::{Outcome, copies};
use crate::args::Append;
use crate::failure::Failure;
use crate::output::{note, say};

/// Records between two looks at the terminal.
const STEP: u64 = 1000;
/// Records that are read and not appended yet, at most.
const AHEAD: usize = 64;
/// Between two looks at whether this process still leads, while nothing is to be appended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub fn run(args: &Append) -> Outcome {
    let options = Options::new().frequency(args.frequency).threads(1).within(args.within);
    let done = match &args.path {
        Some(path) if !args.copies.are_named() => append_here(args, path, &options)?,
        path => append_there(args, path.as_deref(), &options)?,
    };
    if args.print_lsn {
        note!("{done}");
    } else {
        say!("{done}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was appended.
struct Done {
    records: u64,
    last: Lsn,
    /// If each is printed: those that were not yet.
    untold: Option<VecDeque<Lsn>>,
}

impl Done {
    fn new(args: &Append) -> Self {
        Self { records: 0, last: Lsn::default(), untold: args.print_lsn.then(VecDeque::new) }
    }

    fn add(&mut self, lsn: Lsn) {
        (self.records, self.last) = (self.records + 1, lsn);
        if let Some(untold) = &mut self.untold {
            untold.push_back(lsn);
        }
    }

    /// Prints which are durable.
    fn tell(&mut self, forced: Lsn) -> Result<(), Failure> {
        let Some(untold) = &mut self.untold else { return Ok(()) };
        while let Some(lsn) = untold.pop_front_if(|lsn| *lsn <= forced) {
            say!("{lsn}")?;
        }
        Ok(())
    }
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

// ---- here -----------------------------------------------------------------------------------------------------------

fn append_here(args: &Append, path: &Path, options: &Options) -> Result<Done, Failure> {
    let failed = |error: ::log::Error| Failure::log(path, &error);
    let (log, found) = options.open(path).map_err(|error| match error {
        ::log::Error::Pool(pmem::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Failure::new(format!("{}: no such file", path.display()), "check the path; `cairn log create` makes a log")
        }
        error => failed(error),
    })?;
    if let Some(doubt) = super::doubt(&found) {
        note!("note: {doubt}; it is gone now");
    }
    let mut done = Done::new(args);
    let (longest, read) = (log.stats().segment_bytes - RECORD_HEADER, reader(args));
    let mut input = io::stdin().lock();
    let mut next = |record: &mut Vec<u8>| read(&mut input, longest, record).map_err(|error| input_failed(&error));
    let outcome = append_all(&log, &mut done, &mut next, &|| Ok(()), &failed);
    // What was appended before something failed is kept, and counted.
    let forced = log.force_now(done.last).map_err(failed).and_then(|()| done.tell(log.forced()));
    let closed = forced.and_then(|()| log.close().map_err(failed));
    outcome.and(closed).map_err(|failure| failure.after(&done.to_string()))?;
    Ok(done)
}

/// Appends what `next` brings, until it brings nothing; says so only while it `may`.
fn append_all(
    log: &Log,
    done: &mut Done,
    next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool, Failure>,
    may: &dyn Fn() -> Result<(), Failure>,
    failed: &dyn Fn(::log::Error) -> Failure,
) -> Result<(), Failure> {
    let bar = progress();
    let mut record = Vec::new();
    while next(&mut record)? {
        done.add(log.append(&record).map_err(failed)?);
        may()?;
        done.tell(log.forced())?;
        if done.records.is_multiple_of(STEP) {
            bar.set_position(done.records);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

// ---- on several machines --------------------------------------------------------------------------------------------

/// What standard input brings; an end that is missing is for the waiting thread to see.
type Input = io::Result<Option<Vec<u8>>>;

fn append_there(args: &Append, path: Option<&Path>, options: &Options) -> Result<Done, Failure> {
    let leader = copies::lead(path, &args.copies, options)?;
    let (log, mut done, is_over) = (&leader.log, Done::new(args), AtomicBool::new(false));
    note(&leader.found, log, leader.addresses.len());
    let longest = log.stats().segment_bytes - RECORD_HEADER;
    let input = read_beside(reader(args), longest);
    let failed = |error| leader.failure(&error);
    let outcome = std::thread::scope(|threads| {
        threads.spawn(leader.watch(&is_over));
        let mut next = |record: &mut Vec<u8>| await_record(&leader, &input, record);
        let outcome = append_all(log, &mut done, &mut next, &|| leader.in_office(), &failed);
        let forced = log.force_now(done.last).map_err(failed).and_then(|()| leader.check());
        let forced = forced.and_then(|()| done.tell(log.forced()));
        is_over.store(true, Release);
        outcome.and(forced)
    });
    for (id, state, _) in log.replicas() {
        if let ReplicaHealth::Failed(why) = state {
            note!("note: replica {id:x} was given up: {why}; `cairn log promote`, or the next append, repairs it");
        }
    }
    let closed = match outcome {
        Ok(()) => leader.close(),
        Err(failure) => {
            leader.leave();
            Err(failure)
        }
    };
    closed.map_err(|failure| failure.after(&done.to_string()))?;
    Ok(done)
}

fn note(found: &::log::Recovered, log: &Log, asked: usize) {
    if let ::log::Tail::InDoubt { lsn, .. } = found.tail {
        note!("note: record {lsn} was begun and is whole on no replica; it is gone now");
    }
    let live = log.replicas().len();
    if live < asked {
        note!("note: {live} of {asked} replicas take part; `cairn log replicas` says more");
    }
}

/// The next record, once there is one. The wait ends when another leader has taken the log over.
fn await_record(leader: &copies::Leader, input: &Receiver<Input>, record: &mut Vec<u8>) -> Result<bool, Failure> {
    loop {
        leader.check()?;
        match input.recv_timeout(POLL_INTERVAL) {
            Ok(Ok(Some(found))) => *record = found,
            Ok(Ok(None)) | Err(RecvTimeoutError::Disconnected) => return Ok(false),
            Ok(Err(error)) => return Err(input_failed(&error)),
            Err(RecvTimeoutError::Timeout) => continue,
        }
        return Ok(true);
    }
}

/// Reads standard input in a thread: nothing else can be awaited beside it.
#[expect(clippy::disallowed_methods, reason = "it may wait for input for ever, and ends with the process")]
fn read_beside(read: ReadOne, longest: u64) -> Receiver<Input> {
    let (send, receive) = sync_channel(AHEAD);
    std::thread::spawn(move || read_all(read, longest, &send));
    receive
}

fn read_all(read: ReadOne, longest: u64, send: &SyncSender<Input>) {
    let mut input = io::stdin().lock();
    loop {
        let mut record = Vec::new();
        let found = read(&mut input, longest, &mut record).map(|is_one| is_one.then_some(record));
        let is_last = !matches!(found, Ok(Some(_)));
        if send.send(found).is_err() || is_last {
            return;
        }
    }
}

// ---- records --------------------------------------------------------------------------------------------------------

/// Reads one record; false if there is none.
type ReadOne = fn(&mut dyn BufRead, u64, &mut Vec<u8>) -> io::Result<bool>;

fn reader(args: &Append) -> ReadOne {
    if args.binary_len { read_counted } else { read_line }
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

    fn all(read: ReadOne, mut input: &[u8]) -> io::Result<Vec<Vec<u8>>> {
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
