//! Names of things: what must not be mixed has a type of its own.

/// A machine's copy of the heap. A copy that was voided is another one, so that nothing said about the one before can be taken for something about this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ReplicaId {
    /// The machine.
    pub machine: u32,
    /// How often its copy was voided; a new medium has a higher one than all before.
    pub incarnation: u32,
}

/// Views have rising ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ViewId(pub u64);

/// A record's number: `n` has no gaps and goes on across views; the view is the one in which it was drawn. No two records that members of one view have are of one `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Number {
    /// The view of the head that drew it.
    pub view: ViewId,
    /// From 1.
    pub n: u64,
}

/// An object, by its offset in the heap: the same on every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Object(pub u64);

/// A transaction that runs at the head, while its process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

/// A read, while the process lives that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// A request that all that was written before it becomes persistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Barrier(pub u64);

/// Nanoseconds of the machine's own clock, which goes on while it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);
