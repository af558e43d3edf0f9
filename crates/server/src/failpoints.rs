//! Ways to leave single steps of the server out, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

/// A step that a server can be started without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "failpoints"), allow(unreachable_pub))]
pub enum Step {
    /// A reply waits until its transaction is durable.
    DurableFirst,
    /// Replies to requests of several connections that are one transaction wait until it is committed.
    TogetherFirst,
    /// A client that wrote in a transaction that failed is told so.
    FailureTold,
    /// Requests of a batch run in the order they came in.
    InOrder,
    /// What stands between `MULTI` and `EXEC` is one transaction.
    OneTransaction,
    /// `EXEC` looks whether what was watched has changed.
    Watched,
    /// ... in the transaction that it commits, not before.
    WatchedInside,
    /// What a command did before it panicked is given up.
    PanicGivesUp,
    /// A transaction that overwrites a key looks once more, behind it, whether the first collection was made in between.
    LookAgain,
    /// Elements of a long collection that is removed are left to the reaper.
    Abandoned,
    /// The note about a collection that expires goes with it to its new key, and goes when it no longer holds.
    NoteMoves,
    /// Each start draws ids of its own.
    FreshIds,
    /// A client that puts an element somewhere wakes those that wait for it.
    Woken,
    /// What `MULTI` publishes goes out when its transaction is durable.
    PublishedBehind,
    /// By a policy about keys that expire no other key goes.
    LastingStays,
    /// A client that tracks has the keys that it reads noted before its transaction begins.
    NotedFirst,
    /// What has changed is told behind the answers that came before it.
    ToldBehind,
    /// A write that began when no client tracked, and finds one behind its commit, tells it to forget everything.
    UnknownTellsAll,
    /// `SWAPDB` tells clients that track to forget everything.
    SwapTold,
    /// A client that tracks is told when a key expires that it has read.
    ExpiryTold,
    /// The answer to `CLIENT PAUSE` waits for writes that are under way.
    WritesAwaited,
    /// A long string that grows behind its last chunk makes that one whole.
    LastChunkWhole,
    /// A shorter string in the place of a long one leaves none of its chunks.
    RestRemoved,
    /// A copy of a long string has chunks of its own.
    OwnChunks,
    /// The store says that it has long strings before it has one.
    FormNoted,
    /// `SWAPDB` runs alone, and all transactions behind it go by its map.
    SwapAlone,
    /// ... which is in the store.
    MapWritten,
    /// What was watched has changed if it comes from another database.
    SeenDatabase,
    /// A client that settles for less than the commit is answered at the stage that is enough for it.
    EnoughFirst,
    /// ... and behind the commit if it has seen what others have written in the same transaction.
    OthersUnseen,
    /// ... and if another machine may lead.
    LeadsEarly,
}

impl Step {
    /// All of them.
    #[cfg(feature = "failpoints")]
    pub const ALL: [Self; 31] = [
        Self::DurableFirst,
        Self::TogetherFirst,
        Self::FailureTold,
        Self::InOrder,
        Self::OneTransaction,
        Self::Watched,
        Self::WatchedInside,
        Self::PanicGivesUp,
        Self::LookAgain,
        Self::Abandoned,
        Self::NoteMoves,
        Self::FreshIds,
        Self::Woken,
        Self::PublishedBehind,
        Self::LastingStays,
        Self::NotedFirst,
        Self::ToldBehind,
        Self::UnknownTellsAll,
        Self::SwapTold,
        Self::ExpiryTold,
        Self::WritesAwaited,
        Self::LastChunkWhole,
        Self::RestRemoved,
        Self::OwnChunks,
        Self::FormNoted,
        Self::SwapAlone,
        Self::MapWritten,
        Self::SeenDatabase,
        Self::EnoughFirst,
        Self::OthersUnseen,
        Self::LeadsEarly,
    ];
}

/// What is left out: nothing, and at no cost, without the feature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failpoints(#[cfg(feature = "failpoints")] pub(crate) Option<Step>);

impl Failpoints {
    #[cfg(feature = "failpoints")]
    #[inline]
    pub(crate) fn skips(self, step: Step) -> bool {
        self.0 == Some(step)
    }

    #[cfg(not(feature = "failpoints"))]
    #[inline(always)]
    pub(crate) const fn skips(self, _: Step) -> bool {
        false
    }
}
