//! Ways to leave single steps of the protocol out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that a store can be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "failpoints"), allow(unreachable_pub))]
pub enum Step {
    /// A transaction slot is taken before its snapshot is read off the clock.
    SeatFirst,
    /// A commit is announced before its timestamp is drawn.
    AnnounceFirst,
    /// A thread that may have to see a commit that is about to be waits for it.
    WaitPreparing,
    /// What a serializable transaction has read is looked at again when it commits.
    Validate,
    /// Of two that change one object only the first commits.
    FirstCommitter,
    /// A new object is not there for older snapshots.
    BornLater,
    /// The versions of a commit can be found before it is decided.
    PublishFirst,
    /// The bytes of new objects are under the record's checksum.
    ChecksumNew,
    /// Recovery holds records above K against their checksums.
    VerifyChecksum,
    /// K is persistent before a master changes.
    KFirst,
    /// Masters change behind every transaction that could see them as they were.
    WaitRunning,
    /// What a long snapshot needs of a master is kept before that changes.
    SaveMaster,
    /// ... and nothing newer than K goes there.
    NothingAboveK,
    /// W is persistent before records are retired.
    WFirst,
    /// Recovery passes over what is at or below W.
    SkipBelowW,
    /// Recovery makes its decisions persistent before it changes masters.
    DecideFirst,
    /// A record that did not arrive is marked void before K passes it.
    VoidFirst,
    /// Records are carried out in the order of commits.
    CommitOrder,
    /// Allocations and frees are carried out in that order, too.
    IntentOrder,
    /// What went out of reach is given up only when no thread can look at it: blocks, headers and versions. For tests that look no more.
    ReleaseLate,
    /// A header stays while a long snapshot is older than the master.
    HeaderStays,
    /// What was freed stays while a long snapshot can see it.
    FreedStays,
    /// What calls have changed is copied before K passes their records.
    CopyCalled,
    /// ... all of an object that something else has changed, too.
    CopyWhole,
    /// What calls have put into new objects is flushed before K passes their records.
    FlushFilled,
    /// Copies count only if K says so.
    CopiesByK,
    /// ... in front of what was committed above K.
    CopiesInOrder,
    /// Recovery has room for copies of its own.
    RetireCopies,
    /// Calls above K are run again on what is at or below it.
    CallsBehindK,
    /// What a transaction has seen under a lock that it gives up, going back, is looked at again when it commits.
    SeenStays,
    /// The cut of a backup holds what commits and upkeep take.
    CutHolds,
}

pmem::failpoints!(feature = "failpoints");
