//! Ways to leave single steps of the protocol out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that an array can be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "failpoints")), allow(unreachable_pub))]
pub enum Step {
    /// The barrier of a commit.
    CommitBarrier,
    /// The log is applied when the transaction is durable, not before.
    ApplyLate,
    /// A transaction counts if every member that has a part has it complete, all with one digest.
    EveryPart,
    /// Recovery verifies the data under a checksum.
    VerifyData,
    /// Recovery verifies the metadata under a checksum.
    VerifyMeta,
    /// Data that no checksum covers is drained before the checksum is written.
    DataFirst,
    /// What was placed past the log is drained before the checksum is written.
    PlacedFirst,
    /// Recovery applies in the order of commits.
    InOrder,
    /// What recovery read is persistent before the first store to a file.
    PersistRead,
    /// A line that is not whole is erased before its TID is used again.
    EraseTorn,
    /// Numbers go on above all that were seen.
    NumbersAbove,
    /// What is in the log only is applied before the mark passes it.
    ApplyFirst,
    /// What was applied is persistent before the mark passes it.
    WashFirst,
    /// The mark passes a transaction when all before it may be passed, too.
    RetireInOrder,
    /// The log of a transaction is used again when the mark has passed it in both slots.
    MarkTwice,
    /// A thread that reads bytes of what is durable waits until it is applied.
    WaitApplied,
    /// A reader sees what is durable and in the log only.
    ReadLate,
    /// What goes to a file without a log goes there in one piece.
    Whole,
    /// What a log has bytes for is logged, and not written whole, nor placed.
    LogFirst,
}
