//! In place of `replicated`, without the feature `replication`: no store is given a log with copies, so there is nothing that could be called.

use pmem::Domain;

use crate::bounded::Bound;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::options::Durability;
use crate::work::Work;

/// Never made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copies {}

/// Likewise.
pub(crate) enum Log {}

/// Likewise.
pub(crate) enum Leading {}

/// Likewise: without copies no options have that durability.
pub(crate) enum Replicated {}

impl Copies {
    pub(crate) fn create(&self) -> Result<Log> {
        match *self {}
    }

    pub(crate) fn open(&self) -> Result<Log> {
        match *self {}
    }
}

impl Log {
    pub(crate) fn close(self) -> Result<()> {
        match self {}
    }
}

impl Replicated {
    pub(crate) fn of(_: Durability) -> Option<Self> {
        None
    }

    pub(crate) fn leading(&self) -> Option<&Leading> {
        match *self {}
    }

    pub(crate) fn is_cornered(&self) -> bool {
        match *self {}
    }

    pub(crate) fn into_log(self) -> Option<Log> {
        match self {}
    }
}

impl Leading {
    pub(crate) fn append(&self, _: &Bound, _: &Work, _: Failpoints, _: impl FnOnce()) -> Result<u64> {
        match *self {}
    }

    pub(crate) fn check(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn is_filled(&self) -> bool {
        match *self {}
    }
}

pub(crate) fn is_there(_: &Error) -> bool {
    false
}

pub(crate) fn is_in_doubt(_: &Error) -> bool {
    false
}

impl Core {
    pub(crate) fn leading(&self) -> Result<&Leading> {
        self.replicated.as_ref().and_then(Replicated::leading).ok_or(Error::Follows)
    }

    /// Whether a commit waits for a device.
    pub(crate) fn waits(&self) -> bool {
        self.pool.domain() == Domain::File
    }

    pub(crate) fn follows(&self) -> bool {
        false
    }

    pub(crate) fn trim(&self, leading: &Leading, _: bool) -> Result<()> {
        match *leading {}
    }

    pub(crate) fn take_over(&self, log: Log) -> Result<()> {
        match log {}
    }
}
