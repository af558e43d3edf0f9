//! `cairn kv shell`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use kv::{Isolation, Keys, Options, Store, Transaction};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::super::Outcome;
use super::{copy, format, stats};
use crate::args::{Format, Shell};
use crate::failure::Failure;
use crate::output::{Standard, say};

const HELP: &str = "\
get KEY                   print its value
put KEY VALUE [SECONDS]   set it, to be gone after so many seconds
delete KEY...             remove keys; del for short
scan [PREFIX] [OPTIONS]   print pairs whose keys begin so
range FROM TO [OPTIONS]   print pairs from the first key to before the second
    --reverse, --keys, --limit N
begin [snapshot]          start a transaction, serializable unless told otherwise
commit, abort             end it; without one each command is a transaction of its own
stats                     how full the store is
backup FILE               write a copy of what is committed
quit                      leave; a transaction is aborted

Words are parted by spaces; \"two words\" in quotes are one; \\t \\n \\\\ \\\" and \\x00 to \\xff stand for bytes.
A line that begins with # is a comment.";

/// Pairs that scan prints in the shell, unless told otherwise.
const SHOWN: u64 = 1000;

pub fn run(args: &Shell) -> Outcome {
    let path = &args.path;
    super::write(path, &Options::new().verify(true), |store| {
        let mut session = Session { path, store, tx: None };
        if io::stdin().is_terminal() { session.talk() } else { session.script(&mut io::stdin().lock()) }
    })
}

struct Session<'s> {
    path: &'s Path,
    store: &'s Store,
    tx: Option<Transaction<'s>>,
}

/// Why a command was not done.
enum Stop {
    /// The store's word.
    Store(kv::Error),
    Failed(Failure),
    /// What was wrong with the command.
    Usage(String),
    Output(io::Error),
}

impl From<kv::Error> for Stop {
    fn from(error: kv::Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Usage(why)
    }
}

/// Whether there is more to come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    More,
    Quit,
}

impl Session<'_> {
    /// With a person, who is told what went wrong and goes on.
    fn talk(&mut self) -> Outcome {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("the terminal: {error}"), "give the commands on standard input instead")
        };
        let mut editor = DefaultEditor::new().map_err(|error| failed(&error))?;
        say!("{}: {} keys; `help` lists the commands", self.path.display(), self.store.stats().entries)?;
        loop {
            let prompt = if self.tx.is_some() { "kv*> " } else { "kv> " };
            let line = match editor.readline(prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(ExitCode::SUCCESS),
                Err(error) => return Err(failed(&error)),
            };
            // It only helps to type less.
            let _ = editor.add_history_entry(line.as_str());
            // What is pasted may be several.
            for line in line.lines() {
                match self.command(line, &mut Standard) {
                    Ok(Next::More) => {}
                    Ok(Next::Quit) => return Ok(ExitCode::SUCCESS),
                    Err(stop) => say!("{}", self.failure(stop))?,
                }
            }
        }
    }

    /// The first command that fails is the last.
    fn script(&mut self, input: &mut dyn BufRead) -> Outcome {
        let mut out = io::BufWriter::new(io::stdout().lock());
        for (number, line) in (1..).zip(input.lines()) {
            let line = line.map_err(|error| Failure::file("read", Path::new("standard input"), &error))?;
            let done = self.command(&line, &mut out);
            // A program that drives this by a pipe waits for the answer.
            match (done, out.flush()) {
                (Err(Stop::Output(error)), _) | (Ok(_), Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    break;
                }
                (Err(stop), _) => return Err(self.failure(stop).after(&format!("line {number}"))),
                (Ok(_), Err(error)) => return Err(self.failure(error.into())),
                (Ok(Next::Quit), Ok(())) => return Ok(ExitCode::SUCCESS),
                (Ok(Next::More), Ok(())) => {}
            }
        }
        match self.tx.take() {
            Some(_) => Err(Failure::new(
                "the last transaction was not committed, and is aborted".to_owned(),
                "end it with `commit`, or with `abort` or `quit` if that is meant",
            )),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    fn failure(&self, stop: Stop) -> Failure {
        match stop {
            Stop::Store(error) => Failure::kv(self.path, &error),
            Stop::Failed(failure) => failure,
            Stop::Usage(why) => Failure::new(why, "`help` lists the commands"),
            Stop::Output(error) => Failure::output(&error),
        }
    }

    fn command(&mut self, line: &str, out: &mut impl Write) -> Result<Next, Stop> {
        let words = words(line.as_bytes())?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match words[..] {
            [] => {}
            [b"help" | b"?"] => writeln!(out, "{HELP}")?,
            [b"quit" | b"exit"] => return Ok(Next::Quit),
            [b"get", key] => self.get(key, out)?,
            [b"put", key, value] => self.put(key, value, None, out)?,
            [b"put", key, value, seconds] => self.put(key, value, Some(number(seconds)?), out)?,
            [b"delete" | b"del", _, ..] => self.delete(&words[1..], out)?,
            [b"range", from, to, ref options @ ..] => {
                self.scan(Keys::from(from).until(to), Look::parse(options)?, out)?;
            }
            [b"scan", ref rest @ ..] => {
                let (prefix, options) = match rest {
                    [prefix, options @ ..] if !prefix.starts_with(b"--") => (*prefix, options),
                    options => (&b""[..], options),
                };
                self.scan(Keys::prefix(prefix), Look::parse(options)?, out)?;
            }
            [b"begin"] | [b"begin", b"serializable"] => self.begin(Isolation::Serializable, out)?,
            [b"begin", b"snapshot"] => self.begin(Isolation::Snapshot, out)?,
            [b"commit"] => {
                let at = self.tx.take().ok_or_else(no_transaction)?.commit()?;
                writeln!(out, "committed at {at}")?;
            }
            [b"abort" | b"rollback"] => {
                self.tx.take().ok_or_else(no_transaction)?.abort();
                writeln!(out, "aborted")?;
            }
            [b"stats"] => stats::print(out, &stats::collect(self.store)?)?,
            [b"backup", file] => {
                let target = PathBuf::from(String::from_utf8_lossy(file).into_owned());
                let made = self.store.backup(&target);
                let made = made.map_err(|error| Stop::Failed(copy::failed(self.path, &target, &error)))?;
                writeln!(out, "{} pairs as of {}", made.pairs, made.timestamp)?;
            }
            [command, ..] => return Err(usage(command).into()),
        }
        Ok(Next::More)
    }

    fn begin(&mut self, level: Isolation, out: &mut impl Write) -> Result<(), Stop> {
        if self.tx.is_some() {
            return Err("there is a transaction already: commit or abort it".to_owned().into());
        }
        let tx = self.store.begin(level)?;
        writeln!(out, "{level}, sees up to {}", tx.snapshot())?;
        self.tx = Some(tx);
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut impl Write) -> Result<(), Stop> {
        let show = |value: Option<&[u8]>, out: &mut dyn Write| match value {
            Some(value) => format::value(&mut &mut *out, value, Format::Plain).and_then(|()| writeln!(out)),
            None => writeln!(out, "(no value)"),
        };
        match &self.tx {
            Some(tx) => show(tx.get(key)?, out)?,
            None => self.store.view(key, |value| show(value, out))??,
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8], seconds: Option<u64>, out: &mut impl Write) -> Result<(), Stop> {
        let expires = seconds.map(|seconds| super::moment(Duration::from_secs(seconds.min(1 << 40))));
        let had = match (&mut self.tx, expires) {
            (Some(tx), None) => tx.put(key, value)?,
            (Some(tx), Some(at)) => tx.put_until(key, value, at)?,
            (None, None) => self.store.put(key, value)?,
            (None, Some(at)) => self.store.put_until(key, value, at)?,
        };
        Ok(writeln!(out, "{}", if had { "replaced" } else { "new" })?)
    }

    fn delete(&mut self, keys: &[&[u8]], out: &mut impl Write) -> Result<(), Stop> {
        let all = |tx: &mut Transaction<'_>| keys.iter().try_fold(0, |n, key| Ok(n + u64::from(tx.delete(key)?)));
        let deleted = match &mut self.tx {
            Some(tx) => all(tx)?,
            None => self.store.transact(all)?,
        };
        Ok(writeln!(out, "{deleted} deleted")?)
    }

    fn scan(&self, keys: Keys, look: Look, out: &mut impl Write) -> Result<(), Stop> {
        let keys = if look.reverse { keys.reverse() } else { keys };
        let snapshot;
        let mut pairs = match &self.tx {
            Some(tx) => tx.scan(keys),
            None => {
                snapshot = self.store.snapshot()?;
                snapshot.scan(keys)
            }
        };
        for _ in 0..look.limit.unwrap_or(SHOWN) {
            let Some((key, value)) = pairs.next().transpose()? else { return Ok(()) };
            format::pair(out, Format::Plain, key, (!look.keys).then_some(value), pairs.expires())?;
        }
        if look.limit.is_none() && pairs.next().transpose()?.is_some() {
            writeln!(out, "... there are more: --limit N")?;
        }
        Ok(())
    }
}

/// How a range is looked at.
#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    reverse: bool,
    keys: bool,
    limit: Option<u64>,
}

impl Look {
    fn parse(mut options: &[&[u8]]) -> Result<Self, String> {
        let mut look = Self::default();
        while let [option, rest @ ..] = options {
            options = rest;
            match (*option, rest) {
                (b"--reverse", _) => look.reverse = true,
                (b"--keys", _) => look.keys = true,
                (b"--limit", [limit, rest @ ..]) => {
                    look.limit = Some(number(limit)?);
                    options = rest;
                }
                _ => return Err(format!("{:?} is no option", String::from_utf8_lossy(option))),
            }
        }
        Ok(look)
    }
}

fn number(text: &[u8]) -> Result<u64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("{:?} is no number", String::from_utf8_lossy(text)))
}

fn no_transaction() -> Stop {
    Stop::Usage("there is no transaction: `begin` starts one".into())
}

/// What is wrong with a command that was not understood.
fn usage(command: &[u8]) -> String {
    let command = String::from_utf8_lossy(command);
    let line = HELP.lines().find(|line| line.split([' ', ',']).next() == Some(&command));
    match line.and_then(|line| line.split("  ").next()) {
        Some(right) => format!("usage: {right}"),
        None => format!("there is no command {command:?}"),
    }
}

/// The words of a line; none of a comment.
fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut rest = line.trim_ascii();
    if rest.starts_with(b"#") {
        return Ok(words);
    }
    while let Some((letter, behind)) = rest.split_first() {
        rest = behind;
        match letter {
            b'"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            b'\\' => word.get_or_insert_default().push(format::escaped(&mut rest)?),
            b' ' | b'\t' if !quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(*letter),
        }
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_words() {
        let words = |line: &str| words(line.as_bytes());
        assert_eq!(words("  put a\t b ").unwrap(), [b"put", &b"a"[..], b"b"]);
        assert_eq!(
            words(r#"put "two words" "" \x00\"#.trim_end_matches('\\')).unwrap(),
            [b"put", &b"two words"[..], b"", b"\0"]
        );
        assert_eq!(words(r#"a"b c"d \" \\ \ "#).unwrap_err(), "a backslash is the last character; write \\\\ for one");
        assert_eq!(words(r#"a"b c"d \" \\"#).unwrap(), [&b"ab cd"[..], b"\"", b"\\"]);
        assert!(words("# put a b").unwrap().is_empty());
        assert!(words("").unwrap().is_empty());
        assert!(words("put \"a").is_err());
        assert!(words("put \\q").is_err());
    }

    #[test]
    fn options() {
        let limit = Look { reverse: true, keys: false, limit: Some(7) };
        assert_eq!(Look::parse(&[b"--limit", b"7", b"--reverse"]), Ok(limit));
        for wrong in [&[&b"--limit"[..]][..], &[b"--limit", b"x"], &[b"--fast"]] {
            assert!(Look::parse(wrong).is_err());
        }
    }

    #[test]
    fn a_wrong_command_is_shown_the_right_way() {
        assert_eq!(usage(b"put"), "usage: put KEY VALUE [SECONDS]");
        assert_eq!(usage(b"begin"), "usage: begin [snapshot]");
        assert_eq!(usage(b"commit"), "usage: commit, abort");
        assert_eq!(usage(b"frob"), "there is no command \"frob\"");
    }
}
