//! Parts of a transaction: undone alone, or committed alone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Error, Result, Transaction};

/// A moment inside a transaction, as [`Savepoints::savepoint`] gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(u64);

impl Savepoint {
    /// One that no other is equal to, in this process.
    #[doc(hidden)]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// Transactions that can undo what they did since an earlier moment of their own, and go on.
///
/// ```
/// # use tx::{Engine, Isolation::Serializable, Reference, Savepoints, Typed};
/// # let engine = Reference::new();
/// let number = engine.transact(Serializable, |tx| {
///     let number = tx.alloc(&1u32)?;
///     let before = tx.savepoint()?;
///     *tx.write(number)? = 2;
///     tx.rollback_to(before)?;
///     Ok::<_, tx::Error>(number)
/// })?;
/// assert_eq!(engine.transact(Serializable, |tx| tx.read(number).copied())?, 1);
/// # Ok::<(), tx::Error>(())
/// ```
pub trait Savepoints: Transaction {
    /// Conflicts that [`rollback_to`](Self::rollback_to) lifts in one transaction. With no bound two transactions could wait for each other's objects for ever.
    const LIFTED: u32 = 16;

    /// Remembers what the transaction has done so far.
    ///
    /// # Errors
    /// [`Error::Doomed`]; [`Error::Unsupported`].
    fn savepoint(&mut self) -> Result<Savepoint>;

    /// Undoes what the transaction did since the savepoint: what it wrote, allocated and freed. The savepoint stays; those that were set behind it are gone. Objects that were
    /// used since may stay locked to the transaction's end.
    ///
    /// What was seen since counts as read, as if it had not been undone.
    ///
    /// An error that doomed the transaction since does so no longer, unless it was of a drain. Of conflicts that holds for [`LIFTED`](Self::LIFTED) of a transaction. A closure that goes
    /// back from a conflict and then returns it as its error is not run again by [`Engine::transact`](crate::Engine::transact): it has dealt with it.
    ///
    /// # Errors
    /// [`Error::NoSavepoint`] if it is gone, or another transaction's; [`Error::Conflict`] if there were too many: run the transaction again.
    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()>;
}

/// Transactions that can commit a part of themselves alone: for changes that are to stay whatever becomes of the rest, the split of a page for example, a number that was drawn,
/// or an entry in a log of what was tried (MARS §3.1; ARIES' nested top actions).
///
/// ```
/// # use tx::{Engine, Isolation::Serializable, NestedTop, Reference, Typed};
/// # let engine = Reference::new();
/// let tries = engine.transact(Serializable, |tx| tx.alloc(&0u32))?;
/// let failed = engine.transact(Serializable, |tx| -> tx::Result<()> {
///     tx.nested_top(|tx| tx.write(tries).map(|tries| *tries += 1))?; // durable
///     Err(tx.refuse("not now"))
/// });
/// assert!(failed.is_err());
/// assert_eq!(engine.transact(Serializable, |tx| tx.read(tries).copied())?, 1);
/// # Ok::<(), tx::Error>(())
/// ```
pub trait NestedTop: Transaction {
    /// Runs `f`, and commits what it did: durable when this returns, whatever becomes of the outer transaction. If `f` fails, or meets a conflict, nothing of it has happened,
    /// and the outer transaction goes on.
    ///
    /// What the outer transaction has written, allocated or freed is out of bounds for `f`, to read too: it may be rolled back. What that has only read `f` may write.
    ///
    /// # Errors
    /// What `f` returns; those of a commit; [`Error::OuterWrites`]; [`Error::Unsupported`].
    fn nested_top<R, E>(&mut self, f: impl FnOnce(&mut Self) -> Result<R, E>) -> Result<R, E>
    where
        Self: Sized,
        E: From<Error>;
}
