//! What can go wrong with a process, and with what an operator asks of a chain.

use crate::Sizes;

/// Why a process cannot start, or has stopped; or why a chain does not do what it is asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The replica's own.
    #[error(transparent)]
    Replica(#[from] crate::Error),
    /// etcd's.
    #[error(transparent)]
    Membership(#[from] membership::Error),
    /// The network's.
    #[error(transparent)]
    Network(#[from] fabric::Error),
    /// A transaction's.
    #[error(transparent)]
    Transaction(#[from] tx::Error),
    /// There is none.
    #[error("there is no chain below {prefix}; look at the prefix, or name the first members of a new chain")]
    NoChain {
        /// Where it was looked for.
        prefix: String,
    },
    /// A view that cannot be.
    #[error("{0}; look at the prefix, and at the first members of a new chain")]
    Chain(String),
    /// The file is a copy of another chain.
    #[error(
        "{path} is not this machine's file of the chain below {prefix}; give the prefix of its own chain, or name a new file: its machine joins with it"
    )]
    OtherChain {
        /// The file.
        path: String,
        /// The chain that it was to serve.
        prefix: String,
    },
    /// The file was copied before this machine's last start.
    #[error(
        "{path} is an older copy of this machine's file: its last start is {found}, and start {known} by another copy may have changed more; put the newest one in its place, or name a path where there is no file, with --new-file: the machine joins with a new one"
    )]
    OldCopy {
        /// The file.
        path: String,
        /// The number of its last start.
        found: u64,
        /// The number of the machine's last start.
        known: u64,
    },
    /// A member has no file.
    #[error(
        "there is no file {path}, and machine {machine} is a member that has had one; look at the path, and whether its directory is mounted, or, if the file is lost, say --new-file: the machine joins with a new one"
    )]
    NoFile {
        /// Where it was looked for.
        path: String,
        /// Which machine.
        machine: u32,
    },
    /// The only member has no file, and was told to make a new one.
    #[error(
        "there is no file {path}, and machine {machine} is the only member of the chain: what it has acknowledged is in its file alone; find that one, or begin a chain of another prefix"
    )]
    LastFile {
        /// Where it was looked for.
        path: String,
        /// Which machine.
        machine: u32,
    },
    /// Another process of the machine runs.
    #[error("machine {machine} runs already, at {address}; end it first, or give this one a number of its own")]
    Runs {
        /// Which.
        machine: u32,
        /// Where it is announced.
        address: String,
    },
    /// What stands at etcd is not a view.
    #[error("what stands at etcd below the prefix is not of a chain ({0}); use another prefix")]
    Foreign(#[from] serde_json::Error),
    /// Another process of the machine has started since.
    #[error("another process of this machine has started since; run one at a time")]
    Superseded,
    /// The system gives no random number.
    #[error("no random number can be had ({0}); see whether /dev/urandom is there")]
    Random(String),
    /// The system gives no thread.
    #[error("no thread can be started ({0}); raise the limits of this process (ulimit -u)")]
    Thread(#[from] std::io::Error),

    // ---- what an operator asks --------------------------------------------------------------------------------
    /// The machine is not known.
    #[error("machine {machine} is neither a member nor announced; members are {members}, announced are {announced}")]
    Unknown {
        /// Which.
        machine: u32,
        /// Those of the view.
        members: String,
        /// Those that run, or did a moment ago.
        announced: String,
    },
    /// It is all there is.
    #[error("machine {machine} is the only member; take another one in first")]
    LastMember {
        /// Which.
        machine: u32,
    },
    /// No other member could go on.
    #[error("machine {machine} is needed: no other member serves ({others}); start another member first")]
    Needed {
        /// Which.
        machine: u32,
        /// The others, and why they do not serve.
        others: String,
    },
    /// No member answers that could say that this is the chain, and that the operator may change it.
    #[error("no member answers ({members}); see whether they run, and have the same secret")]
    Silent {
        /// The members, and what was seen of each.
        members: String,
    },
    /// The machine that is to join does not answer.
    #[error("machine {machine} at {address} does not answer: {why}; see whether it runs there, with the same secret")]
    NoAnswer {
        /// Which.
        machine: u32,
        /// Where it is announced.
        address: String,
        /// What was seen.
        why: String,
    },
    /// Something else answers there.
    #[error(
        "at {address}, where machine {machine} of {prefix} is announced, machine {found} of {of} answers; give each machine an address of its own"
    )]
    OtherAnswers {
        /// Which was looked for.
        machine: u32,
        /// Where.
        address: String,
        /// The chain.
        prefix: String,
        /// Which answered.
        found: u32,
        /// Of which chain.
        of: String,
    },
    /// Its file has other sizes.
    #[error(
        "machine {machine} has a heap of {} bytes and a queue of {}, and the chain's have {} and {}; delete its file, and start it again: a new one has the chain's sizes",
        .found.capacity, .found.queue, .wanted.capacity, .wanted.queue
    )]
    OtherSize {
        /// Which.
        machine: u32,
        /// Its own.
        found: Sizes,
        /// The chain's.
        wanted: Sizes,
    },
    /// The machine that is to be replaced is no member.
    #[error("machine {machine} is no member, so it cannot be replaced; members are {members}")]
    NoMember {
        /// Which.
        machine: u32,
        /// Those of the view.
        members: String,
    },
    /// It has not come about in time.
    #[error("{what} in {seconds} s; it may still come about, look at the chain's status")]
    Late {
        /// What has not.
        what: String,
        /// How long it was waited for.
        seconds: u64,
    },
}
