//! An engine to be checked, and what it says about itself.

use tx::{Engine, Isolation};

/// An engine to be checked.
pub trait Subject: Send + Sync + 'static {
    /// Its type.
    type Engine: Engine + Sync + 'static;

    /// An empty one of its own: null root, room for at least [`ROOM`] bytes of objects.
    fn fresh(&self) -> Self::Engine;

    /// The same, to run under a scheduler: one that starts no thread. And small, there will be many.
    fn fresh_scheduled(&self) -> Self::Engine {
        self.fresh()
    }

    /// How it keeps transactions apart.
    fn concurrency(&self) -> Concurrency;

    /// Whether it can roll back. Without, changes that were begun stay, and an abort says so.
    fn atomic(&self) -> bool {
        true
    }

    /// The levels it begins transactions at.
    fn levels(&self) -> &'static [Isolation] {
        &Isolation::ALL
    }

    /// The level that transactions begun at `level` really have.
    fn kept(&self, level: Isolation) -> Isolation {
        match self.concurrency() {
            Concurrency::Locks => Isolation::Strict,
            Concurrency::Versions => level,
        }
    }

    /// Whether a step of a transaction may wait for another transaction to end, instead of failing. Such an engine is asked for the
    /// groups `isolation`, `retry` and `random`; in others its threads would wait for each other.
    fn waits(&self) -> bool {
        false
    }

    /// Schedules that are drawn for each check of the group `schedules`.
    fn schedules(&self) -> usize {
        300
    }
}

/// Objects that a fresh engine must hold.
pub const ROOM: u64 = 32 << 20;

/// How an engine keeps transactions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// A transaction that uses an object keeps others from it; every level is strict.
    Locks,
    /// Readers see old versions; levels differ.
    Versions,
}
