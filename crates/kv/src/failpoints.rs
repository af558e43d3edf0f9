//! Ways to leave single steps of the protocol out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that a store can be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "failpoints"), allow(unreachable_pub, dead_code))]
pub enum Step {
    /// A writer announces itself at the leaves it will change, before it has a timestamp.
    Announce,
    /// A reader waits for a writer that prepares with a smaller timestamp.
    AwaitPreparing,
    /// A put by itself compares its key with that of the version it takes for its own.
    CompareKeys,
    /// A key that is not where one with its hash was is looked for where it belongs.
    LookTwice,
    /// Upkeep takes out a tombstone if it is the one that it means, not another one at its place.
    KnowTombstones,
    /// ... and stores the line with the checksum behind that.
    ChecksumLast,
    /// Reads are validated.
    Validate,
    /// Scans are validated.
    ValidateScans,
    /// The checksum of a record covers its value.
    ChecksumAll,
    /// Recovery verifies checksums.
    VerifyChecksum,
    /// A transaction counts only if all of its records arrived.
    WholeTransactions,
    /// The barrier of a commit.
    CommitBarrier,
    /// The barrier before a checkpoint is named.
    CheckpointBarrier,
    /// What a checkpoint's leaves lead to is durable before they are named, where commits return before their barrier.
    ForceFirst,
    /// A checkpoint's marks are taken before its leaves are read.
    MarksFirst,
    /// ... and that of the log of groups before those of the transactions that wait for a group.
    GroupsMarkFirst,
    /// A feed looks how far the log of groups has come behind those of the transactions that wait for a group.
    FeedGroupsLast,
    /// A checkpoint that meets a leaf which was split looks again where its keys are.
    LookAgain,
    /// Versions are freed only behind a checkpoint that does not lead to them.
    RetireBeforeFree,
    /// Versions are freed only when no reader can reach them.
    AwaitReaders,
    /// A tombstone stays in the index until everything older is in a checkpoint and out of sight.
    KeepTombstones,
    /// The index is led to greater timestamps only.
    GreaterOnly,
    /// Recovery goes on with a clock above everything ever used.
    RestoreClock,
    /// What recovery read is written out before it counts.
    PersistRead,
    /// What is moved for scans matches its checksum before it gets a new one.
    VerifyMoved,
    /// A record counts only if it is not older than what its segment was taken for.
    Generations,
    /// What a crash left of a segment that was just begun is taken out of the table before it has another use.
    ClearLeftovers,
    /// After a crash a writer begins a new segment.
    FreshSegments,
    /// A transaction counts only behind the one it was written behind.
    Links,
    /// A log reaches as far as its watermark says that it was durable.
    Watermark,
    /// A log reaches as far as the checkpoint leads.
    ReachIndex,
    /// Nodes prove those that they name.
    ProveNodes,
    /// Of bounded commits recovery keeps a prefix.
    Prefix,
    /// ... and erases what it does not keep.
    EraseDropped,
    /// A record names what was durable when it was written, not what was committed.
    HonestWatermark,
    /// Nodes that the durable checkpoint names are not overwritten.
    CopyNodes,
    /// A replicated commit is on a quorum before anybody sees it.
    LogFirst,
    /// The log of a replicated store keeps its last commit.
    KeepLastCommit,
    /// Commits are numbered in the order of their timestamps.
    NumbersInOrder,
    /// A follower lets the log forget only what is durable in its store.
    ForceBeforeRelease,
}

#[cfg(feature = "failpoints")]
thread_local! {
    static BEFORE_BARRIER: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

/// Has the next commit that this thread makes durable do something when it was validated: behind its timestamp, before its number and its barrier.
#[cfg(feature = "failpoints")]
pub fn at_next_commit(then: impl FnOnce() + 'static) {
    BEFORE_BARRIER.set(Some(Box::new(then)));
}

#[cfg(feature = "failpoints")]
pub(crate) fn before_barrier() {
    if let Some(then) = BEFORE_BARRIER.try_with(std::cell::Cell::take).ok().flatten() {
        then();
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) const fn before_barrier() {}

/// Whether the log stays as it is, behind a wait of this length.
#[cfg(feature = "failpoints")]
type Holds = Box<dyn FnMut(std::time::Duration) -> bool>;

#[cfg(feature = "failpoints")]
thread_local! {
    static LOG_HELD: std::cell::RefCell<Option<Holds>> = const { std::cell::RefCell::new(None) };
}

/// Keeps the log of a replicated store as it is for as long as `holds` says so, which commits of this thread ask each time they would clean it up, with how long they would wait before that. While it
/// is held they do not wait.
#[cfg(feature = "failpoints")]
pub fn hold_log(holds: impl FnMut(std::time::Duration) -> bool + 'static) {
    LOG_HELD.set(Some(Box::new(holds)));
}

#[cfg(feature = "failpoints")]
pub(crate) fn log_is_held(wait: std::time::Duration) -> bool {
    LOG_HELD.try_with(|held| held.borrow_mut().as_mut().is_some_and(|holds| holds(wait))).unwrap_or(false)
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) const fn log_is_held(_: std::time::Duration) -> bool {
    false
}

pmem::failpoints!(feature = "failpoints");
