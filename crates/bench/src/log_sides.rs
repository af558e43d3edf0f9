//! Logs that are compared: ours under its policies, what others do, and the bytes alone.
//!
//! All are behind [`LogSide`]: each thread has a [`Writer`] that appends records; what is appended is durable when `append` returns, but for at
//! most [`Policy::window`] records.

mod bare;
mod flex;
mod ours;
#[cfg(feature = "peers")]
mod pmemlog;
mod pwrite;
mod replicated;
mod tenants;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use pmem::Stats;

pub use bare::Bare;
pub use flex::Flex;
pub use ours::{Ours, options};
#[cfg(feature = "peers")]
pub use pmemlog::OnPmemlog;
pub use pwrite::Pwrite;
pub use replicated::{Copies, Replicated, Way};
pub use tenants::Tenants;

#[cfg(not(feature = "peers"))]
use crate::engines::NOT_COMPILED;
use crate::{Error, Result};

/// A log with room for some bytes, all of whose pages are there.
pub trait LogSide: Sync {
    /// What that thread appends with; one at a time for each thread.
    ///
    /// # Errors
    /// There are not so many threads.
    fn writer(&self, thread: usize) -> Result<Box<dyn Writer + '_>>;

    /// Makes durable what was appended, then gives all room back. No thread appends meanwhile.
    ///
    /// # Errors
    /// Those of the log.
    fn clean(&self) -> Result<()>;

    /// What it has cost so far; `None` where nothing is counted.
    fn stats(&self) -> Option<Stats>;

    /// What it does to make data durable, in the words of our domains.
    fn domain(&self) -> String;
}

/// One thread's way into a log.
pub trait Writer: Send {
    /// Appends a record.
    ///
    /// # Errors
    /// Those of the log; it is full.
    fn append(&mut self, record: &[u8]) -> Result<()>;

    /// Waits for what [`append`](Self::append) did not wait for, beyond its policy.
    ///
    /// # Errors
    /// Those of the log.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// When a record is forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Before `append` returns.
    Sync,
    /// Every so many records, by their numbers (Arcadia §4.4).
    Frequency(u32),
    /// Every so many records, by a counter that all threads share: group commit.
    Group(u32),
}

impl Policy {
    /// Records that are complete and that a crash takes all the same, at most.
    #[must_use]
    pub fn window(self, threads: usize) -> u64 {
        match self {
            Self::Sync => 0,
            Self::Frequency(every) => u64::from(every) * threads as u64,
            Self::Group(size) => u64::from(size),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Frequency(every) => write!(f, "freq:{every}"),
            Self::Group(size) => write!(f, "group:{size}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.parse() {
            Ok(number @ 1..=RECORDS_MAX) => Ok(number),
            _ => Err(format!("{text:?} is no number from 1 to {RECORDS_MAX}")),
        };
        match text.split_once(':') {
            None if text == "sync" => Ok(Self::Sync),
            Some(("freq", every)) => number(every).map(Self::Frequency),
            Some(("group", size)) => number(size).map(Self::Group),
            _ => Err(format!("{text:?} is no policy: sync, freq:N, group:N")),
        }
    }
}

/// Most records between two forces: half of what a log lets gather by itself.
const RECORDS_MAX: u32 = 512;

/// One that appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appender {
    /// No log: a copy past the cache and a barrier, each thread for itself.
    Bare,
    /// The crate `log`.
    Log(Policy),
    /// libpmemlog.
    Pmemlog,
    /// As FLEX does it, on our pools.
    Flex,
    /// A file, written and synced.
    Pwrite,
}

impl Appender {
    /// Those that ours is compared with, as `--peer` names them.
    pub const OTHERS: [Self; 3] = [Self::Pmemlog, Self::Flex, Self::Pwrite];

    /// Its name as an engine.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Log(_) => "log",
            Self::Pmemlog => "pmemlog",
            Self::Flex => "flex",
            Self::Pwrite => "pwrite",
        }
    }

    /// When its records are durable.
    #[must_use]
    pub fn policy(self) -> Policy {
        match self {
            Self::Log(policy) => policy,
            _ => Policy::Sync,
        }
    }

    /// Sets it up in `dir`, for so many threads, with room for `bytes` of records and their headers. `Ok(Err(why))` if it is not in this build.
    ///
    /// # Errors
    /// Those of what it is made of.
    pub fn make(self, dir: &Path, bytes: u64, threads: usize) -> Result<Result<Box<dyn LogSide>, String>> {
        let path = dir.join(self.to_string().replace(':', "-"));
        Ok(Ok(match self {
            Self::Bare => Box::new(Bare::create(&path, bytes, threads)?),
            Self::Log(policy) => Box::new(Ours::create(&path, bytes, policy, threads)?),
            Self::Flex => Box::new(Flex::create(&path, bytes)?),
            Self::Pwrite => Box::new(Pwrite::create(&path, bytes)?),
            #[cfg(feature = "peers")]
            Self::Pmemlog => Box::new(OnPmemlog::create(&path, bytes)?),
            #[cfg(not(feature = "peers"))]
            Self::Pmemlog => return Ok(Err(NOT_COMPILED.into())),
        }))
    }

    /// What must be in the environment before the process starts; see [`environment`](crate::engines::environment).
    ///
    /// # Errors
    /// No pool can be made in `dir`.
    pub fn environment(self, dir: &Path) -> Result<Option<(&'static str, &'static str)>> {
        match self {
            #[cfg(feature = "peers")]
            Self::Pmemlog => crate::engines::missing_in_environment(peers::FORCE, dir),
            _ => {
                let _ = dir;
                Ok(None)
            }
        }
    }
}

/// The policy of ours, the name of others.
impl fmt::Display for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(policy) => policy.fmt(f),
            other => f.write_str(other.name()),
        }
    }
}

impl FromStr for Appender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let other = Self::OTHERS.into_iter().chain([Self::Bare]).find(|who| who.name() == text);
        let names = "sync, freq:N, group:N, pmemlog, flex, pwrite, bare";
        other.map_or_else(|| text.parse().map(Self::Log).map_err(|_| format!("{text:?} is none of {names}")), Ok)
    }
}

/// What flex and pwrite put before a payload: length, checksum, number.
const HEADER: usize = 16;

fn header(number: u64, payload: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&pmem::crc32c(&[payload]).to_le_bytes());
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

#[cold]
fn full(who: &str) -> Error {
    Error::Wrong { who: who.into(), what: "the log is full".into() }
}

#[cold]
fn stranger(thread: usize) -> Error {
    Error::Parameter(format!("thread {thread} is none of those this log was made for"))
}

#[cfg(test)]
mod tests;
