//! What a [`Memory`](super::Memory) can do wrong.

/// Ways to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Changes are visible to all transactions at once, and stay.
    InPlace,
    /// Reads see what others have not committed.
    DirtyRead,
    /// Reads see what is newest.
    ReadCommitted,
    /// The same, at scans only.
    ScanNow,
    /// The last committer wins.
    LostUpdate,
    /// The same, about keys that were not there.
    LostInsert,
    /// Nothing that was read is looked at again.
    Unvalidated,
    /// No range is.
    RangeUnvalidated,
    /// Only the part of a range in which something was found.
    EdgesUnvalidated,
    /// Of ranges that were scanned backwards, none.
    ReverseUnvalidated,
    /// No key that was not there is.
    AbsentUnvalidated,
    /// What was deleted since passes for unchanged.
    DeleteUnvalidated,
    /// Every third transaction begins one commit too early.
    Stale,
    /// Two parts of a commit, each with its time.
    TornCommit,
    /// Others commit between validation and commit.
    ValidatedEarly,
    /// Versions come some time after their timestamp.
    InstalledLate,
    /// What was old already when it was read is not looked at again.
    PassedOver,
    /// Some deletes do nothing.
    DeleteLost,
    /// Aborts leave the first change.
    AbortKeeps,
    /// Scans miss what the last commit inserted.
    InsertUnseen,
    /// Scans go forward.
    NeverReverse,
    /// Ranges have their end in them.
    EndIncluded,
    /// Scans miss one's own inserts.
    OwnUnseen,
    /// Scans show what one has deleted.
    OwnDeletedSeen,
    /// `put` and `delete` say that the key was there.
    AlwaysThere,
    /// A value is cut.
    Cut,
    /// A read conflict is said and forgotten.
    Undoomed,
    /// Snapshots are serializable.
    TooStrict,
}
