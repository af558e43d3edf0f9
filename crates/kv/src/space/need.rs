//! What room is asked for.

use crate::error::Error;

/// What a segment is asked for: each leaves something to those above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// For a checkpoint.
    Checkpoint,
    /// For the last few versions in a segment, so that such a transaction finds room.
    Last,
    /// For other versions that are moved for it.
    Rescue,
    /// For a transaction that takes out more than it puts in.
    Urgent,
    /// For what is committed already, by the leader.
    Repeat,
    /// For versions that are moved otherwise.
    Move,
    /// For one that takes out as much as it puts in.
    Replace,
    /// For new data.
    Data,
}

impl Need {
    /// Of a transaction for which everything is moved that gains anything.
    pub(super) fn is_urgent(self) -> bool {
        matches!(self, Self::Urgent | Self::Repeat)
    }
}

impl Error {
    /// What it was that there was no room for.
    pub(crate) fn refused(&self) -> Option<Need> {
        match self {
            Self::Full { deletes: true, .. } => Some(Need::Urgent),
            Self::Full { overwrites: true, .. } => Some(Need::Replace),
            Self::Full { .. } => Some(Need::Data),
            _ => None,
        }
    }
}
