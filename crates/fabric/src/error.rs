//! What can go wrong, grouped by what the caller can do about it.

use std::io;
use std::time::Duration;

use pmem::ErrorKind;

use crate::Rights;

/// Every error of this crate. The message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- connect again ---------------------------------------------------------------------------------------
    /// The connection is over.
    #[error("the connection to {peer} is over: {reason}; connect again")]
    Closed {
        /// The other end.
        peer: String,
        /// Why.
        reason: Reason,
    },
    /// There is no way to the peer.
    #[error("{peer} cannot be reached: {what}; see whether it runs and the network lets through, then connect again")]
    Unreachable {
        /// The other end.
        peer: String,
        /// What was seen.
        what: String,
    },

    // ---- change the call -------------------------------------------------------------------------------------
    /// More bytes than one operation takes. The connection stays.
    #[error("a {operation} of {len} bytes is longer than one may be ({max}); make several of it")]
    TooLong {
        /// Write, read or message.
        operation: &'static str,
        /// Bytes asked for.
        len: u64,
        /// Most there may be.
        max: u64,
    },
    /// As many reads as may wait for their answers. The connection stays.
    #[error("{max} reads from {peer} are not answered yet; poll for their answers, then read on")]
    TooManyReads {
        /// The other end.
        peer: String,
        /// Most there may be.
        max: usize,
    },

    // ---- change the options ----------------------------------------------------------------------------------
    /// The other end does not take this one for a peer, or this one not the other.
    #[error(
        "{peer} is not taken for a peer: {what}; give both ends the same secret, certificates of one root, and the same version of the program"
    )]
    NotTrusted {
        /// The other end.
        peer: String,
        /// What was seen.
        what: String,
    },
    /// No peer would have to prove who it is.
    #[error("neither a secret nor certificates are given; give one, or say in the options that anyone is trusted")]
    NoTrust,
    /// A secret that can be guessed.
    #[error("a secret of {len} bytes can be guessed; take {min} random ones or more")]
    WeakSecret {
        /// Bytes it has.
        len: usize,
        /// Fewest.
        min: usize,
    },
    /// Certificates or keys cannot be used.
    #[error("TLS: {what}; see what is in the files")]
    Tls {
        /// Which, and why.
        what: String,
    },

    // ---- look at this machine --------------------------------------------------------------------------------
    /// libfabric, or its provider, cannot do something.
    #[error(
        "libfabric's provider {provider}: {what}: {text} ({code}); see whether the provider is there and its network up"
    )]
    Provider {
        /// Which.
        provider: String,
        /// What it was to do.
        what: &'static str,
        /// Its error number.
        code: i32,
        /// ... in words.
        text: String,
    },
    /// A window, or something of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Closed { .. } | Self::Unreachable { .. } => ErrorKind::Unavailable,
            Self::TooManyReads { .. } => ErrorKind::InUse,
            Self::TooLong { .. }
            | Self::NotTrusted { .. }
            | Self::NoTrust
            | Self::WeakSecret { .. }
            | Self::Tls { .. } => ErrorKind::Misuse,
            Self::Provider { .. } | Self::Io(_) => ErrorKind::System,
        }
    }

    /// What to do next: [`ErrorKind::advice`] of its kind.
    pub fn advice(&self) -> &'static str {
        self.kind().advice()
    }
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// This end closed it, or dropped a half of it.
    #[error("it was closed at this end")]
    Here,
    /// The peer closed it. What it handed over before has arrived.
    #[error("the peer closed it")]
    Peer,
    /// The peer or the way to it is gone. What was under way may have arrived or not.
    #[error("it was lost ({what})")]
    Lost {
        /// What was seen.
        what: String,
    },
    /// The peer took nothing for that long, or let too much queue up.
    #[error("the peer did not take what was sent for {waited:?}")]
    Slow {
        /// How long.
        waited: Duration,
    },
    /// The peer did what it may not.
    #[error("the peer tried what it may not: {0}")]
    PeerViolated(Violation),
    /// This end did what it may not: the peer says so, and has closed it.
    #[error("this end tried what it may not: {0}")]
    Violated(Violation),
    /// Access to a window that hardware reaches was taken away, at either end: the connection goes with it.
    #[error("access to a window was taken away")]
    Revoked,
    /// What came is not what a peer sends.
    #[error("the peer sent what makes no sense: {what}")]
    Malformed {
        /// What was wrong.
        what: String,
    },
    /// A window could not be written or read; at the end that has it, or at the other, which was told.
    #[error("the window failed: {what}")]
    Window {
        /// What it said.
        what: String,
    },
}

/// What an end may not do with the other's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It has not the right.
    #[error("{wanted} to a window with {given}")]
    Rights {
        /// What it takes.
        wanted: Rights,
        /// What there was.
        given: Rights,
    },
    /// There is not as much.
    #[error("{len} bytes at {offset} of a window of {window}")]
    Bounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes there are, 0 also if there is no window.
        window: u64,
    },
}
