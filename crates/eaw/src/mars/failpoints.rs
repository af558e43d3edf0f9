//! Ways to leave single steps out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that a store can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "failpoints")), allow(unreachable_pub))]
pub enum Step {
    /// A block says of which size its slots are before a record is put there.
    BlockFirst,
    /// The headers of new slots are cleared with the block's.
    ClearSlots,
    /// What is placed past the log goes to a slot that holds no record.
    Elsewhere,
    /// The slot that a record leaves is cleared.
    ClearLeft,
    /// The slot that a record leaves is given to others when that has committed.
    LeftLater,
    /// Locks are given up behind the commit.
    LocksToEnd,
}
