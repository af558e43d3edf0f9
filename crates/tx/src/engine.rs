//! An engine makes transactions, and runs them until they commit.

use crate::backoff::{Queue, RetryPolicy, Turns};
use crate::{Doom, Error, Isolation, Procedure, Result, Transaction};

/// An engine for transactions on objects.
pub trait Engine {
    /// Its transactions.
    type Tx<'a>: Transaction
    where
        Self: 'a;

    /// Its name: `none`, `undo`, `inplace`, ...
    fn name(&self) -> &'static str;

    /// The strongest level it has; weaker ones may be served by stronger ones.
    fn strongest(&self) -> Isolation;

    /// Starts a transaction.
    ///
    /// # Errors
    /// [`Error::NoSlot`]; [`Error::Isolation`] if the engine has no such level.
    fn begin(&self, isolation: Isolation) -> Result<Self::Tx<'_>>;

    /// Runs `f` in a transaction and commits it; conflicts are retried with [`RetryPolicy::default`]. An `Err` or a panic rolls back.
    ///
    /// With an engine that locks (`heap`), a transaction that keeps meeting conflicts is not overtaken by others for ever: after 16 of them it is
    /// queued, and later transactions, readers too, get the conflict in its stead.
    ///
    /// # Errors
    /// What `f` returns; those of a commit; [`Error::GaveUp`].
    fn transact<R, E>(&self, isolation: Isolation, f: impl FnMut(&mut Self::Tx<'_>) -> Result<R, E>) -> Result<R, E>
    where
        E: From<Error>,
    {
        self.transact_with(isolation, RetryPolicy::default(), f)
    }

    /// As [`transact`](Self::transact), with policy of your own.
    ///
    /// # Errors
    /// As there.
    fn transact_with<R, E>(
        &self,
        isolation: Isolation,
        policy: RetryPolicy,
        mut f: impl FnMut(&mut Self::Tx<'_>) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<Error>,
    {
        // Made when it is needed: to copy the policy, which was stored just now, would wait for the barrier of the transaction before (see `Attempt`).
        let mut turns = None;
        loop {
            let offset = match self.attempt(isolation, &mut f) {
                Attempt::Committed(value) => return Ok(value),
                Attempt::Ended(result) => return result,
                Attempt::Conflict(offset) => offset,
            };
            let turns = turns.get_or_insert_with(|| Turns::new(policy, self.queue()));
            if !turns.wait(offset) {
                return Err(Error::GaveUp { attempts: turns.backoff.attempts(), offset }.into());
            }
        }
    }

    /// Runs a procedure, as [`transact`](Self::transact) does. An engine that logs calls has it run again after a crash.
    ///
    /// # Errors
    /// As there.
    fn call<P: Procedure>(&self, args: &P::Args) -> Result<P::Output> {
        self.transact(P::ISOLATION, |tx| P::run(tx, args))
    }

    /// Where [`transact`](Self::transact) waits for others, if the engine has such a queue.
    #[doc(hidden)]
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// One attempt of [`transact_with`](Self::transact_with).
    #[doc(hidden)]
    #[inline]
    fn attempt<R, E>(
        &self,
        isolation: Isolation,
        f: &mut impl FnMut(&mut Self::Tx<'_>) -> Result<R, E>,
    ) -> Attempt<R, E>
    where
        E: From<Error>,
    {
        let conflict = |e: Error| match Doom::from(&e).conflict {
            Some(offset) => Attempt::Conflict(offset),
            None => Attempt::Ended(Err(e.into())),
        };
        let mut tx = match self.begin(isolation) {
            Ok(tx) => tx,
            Err(e) => return conflict(e),
        };
        match f(&mut tx) {
            Ok(value) => match tx.doom() {
                None => match tx.commit() {
                    Ok(()) => Attempt::Committed(value),
                    Err(e) => conflict(e),
                },
                // An ignored conflict is one still.
                Some(Doom { conflict: Some(offset), .. }) => Attempt::over(tx, Attempt::Conflict(offset)),
                Some(Doom { first, .. }) => Attempt::over(tx, Attempt::Ended(Err(Error::Doomed { first }.into()))),
            },
            Err(e) => match tx.doom() {
                // Whatever the caller made of it: the cause was a conflict.
                Some(Doom { conflict: Some(offset), .. }) => Attempt::over(tx, Attempt::Conflict(offset)),
                _ => Attempt::over(tx, Attempt::Ended(Err(e))),
            },
        }
    }
}

/// How an attempt ended.
#[doc(hidden)]
pub enum Attempt<R, E> {
    /// With a commit. A variant of its own: a result that is copied as a whole is read in larger pieces than it was just written in, and such a load waits until the
    /// stores behind the barrier have left the processor, as a locked instruction there would.
    Committed(R),
    /// With an error, after which nothing is left to be done.
    Ended(Result<R, E>),
    /// With a conflict about this object.
    Conflict(u64),
}

impl<R, E: From<Error>> Attempt<R, E> {
    /// Aborts; an abort that fails is more than what led to it.
    #[cold]
    fn over(tx: impl Transaction, outcome: Self) -> Self {
        match tx.abort() {
            Ok(()) => outcome,
            Err(e) => Self::Ended(Err(e.into())),
        }
    }
}
