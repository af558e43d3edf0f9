//! A log with copies in other processes, or none: the same program over both.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use log::{FlushOrder, Log, Lsn, ReplicaHealth};
use pmem::Stats;

use super::ours::{FILL, options};
use super::{LogSide, Policy, RECORDS_MAX, Writer};
use crate::replicas::{Backups, Reach};
use crate::{Error, Result};

/// When an append waits for its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Until it is durable.
    Sync,
    /// Until the one so many records before it is durable: each is sent at once.
    Pipelined(u32),
    /// By the force policy: one in so many records waits, for all of them.
    Frequency(u32),
}

impl Way {
    fn policy(self) -> Policy {
        match self {
            Self::Frequency(every) => Policy::Frequency(every),
            _ => Policy::Sync,
        }
    }

    /// Records that were appended and are not durable, at most.
    #[must_use]
    pub fn window(self, threads: usize) -> u64 {
        match self {
            Self::Pipelined(depth) => u64::from(depth) * threads as u64,
            way => way.policy().window(threads),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipelined(depth) => write!(f, "pipelined:{depth}"),
            way => way.policy().fmt(f),
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "sync" => Ok(Self::Sync),
            Some((name @ ("pipelined" | "freq"), number)) => match number.parse() {
                Ok(number @ 1..=RECORDS_MAX) if name == "freq" => Ok(Self::Frequency(number)),
                Ok(number @ 1..=RECORDS_MAX) => Ok(Self::Pipelined(number)),
                _ => Err(format!("{number:?} is no number from 1 to {RECORDS_MAX}")),
            },
            _ => Err(format!("{text:?} is none of sync, pipelined:N, freq:N")),
        }
    }
}

/// Where the copies of a log are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// How many are in other processes.
    pub backups: usize,
    /// One is the leader's own.
    pub local: bool,
    /// When that one is flushed.
    pub order: FlushOrder,
    /// How those are reached.
    pub reach: Reach,
}

/// A log, and the processes that have copies of it.
struct Led {
    /// Declared first, so that it is closed before they go.
    log: Log,
    _backups: Backups,
}

/// One way into a log. Others may share the log.
pub struct Replicated {
    led: Arc<Led>,
    way: Way,
}

impl Replicated {
    /// A new log in `dir`, whose files have names that begin with `name`, with these ways into it, which all have the same policy; with room for `bytes`, all
    /// of whose pages are there, for so many threads. Every copy has to have a record before it is durable.
    ///
    /// # Errors
    /// Those of the log; a copy that does not start.
    pub fn create(
        dir: &Path,
        name: &str,
        bytes: u64,
        copies: Copies,
        ways: &[Way],
        threads: usize,
    ) -> Result<Vec<Self>> {
        let Some(policy) = ways.first().map(|way| way.policy()) else { return Ok(Vec::new()) };
        let options = options(bytes, policy, threads).idle(None);
        let backups = Backups::start(dir, name, copies.backups, copies.reach)?;
        let own = dir.join(name);
        let log = if copies.backups == 0 {
            options.create(own)?
        } else {
            let replicas = backups.replicas().order(copies.order);
            options.create_replicated(&if copies.local { replicas.local(own) } else { replicas })?
        };
        let fill = vec![0; FILL];
        for _ in 0..bytes / (FILL as u64 + 64) {
            log.append(&fill)?;
        }
        log.truncate_all()?;
        let led = Arc::new(Led { log, _backups: backups });
        Ok(ways.iter().map(|&way| Self { led: led.clone(), way }).collect())
    }

    /// An error once a copy was given up: fewer are measured than were asked for.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<()> {
        let copies = self.led.log.replicas();
        let failed = copies.into_iter().find_map(|(_, state, _)| match state {
            ReplicaHealth::Live => None,
            ReplicaHealth::Failed(why) => Some(why),
        });
        match failed {
            None => Ok(()),
            Some(why) => Err(Error::Wrong { who: "a backup".into(), what: format!("it was given up: {why}") }),
        }
    }
}

impl LogSide for Replicated {
    fn writer(&self, _: usize) -> Result<Box<dyn Writer + '_>> {
        let log = &self.led.log;
        Ok(match self.way {
            Way::Pipelined(depth) => Box::new(Pipelined { log, depth: depth as usize, under_way: VecDeque::new() }),
            Way::Sync | Way::Frequency(_) => Box::new(Appending(log)),
        })
    }

    fn clean(&self) -> Result<()> {
        self.check()?;
        Ok(self.led.log.truncate_all()?)
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.led.log.pool().stats())
    }

    fn domain(&self) -> String {
        self.led.log.pool().domain().to_string()
    }
}

struct Appending<'e>(&'e Log);

impl Writer for Appending<'_> {
    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<()> {
        Ok(self.0.append(record).map(drop)?)
    }
}

struct Pipelined<'e> {
    log: &'e Log,
    depth: usize,
    under_way: VecDeque<Lsn>,
}

impl Writer for Pipelined<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let mut reservation = self.log.reserve(record.len())?;
        reservation.copy(0, record);
        self.under_way.push_back(reservation.complete()?);
        self.log.post()?;
        if self.under_way.len() > self.depth
            && let Some(oldest) = self.under_way.pop_front()
        {
            self.log.force_now(oldest)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(last) = self.under_way.back() {
            self.log.force_now(*last)?;
        }
        self.under_way.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names() {
        for way in [Way::Sync, Way::Pipelined(16), Way::Frequency(512)] {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        for text in ["", "pipelined", "pipelined:0", "freq:513", "group:8"] {
            assert!(text.parse::<Way>().is_err(), "{text}");
        }
        assert_eq!([Way::Sync, Way::Pipelined(4), Way::Frequency(8)].map(|way| way.window(2)), [0, 8, 16]);
    }

    /// What a way leaves open is never more than it says, and nothing once it is finished; group commit aside, which has no finish.
    #[test]
    fn what_is_under_way_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let copies = Copies { backups: 1, local: true, order: FlushOrder::Beside, reach: Reach::default() };
        let ways = [Way::Sync, Way::Pipelined(3)];
        let sides = Replicated::create(dir.path(), "log", 1 << 20, copies, &ways, 1).unwrap();
        for side in &sides {
            let mut writer = side.writer(0).unwrap();
            for _ in 0..100 {
                writer.append(b"a record").unwrap();
                let now = side.led.log.vulnerability_window().now;
                assert!(now <= side.way.window(1), "{now} of {}", side.way);
            }
            writer.finish().unwrap();
            assert_eq!(side.led.log.vulnerability_window().now, 0);
            side.clean().unwrap();
        }
    }
}
