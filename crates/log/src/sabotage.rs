//! Ways to leave single steps of the protocol out, for tests that must be seen to fail. Compiled in by the feature `sabotage` alone.

/// A step that a log can be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sabotage"), allow(unreachable_pub))]
pub enum Step {
    /// A force waits for earlier records.
    InOrder,
    /// A force flushes what others completed.
    FlushOthers,
    /// The barrier of a force.
    ForceBarrier,
    /// A force by another thread is over only behind its barrier.
    MarkLate,
    /// The superline names the new head before its space is used again.
    HeadFirst,
    /// ... in both copies.
    HeadTwice,
    /// Opening raises the epoch.
    RaiseEpoch,
    /// Records behind the head have at least the epoch it had.
    EpochFloor,
    /// A torn record's seal is erased before its place is used again.
    EraseTorn,
    /// What recovery read is written out before it counts.
    SettleRead,
    /// A record that does not verify at or below a later one's watermark is an error.
    Watermark,
    /// The watermark of a record is what was durable, not what was complete.
    HonestWatermark,
    /// Recovery verifies seals.
    VerifySeal,
    /// Growth is in the superline before records go there.
    GrowFirst,
    /// The clean flag goes before a record is written.
    UncleanFirst,
}

/// What is left out: nothing, and at no cost, without the feature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sabotage(#[cfg(feature = "sabotage")] pub(crate) Option<Step>);

impl Sabotage {
    #[cfg(feature = "sabotage")]
    #[inline]
    pub(crate) fn skips(self, step: Step) -> bool {
        self.0 == Some(step)
    }

    #[cfg(not(feature = "sabotage"))]
    #[inline(always)]
    pub(crate) const fn skips(self, _: Step) -> bool {
        false
    }
}
