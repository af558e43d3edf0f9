//! The log of a store, with copies on other machines, and how it is opened. Without the feature `replication` there is none.

#[cfg(feature = "replication")]
pub(crate) use log::Log;

use crate::error::{Error, Result};

/// The log of a store, and how it is opened.
#[cfg(feature = "replication")]
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    pub(crate) replicas: log::Replicas,
    pub(crate) log: log::Options,
}

#[cfg(feature = "replication")]
impl Copies {
    /// Makes the log.
    pub(crate) fn create(&self) -> Result<Log> {
        Ok(self.log.create_replicated(&self.replicas)?)
    }

    /// Takes it over.
    pub(crate) fn open(&self) -> Result<Log> {
        Ok(self.log.open_replicated(&self.replicas)?.0)
    }
}

/// Whether a log could not be made because there is one.
#[cfg(feature = "replication")]
pub(crate) fn is_there(error: &Error) -> bool {
    matches!(error, Error::Log(error) if matches!(**error, log::Error::QuorumUnavailable { .. }))
}

/// A thread that waits for room in the log has a writer's, and room is made by a thread that takes all of those in turn: a full log refuses, and is
/// [cleaned up](crate::durable::Persistence::trim) then.
#[cfg(feature = "replication")]
pub(crate) fn refusing(log: &log::Options) -> log::Options {
    log.clone().when_full(log::WhenFull::Refuse)
}

/// Never made.
#[cfg(not(feature = "replication"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copies {}

/// Likewise.
#[cfg(not(feature = "replication"))]
pub(crate) enum Log {}

#[cfg(not(feature = "replication"))]
impl Copies {
    pub(crate) fn create(&self) -> Result<Log> {
        match *self {}
    }

    pub(crate) fn open(&self) -> Result<Log> {
        match *self {}
    }
}

#[cfg(not(feature = "replication"))]
impl Log {
    pub(crate) fn close(self) -> Result<()> {
        match self {}
    }
}

#[cfg(not(feature = "replication"))]
pub(crate) fn is_there(_: &Error) -> bool {
    false
}
