//! Ways to leave single steps out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that a store can be opened without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "failpoints")), allow(unreachable_pub))]
pub enum Step {
    /// A commit forces the log.
    CommitForce,
    /// A page is written when the log is durable through its last change.
    LogFirst,
    /// Pages go to a buffer before they go to their places.
    Double,
    /// What was in a cache alone when a process died is made durable.
    FlushBatch,
    /// A compensation record says what is left to be undone.
    Compensations,
    /// A nested action says that it is over.
    NestedOver,
    /// What is not committed is undone.
    Undo,
    /// The log is kept from the first record of an open transaction on.
    KeepActive,
    /// The log is kept from the first change on that a page lacks.
    KeepDirty,
    /// No thread makes a checkpoint while another one writes pages.
    CleanAlone,
    /// A page that is on its way to the medium keeps its frame.
    PinWritten,
    /// A thread that takes a frame asks whether it is free when no other can take it.
    AskAgain,
    /// A checkpoint is durable before the master record says where it is.
    CheckpointFirst,
}

/// Which steps are there: all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    #[cfg(any(test, feature = "failpoints"))]
    pub(super) without: Option<Step>,
}

impl Steps {
    #[cfg(any(test, feature = "failpoints"))]
    pub(super) fn has(self, step: Step) -> bool {
        self.without != Some(step)
    }

    #[cfg(not(any(test, feature = "failpoints")))]
    #[inline(always)]
    pub(super) fn has(self, _: Step) -> bool {
        true
    }
}
