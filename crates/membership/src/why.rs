//! Why a leadership, or an announcement, is over.

use std::fmt;

/// Why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// etcd may have given it to another process by now: the last keep-alive that was answered was sent too long ago.
    Expired,
    /// etcd no longer knows the lease, or the key is another process's.
    Gone,
    /// It was given up.
    Resigned,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease could not be kept alive in time",
            Self::Gone => "its key or lease is gone from etcd",
            Self::Resigned => "it was given up",
        })
    }
}
