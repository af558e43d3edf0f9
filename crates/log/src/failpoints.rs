//! Ways to leave single steps of the protocol out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that a log can be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "failpoints")), allow(unreachable_pub))]
pub enum Step {
    /// A force waits for earlier records.
    InOrder,
    /// A force by another thread is over only behind its barrier.
    MarkLate,
    /// ... and so is an append past the cache.
    PersistentLate,
    /// The superline names the new head before its space is used again.
    HeadFirst,
    /// ... in both copies.
    HeadTwice,
    /// Opening raises the epoch.
    RaiseEpoch,
    /// Records behind the head have at least the epoch it had.
    EpochFloor,
    /// A torn record's checksum is erased before its space is used again.
    EraseTorn,
    /// A record that does not verify at or below a later one's watermark is an error.
    Watermark,
    /// The watermark of a record is what was durable, not what was complete.
    HonestWatermark,
    /// A thread takes for durable what is so without a gap.
    HonestCell,
    /// The watermark before the segments is what was durable, not what is reserved.
    HonestMark,
    /// One record at a time has the watermark to write.
    MarkAlone,
    /// Recovery verifies checksums.
    VerifyChecksum,
    /// Growth is in the superline before records go there.
    GrowFirst,
    /// The clean flag goes before a record is written.
    UncleanFirst,

    // ---- of the replicated log --------------------------------------------------------------------------------
    /// A new leader's epoch is above all that were promised.
    RaisePromise,
    /// A replica promises an epoch once.
    PromiseOnce,
    /// What is promised and what the log is of are two epochs.
    TwoEpochs,
    /// A replica drains before it acknowledges.
    PersistFirst,
    /// What a replica promised is there before its superline, which makes it a replica.
    PromiseFirst,
    /// Which replicas there are by an epoch is persistent before the superline is of it.
    ConfigFirst,
    /// Only replicas of the newest epoch say what the log is.
    NewestLog,
    /// Leaders before the promised one are shut out.
    Fence,
    /// A leader waits for a write quorum.
    WriteQuorum,
    /// The leader's own image has a record when it has all before it, too.
    OwnInOrder,
    /// A takeover needs quorums of the replicas before a change, too, that may not be committed.
    BothQuorums,
    /// ... and installs them before those behind the change alone.
    InstallJoint,
    /// A leader tells of both groups before it tells of the new one alone.
    JointFirst,
    /// No two changes have one generation, though one came to a single replica and was given up.
    BurnGeneration,
    /// A leader begins no change that live replicas cannot complete.
    CanChange,
    /// A takeover withdraws a change that cannot be completed.
    Withdraw,
    /// A takeover installs nothing if those that promised could not write it.
    CanWriteFirst,
    /// A leader that installs its log on a replica once more takes no head back that the replica has said it knows.
    KeepHead,
    /// Each end of a connection keeps to a version that both speak.
    CommonVersion,
    /// A thread that has heard the replicas, and goes, calls another that waits for them.
    HandOn,
    /// A thread that hears an acknowledgement wakes those that wait for it.
    TellNews,
}

pmem::failpoints!(any(test, feature = "failpoints"));
