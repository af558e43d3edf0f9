//! Ways to leave single rules of the protocol out, for tests that must be seen to fail. Compiled in for tests alone.

/// A rule that a replica can go without. Each has a test in `rules` that fails without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "nothing is left out"))]
pub(crate) enum Step {
    // ---- records ----------------------------------------------------------------------------------------------
    /// A record is persistent before it is forwarded.
    PersistBeforeForward,
    /// A replica takes the record of the next number only.
    TakeInOrder,
    /// The tail acknowledges what it has executed, not what it has.
    AcknowledgeExecuted,
    /// The effects of a record are persistent before it goes.
    RetirePersistent,
    /// ... and the tail has acknowledged it.
    RetireAcknowledged,
    /// A failed commit fills the number it drew.
    EmitSkip,
    /// The number is drawn while all locks are held, those of what was only read too.
    DrawUnderLocks,

    // ---- locks at the head ------------------------------------------------------------------------------------
    /// What is in flight is refused, until the tail has acknowledged it.
    LockUntilAcknowledged,
    /// ... and the backup has it.
    LockUntilApplied,
    /// ... to the slot it is of, too.
    RefuseOwnSlot,
    /// A replica that becomes the head, or starts as one, locks what is in flight before it serves.
    RebuildLocks,

    // ---- starts -----------------------------------------------------------------------------------------------
    /// What a start has found, and decided, is persistent before it is carried out, or sent.
    PersistRecovery,
    /// A start retires nothing.
    KeepInRecovery,
    /// What stands behind a gap in the queue is erased.
    EraseBehindGap,
    /// A head that starts sends again what it had committed.
    ForwardAgain,
    /// A start carries out what is in the queue.
    ExecuteAgain,

    // ---- views ------------------------------------------------------------------------------------------------
    /// Messages of another view are not taken.
    RefuseOldViews,
    /// A tail acknowledges nothing while it is open whether another one is behind it.
    HoldDuringProposal,
    /// A new view's tail acknowledges and reads nothing until leases of earlier members have ended.
    AwaitLeases,
    /// A proposal of a process that is gone is not carried out.
    GuardSession,
    /// A joiner is proposed when it has all that was acknowledged.
    CountWhenComplete,
    /// ... and all that a reader at the tail has seen.
    ShownToReaders,
    /// The note that a copy is void is persistent before it is erased.
    VoidFirst,
    /// A voided copy has another id.
    NewIncarnation,
    /// A part of an image is made while no record is half executed.
    PartAtOneNumber,
    /// ... and taken while no record behind it is executed.
    PartBeforeRecords,
    /// An image is whole when all is executed that one of its parts shows.
    WholeBehindParts,
    /// A start gives up half a copy and its records.
    VoidHalf,
    /// The tail keeps records that a joiner does not have.
    KeepForJoiner,

    // ---- reads ------------------------------------------------------------------------------------------------
    /// A lease is looked at after reading.
    LeaseAfterReading,
    /// The head reads only what is not in flight.
    CleanReads,
    /// A tail reads when it has executed what it had when it became the tail.
    ExecuteBeforeReading,
    /// A replica that executes a record bars readers of its objects.
    BarReaders,
    /// A tail that has proposed another one reads nothing.
    NoReadsDuringProposal,
    /// All that a transaction reads at the tail is of one moment: a record that writes what it has read overtakes it. Of nodes; the simulator has replicas alone.
    ReadOneMoment,
    /// A transaction of a copy that was voided reads nothing on the next one. Of nodes, too.
    ReadOneCopy,

    // ---- blocks -----------------------------------------------------------------------------------------------
    /// Space that a record gives out again rests no longer.
    WakeResting,

    // ---- clients ----------------------------------------------------------------------------------------------
    /// The reply is stored by the transaction.
    StoreReply,
}

#[cfg(test)]
impl Step {
    /// All of a replica.
    pub(crate) const ALL: [Self; 36] = [
        Self::PersistBeforeForward,
        Self::TakeInOrder,
        Self::AcknowledgeExecuted,
        Self::RetirePersistent,
        Self::RetireAcknowledged,
        Self::EmitSkip,
        Self::DrawUnderLocks,
        Self::LockUntilAcknowledged,
        Self::LockUntilApplied,
        Self::RefuseOwnSlot,
        Self::RebuildLocks,
        Self::PersistRecovery,
        Self::KeepInRecovery,
        Self::EraseBehindGap,
        Self::ForwardAgain,
        Self::ExecuteAgain,
        Self::RefuseOldViews,
        Self::HoldDuringProposal,
        Self::AwaitLeases,
        Self::GuardSession,
        Self::CountWhenComplete,
        Self::ShownToReaders,
        Self::VoidFirst,
        Self::NewIncarnation,
        Self::PartAtOneNumber,
        Self::PartBeforeRecords,
        Self::WholeBehindParts,
        Self::VoidHalf,
        Self::KeepForJoiner,
        Self::LeaseAfterReading,
        Self::CleanReads,
        Self::ExecuteBeforeReading,
        Self::BarReaders,
        Self::NoReadsDuringProposal,
        Self::WakeResting,
        Self::StoreReply,
    ];
}

pmem::failpoints!(test);
