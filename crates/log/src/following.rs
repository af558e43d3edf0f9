//! A follower as an iterator.

use std::time::Duration;

use crate::Lsn;
use crate::error::Result;
use crate::follower::Follower;

/// Between two looks for damage, if nothing comes.
const LOOK: Duration = Duration::from_secs(1);

/// The records of a log that another process may be writing, each when it is durable: see [`Log::follow`](crate::Log::follow). It ends after an error.
#[derive(Debug)]
pub struct Following {
    follower: Follower,
    /// It ends when nothing has come for that long.
    idle: Option<Duration>,
    ended: bool,
}

impl Following {
    pub(crate) fn new(follower: Follower) -> Self {
        Self { follower, idle: None, ended: false }
    }

    /// Ends it when no record has come for about this long.
    #[must_use]
    pub fn until_idle(self, time: Duration) -> Self {
        Self { idle: Some(time), ..self }
    }
}

impl Iterator for Following {
    type Item = Result<(Lsn, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.follower.wait(self.idle.unwrap_or(LOOK)).transpose() {
                Some(record) => {
                    self.ended = record.is_err();
                    return Some(record);
                }
                None => self.ended = self.idle.is_some(),
            }
        }
        None
    }
}

impl std::iter::FusedIterator for Following {}
