//! What can go wrong, grouped by what the caller can do about it.

use std::time::Duration;

use crate::Why;

/// Every error of this crate. The message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- try again later -------------------------------------------------------------------------------------
    /// No etcd answered in time.
    #[error(
        "no etcd of {endpoints} answered in {waited:?} ({doing}: {why}): try again; look whether most of its members run and can be reached"
    )]
    Unreachable {
        /// What was being done.
        doing: &'static str,
        /// All that were tried.
        endpoints: String,
        /// How long.
        waited: Duration,
        /// What the last attempt met.
        why: String,
    },
    /// The timeout ran out before this candidate was elected.
    #[error("{name} was not elected in {waited:?}, {}: try again, or follow", if *.taken { "another candidate leads" } else { "and no other candidate was" })]
    NotElected {
        /// The candidate.
        name: String,
        /// How long it stood.
        waited: Duration,
        /// Whether there was a leader when it last looked.
        taken: bool,
    },

    // ---- change the configuration ----------------------------------------------------------------------------
    /// An argument makes no sense.
    #[error("{what} is {found:?}, and must be {must}")]
    Argument {
        /// Which.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        must: &'static str,
    },
    /// etcd understood and refused.
    #[error("etcd at {endpoint} refuses ({doing}: {why}): check its address, version and rights")]
    Refused {
        /// The member.
        endpoint: String,
        /// What was being done.
        doing: &'static str,
        /// What it says.
        why: String,
    },
    /// No connection can be prepared with what was given: nothing was sent.
    #[error(
        "no connection to etcd at {endpoint} can be prepared ({why}): check its address, and that the certificates and the private key for etcd are whole, not encrypted, and of each other"
    )]
    Unusable {
        /// The member.
        endpoint: String,
        /// What is wrong.
        why: String,
    },
    /// The endpoints belong to two clusters: each would have a leader.
    #[error("etcd at {endpoint} is of cluster {found:x}, others of {expected:x}: name members of one cluster only")]
    OtherCluster {
        /// The member.
        endpoint: String,
        /// Its cluster.
        found: u64,
        /// The cluster of the first that answered.
        expected: u64,
    },
    /// etcd has been set back, so terms could be used twice.
    #[error(
        "etcd at {endpoint} is at revision {found} and was at {known}: it has lost history; stop all leaders, then use another prefix"
    )]
    HistoryLost {
        /// The member.
        endpoint: String,
        /// Its revision.
        found: u64,
        /// One that had been seen.
        known: u64,
    },
    /// Something else writes below this prefix.
    #[error("etcd's key {key} holds what this program does not write ({why}): use another prefix, or delete the key")]
    ForeignValue {
        /// The key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// The system gives no thread or no event queue.
    #[error("the thread that talks to etcd cannot run ({0}): raise the limits of this process (ulimit -n, -u)")]
    Thread(#[source] std::io::Error),

    // ---- it is lost: stop acting in its name -------------------------------------------------------------------
    /// Leadership is over.
    #[error("leadership of term {term} is over ({said}): accept nothing more in its name; stand again to lead")]
    Lost {
        /// The term.
        term: u64,
        /// Why.
        why: Why,
        /// The same in words, with what the last attempt to keep it met.
        said: String,
    },
    /// Another process announced the same name later.
    #[error("another process has announced itself as {name}: stop one of them, or give it another name")]
    Replaced {
        /// The name.
        name: String,
    },
}

impl Error {
    /// Whether the same call may succeed later, with nothing changed here.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotElected { .. })
    }
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
