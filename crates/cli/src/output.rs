//! Standard output and standard error: every command prints through here.
//!
//! A write that fails, as on a full disk, is an error of the command. A reader that has left is none: the rest is thrown away, and the command ends with the exit code of
//! what it did. What cannot be said on standard error is not said.
//!
//! A standard output that is closed is none: before `main` Rust opens `/dev/null` in its place, for reading and writing, and so does a program that asks for no output
//! (Python's `DEVNULL`). Nothing tells one from the other, so neither is an error.

use std::fmt;
use std::io::{self, ErrorKind, Write, stderr, stdout};

use crate::failure::Failure;

/// Prints a line on standard output, as `println!` does where nothing can fail.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Prints a line on standard error.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::aside(format_args!($($text)*)) };
}

pub(crate) use {note, say};

/// Standard output, where a reader that has left is no error.
pub struct Standard;

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match stdout().write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match stdout().flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

/// Text as it is, without an end of line.
pub fn text(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    Standard.write_fmt(text).map_err(|error| Failure::output(&error))
}

/// For [`say!`].
pub fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    self::text(format_args!("{text}\n"))
}

/// For [`note!`].
pub fn aside(text: fmt::Arguments<'_>) {
    let _ = writeln!(stderr().lock(), "{text}"); // there is nowhere else to say it
}

/// What is printed is on its way when a command has ended well.
pub fn finish() -> Result<(), Failure> {
    Standard.flush().map_err(|error| Failure::output(&error))
}
