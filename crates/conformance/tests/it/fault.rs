//! Ways to be wrong.

use tx::Bug;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Of(Bug),
    AbortCommits,
    DropCommits,
    /// Of an abort the allocations stay.
    AllocsStay,
    /// Of an abort the frees stay.
    FreesStay,
    /// Of an abort the root stays.
    RootStays,
    CommitForgetsLast,
    /// Of more than 4096 changes.
    CommitForgetsLastOfMany,
    /// Past the first 64 KiB.
    CommitForgetsTail,
    CommitForgetsRoot,
    /// Commit and say no when doomed.
    DoomedCommits,
    /// Do not commit and say yes.
    DoomedSaysYes,
    DoomHidden,
    DoomReplaced,
    SetDoomIgnored,
    DoomForgetsConflict,
    OwnIsConflict,
    OneAtATime,
    /// A transaction fails if any other one has committed meanwhile.
    NoOverlap,
    LevelTooLow,
    SerializableIsSnapshot,
    SlotsLeak,
    /// What was written stays locked unless committed.
    LocksStay,
    OwnWritesHidden,
    /// A write clears the rest of its object.
    Smear,
    /// Each read is of the newest version.
    Rereads,
    /// Of every second object.
    RereadsHalf,
    AllocDirty,
    AllocCrooked,
    AllocAbsurd,
    RoomLies,
    FreeIgnored,
    FreeAnything,
    TagIgnored,
    NullIsRoot,
    EndIgnored,
    InnerRefused,
    StrayIsRoot,
    ManyReversed,
    ManyOverlap,
    IntendClears,
    IntendUnchecked,
    PutsLate,
    PutsStay,
    PutUnchecked,
    /// Right for an engine without rollback: what was begun stays, and an abort says so.
    NoRollback,
    /// The same, but it does not say so.
    NoRollbackUnsaid,
    /// Right too, and strict: one transaction at a time, and the next one waits.
    Serial,
}
