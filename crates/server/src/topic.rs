//! What is subscribed to.

use std::sync::Arc;

/// What is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Channel,
    Pattern,
    /// A channel of its own kind. In a cluster it would be where its name belongs.
    Shard,
}

impl Of {
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// Of a channel or a pattern.
pub(crate) type Name = Arc<[u8]>;
