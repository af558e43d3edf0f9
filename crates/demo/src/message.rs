//! What a worker says: one line each, written in one piece. A pipe keeps pieces of up to 4096 bytes whole.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An update: a key gets a version, or is deleted under that version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) key: u64,
    pub(crate) version: u64,
    pub(crate) live: bool,
}

/// An update that is about to be made; its version is found in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) key: u64,
    pub(crate) live: bool,
    /// In the thread's journal.
    pub(crate) number: u64,
}

/// One measured round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) ops: u64,
    /// Transactions that changed something.
    pub(crate) changes: u64,
    pub(crate) ns: u64,
    pub(crate) drains: u64,
    pub(crate) media_bytes: u64,
    pub(crate) aborts: u64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    /// Begins to open the pool.
    Opening,
    /// Has opened it, in so many nanoseconds, or made and filled it.
    Ready { ns: u64 },
    /// A thread's update has been committed, and which comes next.
    Step { thread: usize, done: Option<Update>, next: Option<Announced> },
    /// A round is over.
    Round(Round),
    /// Closed the pool; ends.
    Closed,
    /// Cannot go on.
    Failed(String),
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => f.write_str("opening"),
            Self::Ready { ns } => write!(f, "ready {ns}"),
            Self::Step { thread, done, next } => {
                write!(f, "step {thread}")?;
                match done {
                    Some(Update { key, version, live }) => write!(f, " {key} {version} {}", u8::from(*live))?,
                    None => f.write_str(" - - -")?,
                }
                match next {
                    Some(Announced { key, live, number }) => write!(f, " {key} {} {number}", u8::from(*live)),
                    None => f.write_str(" - - -"),
                }
            }
            Self::Round(round) => write!(f, "round {}", serde_json::to_string(round).map_err(|_| fmt::Error)?),
            Self::Closed => f.write_str("closed"),
            Self::Failed(why) => write!(f, "failed {}", why.escape_debug()),
        }
    }
}

impl FromStr for Message {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let parsed = match verb {
            "opening" => Some(Self::Opening),
            "ready" => rest.parse().ok().map(|ns| Self::Ready { ns }),
            "step" => step(rest),
            "round" => serde_json::from_str(rest).ok().map(Self::Round),
            "closed" => Some(Self::Closed),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        };
        parsed.ok_or_else(|| format!("said {line:?}"))
    }
}

fn step(rest: &str) -> Option<Message> {
    let mut words = rest.split(' ');
    let thread = words.next()?.parse().ok()?;
    let mut word = || -> Option<Option<u64>> {
        match words.next()? {
            "-" => Some(None),
            word => word.parse().ok().map(Some),
        }
    };
    let done = match (word()?, word()?, word()?) {
        (Some(key), Some(version), Some(live)) => Some(Update { key, version, live: live != 0 }),
        (None, None, None) => None,
        _ => return None,
    };
    let next = match (word()?, word()?, word()?) {
        (Some(key), Some(live), Some(number)) => Some(Announced { key, live: live != 0, number }),
        (None, None, None) => None,
        _ => return None,
    };
    words.next().is_none().then_some(Message::Step { thread, done, next })
}

/// Standard output without a buffer: what was said has left the process.
#[derive(Debug)]
pub(crate) struct Mouth(File);

impl Mouth {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(io::stdout().as_fd().try_clone_to_owned()?.into()))
    }

    /// Says it in one piece; `buffer` is to be used again.
    pub(crate) fn say(&self, message: &Message, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        writeln!(buffer, "{message}")?;
        (&self.0).write_all(buffer)
    }

    pub(crate) fn say_once(&self, message: &Message) -> io::Result<()> {
        self.say(message, &mut Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let round = Round {
            ops: 1,
            changes: 2,
            ns: 3,
            drains: 4,
            media_bytes: 5,
            aborts: 6,
            p50_ns: 0.5,
            p99_ns: 1e9,
            p999_ns: 7.0,
        };
        let done = Some(Update { key: 7, version: u64::MAX, live: false });
        let next = Some(Announced { key: 0, live: true, number: 9 });
        for message in [
            Message::Opening,
            Message::Ready { ns: 12 },
            Message::Step { thread: 3, done, next },
            Message::Step { thread: 0, done: None, next },
            Message::Step { thread: 0, done, next: None },
            Message::Round(round),
            Message::Closed,
            Message::Failed("no space".into()),
        ] {
            assert_eq!(message.to_string().parse(), Ok(message));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["", "hello", "ready", "ready x", "step", "step 0 1 - 1 - - -", "step 0 - - - - - - -", "round {}"]
        {
            assert!(line.parse::<Message>().is_err(), "{line}");
        }
        assert_eq!(Message::Failed("two\nlines".into()).to_string().lines().count(), 1);
    }
}
