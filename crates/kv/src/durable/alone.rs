//! In place of `leading`, without the feature `replication`: no store is given a log with copies, so there is nothing that could be called.

use crate::copies::Log;
use crate::durable::bound::Bound;
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::options::Durability;
use crate::writers::work::Work;

/// Never made.
pub(crate) enum Leading {}

/// Likewise: without copies no options have that durability.
pub(super) enum Replicated {}

impl Replicated {
    pub(super) fn of(_: Durability) -> Option<Self> {
        None
    }

    pub(super) fn leading(&self) -> Option<&Leading> {
        match *self {}
    }

    pub(super) fn is_cornered(&self) -> bool {
        match *self {}
    }

    pub(super) fn into_log(self) -> Option<Log> {
        match self {}
    }
}

impl Leading {
    pub(super) fn append(&self, _: &Bound, _: &Work, _: Failpoints, _: impl FnOnce()) -> Result<u64> {
        match *self {}
    }

    pub(crate) fn check(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn is_filled(&self) -> bool {
        match *self {}
    }

    pub(super) fn trim(&self, _: bool, _: Failpoints, _: impl FnOnce() -> Result<u64>) -> Result<()> {
        match *self {}
    }
}

pub(super) fn is_in_doubt(_: &Error) -> bool {
    false
}
