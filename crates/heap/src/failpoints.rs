//! Ways to leave single steps of the protocol out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that a heap can be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "failpoints"), allow(unreachable_pub))]
pub enum Step {
    /// The barrier behind a zone's mark.
    ZoneBarrier,
    /// Others see a zone marked only behind that barrier.
    ZoneSeenLate,
    /// Cleaning spares zones that a transaction is in.
    ZoneActive,
    /// The barrier behind an abort.
    AbortBarrier,
    /// Earlier records of rewritten objects go before an abort gives the objects up; with policy `eaw` the objects are pending again.
    AbortApplies,
    /// All of a new block counts as written.
    WholeBlock,
    /// A pending object is stable before its slot writes it again, unless the record carries what it holds.
    Stabilise,
    /// What a pending object is owed stays so when its slot could not take it back.
    OwedStays,
    /// What a record carries goes to the backup as it was then.
    CarriedImage,
    /// ... and to the media in main.
    CarriedMain,
    /// ... and goes there before an abort takes the object from the backup.
    AbortCopies,
    /// Records that carry bytes are retired before a later one of the slot can come to fail its checksum.
    CarriedFirst,
    /// Recovery gives the backup what records carry.
    RecoverCarried,
    /// Blocks of logs are locked.
    OwnLocked,
    /// A new block resolves only once it is locked.
    LockedFirst,
    /// Locks stay pending until the retirement is persistent.
    UnlockLate,
    /// Freed blocks stay out of use until then.
    ReleaseLate,
    /// Applying a slot retires its records persistently.
    ApplyRetires,
    /// Retirement is persistent in two places.
    RetireTwice,
    /// What a failed drain left in doubt is not applied.
    DoubtStays,
    /// The backup follows behind the commit's barrier.
    CopyLate,
    /// Intents are carried out behind the commit's barrier.
    ApplyLate,
    /// Records are retired behind the barrier of what was copied.
    RetireLate,
    /// Without a barrier of its own, the data are under the record's checksum.
    DataChecksum,
    /// Entries go to main behind the commit's barrier.
    RedoLate,
    /// Recovery verifies that checksum.
    VerifyChecksum,
    /// Of a slot with policy `eaw`, recovery holds the last record alone against its checksum.
    OnlyLast,
    /// Recovery carries intents out.
    RecoverIntents,
    /// Recovery retires records before it changes main.
    RetireFirst,
    /// In recovery, main is on media before the backup follows.
    MainFirst,
    /// Recovery writes out what it finds equal.
    FlushEqual,
    /// A backup that did not follow is rebuilt.
    Rebuild,
    /// The barrier behind an intent.
    IntentBarrier,
    /// Recovery marks the zones of what is open, or carried, before the records that tell of it are retired.
    OpenMarked,
    /// A damaged mark in a heap that was closed restores nothing.
    KeepClosed,
    /// The barrier behind a copy, before its object is written.
    CopyBarrier,
    /// Copies are sure on media when the transaction that made them is over.
    SureLate,
    /// The copies of objects that are pending stay.
    PendingStays,
    /// The space of a copy is used again behind the barrier that gave it up.
    GivenUpFirst,
    /// The copies of a freed object are given up.
    FreedGivenUp,
    /// A copy that is not whole does not count.
    CopyChecksum,
    /// What a record carries of an object without a copy goes to main.
    CarriedNew,
    /// What is staged of an object goes to main before the object is read.
    StagedSeen,
    /// ... and before it is changed in another way.
    StagedFirst,
    /// What is staged, and joined with other writes, goes to main before it is checksummed with them.
    StagedJoined,
    /// What is still staged is stored in front of the commit's barrier.
    StagedInTime,
    /// The record of a commit in place is appended. Without it the commit fails, and takes back what it has stored.
    Appended,
    /// A staged image is void after one copy.
    StagedOnce,
    /// What was written stays locked until the commit's barrier.
    WritersStay,
    /// The cut of a backup holds logs, marks and copies still.
    CutHolds,
    /// Copies are void once another opening of the pool has begun.
    Epoch,
}

pmem::failpoints!(feature = "failpoints");
