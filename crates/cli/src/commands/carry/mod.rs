//! `cairn import`, `cairn export`: keys between files and servers. [`source`] gives them one by one, [`target`] writes them, long ones by [`collection`].

mod collection;
mod peer;
mod source;
mod target;
mod unfinished;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use server::rdb::{self, FileWriter};

use self::peer::Peer;
use self::source::{Item, Key, Source, shown};
use self::target::Target;
use super::Outcome;
use crate::args::{Export, Import};
use crate::failure::{Failure, Tame};
use crate::output::{note, say};
use crate::size;

/// Lines about what was refused, at most.
const LINES: u64 = 100;
/// Bytes of memory that a value may take which is written in another form.
const ROOM: u64 = 16 << 30;

pub fn import(args: &Import) -> Outcome {
    let mut source = match (&args.rdb, &args.from) {
        (Some(path), _) => Source::file(path)?,
        (None, Some(url)) => Source::scan(Peer::connect(url)?)?,
        (None, None) => return Err(Failure::new("nothing to import", "give --rdb or --from")),
    };
    let mut target = Target::new(Peer::connect(&args.to)?, args.replace)?;
    let mut report = Report::new();
    let (ended, target_works) = loop {
        let item = match source.next() {
            Ok(Some(item)) => item,
            Ok(None) => break (Ok(()), true),
            Err(failure) => break (Err(failure), true),
        };
        if let Err(failure) = target.put(item) {
            break (Err(failure), false);
        }
        report.refused(&mut target.refused);
        report.bar.set_position(target.counts.keys + target.counts.there);
    };
    // What was read before the source ended is there all the same.
    let flushed = if target_works { target.flush() } else { Ok(()) };
    report.refused(&mut target.refused);
    report.end();
    ended.and(flushed).map_err(|failure| failure.after(&format!("{} copied before", keys(target.counts.keys))))?;
    let counts = &target.counts;
    let mut text = format!("{}, {}", keys(counts.keys), size::human(counts.bytes));
    for (count, one, many) in [
        (counts.functions, "library of functions", "libraries of functions"),
        (
            counts.functions_there,
            "library that was there already, and stays",
            "libraries that were there already, and stay",
        ),
        (
            counts.there,
            "key that was there already, and stays (--replace overwrites it)",
            "keys that were there already, and stay (--replace overwrites them)",
        ),
        (counts.expired, "key that has expired", "keys that have expired"),
        (counts.gone, "key that went meanwhile", "keys that went meanwhile"),
        (counts.unfinished, "part of an interrupted import, left out", "parts of interrupted imports, left out"),
        (counts.refused, "refused: see standard error", "refused: see standard error"),
    ] {
        if count > 0 {
            text += &format!("; {count} {}", if count == 1 { one } else { many });
        }
    }
    say!("{}: {text}", target.name())?;
    Ok(exit_code(counts.refused))
}

fn keys(count: u64) -> String {
    format!("{count} {}", if count == 1 { "key" } else { "keys" })
}

/// 1 if something is not there that should be.
fn exit_code(refused: u64) -> ExitCode {
    ExitCode::from(u8::from(refused > 0))
}

/// What is told while it goes on, on standard error.
struct Report {
    bar: ProgressBar,
    lines: u64,
}

impl Report {
    fn new() -> Self {
        Self { bar: progress("{human_pos} keys  {elapsed}"), lines: 0 }
    }

    fn refused(&mut self, lines: &mut Vec<String>) {
        for line in lines.drain(..) {
            self.lines += 1;
            if self.lines <= LINES {
                self.bar.suspend(|| note!("refused: {}", Tame(&line)));
            }
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
        if self.lines > LINES {
            note!("refused: {} more", self.lines - LINES);
        }
    }
}

pub fn export(args: &Export) -> Outcome {
    let path = &args.rdb;
    if path.exists() {
        return Err(Failure::new(
            format!("{}: there is a file already", path.display()),
            "choose another path, or remove what is there",
        ));
    }
    let mut source = Source::scan(Peer::connect(&args.from)?)?;
    // Under another name until it is whole and synced.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = folder.join(format!(".{name}.unfinished-{}", std::process::id()));
    let failed = |op: &'static str| move |error: io::Error| cannot_write(op, path, &error);
    let written = write(&mut source, &unfinished, path).and_then(|written| {
        // Does not overwrite what has come there in between.
        std::fs::hard_link(&unfinished, path).map_err(failed("create"))?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync"))?;
        Ok(written)
    });
    let _ = std::fs::remove_file(&unfinished); // it has its name, or is of no use
    let Written { keys: count, bytes, refused, unfinished } = written?;
    let mut text = format!("{}, {}", keys(count), size::human(bytes));
    if unfinished > 0 {
        text += &format!("; {unfinished} parts of interrupted imports, left out");
    }
    if refused > 0 {
        text += &format!("; {refused} refused: see standard error");
    }
    say!("{}: {text}", path.display())?;
    Ok(exit_code(refused))
}

struct Written {
    keys: u64,
    bytes: u64,
    refused: u64,
    unfinished: u64,
}

/// Writes to `path`, which is going to be `name`.
fn write(source: &mut Source, path: &Path, name: &Path) -> Result<Written, Failure> {
    let failed = |op: &'static str| move |error: io::Error| cannot_write(op, name, &error);
    let file = File::create_new(path).map_err(failed("create"))?;
    let mut writer = FileWriter::new(BufWriter::new(file)).map_err(failed("write"))?;
    let (mut report, mut refused) = (Report::new(), Vec::new());
    let (mut keys, mut unfinished) = (0, 0);
    while let Some(item) = source.next()? {
        match item {
            Item::Function(code) => writer.function(&code).map_err(failed("write"))?,
            Item::Key(Key { db, key, expires, body, .. }) => match of_version(body) {
                Ok(body) => {
                    writer.key(db, &key, expires, &body).map_err(failed("write"))?;
                    keys += 1;
                    report.bar.set_position(keys);
                }
                Err(error) => refused.push(format!("{}: {error}", shown(db, &key))),
            },
            Item::Gone { .. } => {}
            Item::Refused { what, why } => refused.push(format!("{what}: {why}")),
            Item::Unfinished => unfinished += 1,
        }
        report.refused(&mut refused);
    }
    report.end();
    let buffer = writer.end().map_err(failed("write"))?;
    let file = buffer.into_inner().map_err(|error| failed("write")(error.into_error()))?;
    file.sync_all().map_err(failed("sync"))?;
    let bytes = file.metadata().map_err(failed("read"))?.len();
    Ok(Written { keys, bytes, refused: report.lines, unfinished })
}

/// The same value, in a form that the version of the file has: later ones have others for sets and streams.
fn of_version(body: Vec<u8>) -> rdb::Result<Vec<u8>> {
    if rdb::Value::is_of_version(body.first().copied().unwrap_or_default()) {
        return Ok(body);
    }
    let mut written = Vec::new();
    rdb::Value::of(&body, ROOM)?.write(&mut written);
    Ok(written)
}

fn cannot_write(op: &str, path: &Path, error: &io::Error) -> Failure {
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        let what = format!("{}: {op} failed: {error}", path.display());
        return Failure::new(what, "free space on its file system, or choose another path, and run it again");
    }
    Failure::file(op, path, error)
}

fn progress(template: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    ProgressStyle::with_template(template).map_or(bar.clone(), |style| bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis 7.2 and later have forms that a file of Redis 7.0 must not have.
    #[test]
    fn what_later_versions_write_is_written_as_this_one_does() {
        let listpack = [13, 0, 0, 0, 2, 0, 0x81, b'a', 2, 0x81, b'b', 2, 0xff];
        let set = [&[20, listpack.len() as u8][..], &listpack].concat();
        assert_eq!(of_version(set).unwrap(), [2, 2, 1, b'a', 1, b'b']);
        // No entries, and a group with a consumer: when that was given something is not said any more.
        let [before, behind] =
            [[&[0, 0, 9, 0, 0, 0, 0, 0, 5, 1, 1, b'g', 8, 0, 7, 0, 1, 1, b'c'][..], &[2; 8]].concat(), vec![0]];
        let stream = [&[21][..], &before, &[3; 8], &behind].concat();
        let written = of_version(stream).unwrap();
        assert_eq!(written[0], 19);
        assert!(rdb::Value::of(&written, ROOM).is_ok());
        let same = [0, 1, b'v'].to_vec();
        assert_eq!(of_version(same.clone()).unwrap(), same);
        for form in [6, 7, 22, 24, 25, 99] {
            assert!(of_version(vec![form, 0]).is_err(), "{form}");
        }
    }
}
