//! The key level: transactions on byte-string keys and values.
//!
//! Implemented by stores of their own, and by the structures over any object engine.

use std::ops::{Bound, ControlFlow};

use crate::backoff::{Queue, RetryPolicy, Turns};
use crate::{Doom, Error, Isolation, Result};

/// Called with each pair of a scan, in order; says whether to go on.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Which keys, and in which direction.
///
/// ```
/// use std::ops::Bound;
/// use tx::Keys;
/// let keys = Keys::from(&b"b"[..]).reverse();
/// assert!(keys.contains(b"b") && keys.contains(b"zz") && !keys.contains(b"a"));
/// assert!(Keys::prefix(b"user:").contains(b"user:7") && !Keys::prefix(b"user:").contains(b"usex"));
/// ```
#[derive(Clone, Debug)]
pub struct Keys {
    /// Smallest.
    pub from: Bound<Vec<u8>>,
    /// Largest.
    pub to: Bound<Vec<u8>>,
    /// Largest first.
    pub reverse: bool,
}

impl Keys {
    /// All of them.
    pub fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded, reverse: false }
    }

    /// From this one on.
    pub fn from(key: &[u8]) -> Self {
        Self { from: Bound::Included(key.to_vec()), ..Self::all() }
    }

    /// Those that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        while end.pop_if(|last| *last == u8::MAX).is_some() {}
        let to = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        Self { from: Bound::Included(prefix.to_vec()), to, reverse: false }
    }

    /// Before this one.
    #[must_use]
    pub fn until(self, key: &[u8]) -> Self {
        Self { to: Bound::Excluded(key.to_vec()), ..self }
    }

    /// Largest first.
    #[must_use]
    pub fn reverse(self) -> Self {
        Self { reverse: !self.reverse, ..self }
    }

    /// True if `key` is one of them.
    pub fn contains(&self, key: &[u8]) -> bool {
        use std::ops::RangeBounds;
        let from = self.from.as_ref().map(Vec::as_slice);
        let to = self.to.as_ref().map(Vec::as_slice);
        <(Bound<&[u8]>, Bound<&[u8]>) as RangeBounds<[u8]>>::contains(&(from, to), key)
    }
}

/// A transactional map from keys to values.
pub trait Kv {
    /// Its transactions.
    type Tx<'a>: KvTx
    where
        Self: 'a;

    /// Starts a transaction.
    ///
    /// # Errors
    /// [`Error::NoSlot`], [`Error::Isolation`].
    fn begin(&self, isolation: Isolation) -> Result<Self::Tx<'_>>;

    /// As [`Engine::queue`](crate::Engine::queue).
    #[doc(hidden)]
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// Runs `f` in a transaction and commits it; conflicts are retried.
    ///
    /// # Errors
    /// What `f` returns; those of a commit; [`Error::GaveUp`].
    fn transact<'a, R, E>(
        &'a self,
        isolation: Isolation,
        mut f: impl FnMut(&mut Self::Tx<'a>) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<Error>,
    {
        let mut turns = Turns::new(RetryPolicy::default(), self.queue());
        loop {
            let mut offset = 0;
            let mut conflict = |doom: Option<Doom>| match doom.and_then(|d| d.conflict) {
                Some(at) => {
                    offset = at;
                    true
                }
                None => false,
            };
            match self.begin(isolation) {
                Err(e) if conflict(Some(Doom::from(&e))) => {}
                Err(e) => return Err(e.into()),
                Ok(mut tx) => {
                    let result = f(&mut tx);
                    let conflicted = conflict(tx.doom());
                    match result {
                        _ if conflicted => tx.abort()?,
                        Err(e) => {
                            tx.abort()?;
                            return Err(e);
                        }
                        Ok(value) => match tx.commit() {
                            Ok(()) => return Ok(value),
                            Err(e) if conflict(Some(Doom::from(&e))) => {}
                            Err(e) => return Err(e.into()),
                        },
                    }
                }
            }
            if !turns.wait(offset) {
                return Err(Error::GaveUp { attempts: turns.backoff.attempts(), offset }.into());
            }
        }
    }
}

/// A transaction on keys. Dropping it aborts; an error dooms it.
pub trait KvTx {
    /// The key's value.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>>;

    /// Sets the key's value; true if it had one.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Limit`] for a key or value that is too long; no space.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes the key; true if it was there.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    fn delete(&mut self, key: &[u8]) -> Result<bool>;

    /// Calls `visit` with the pairs of `keys` in order.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Unordered`](crate::Error::Unordered) on a store without order.
    fn scan(&self, keys: &Keys, visit: Visit<'_>) -> Result<()>;

    /// What dooms the transaction, if anything does.
    fn doom(&self) -> Option<Doom>;

    /// Makes all changes durable, as a whole.
    ///
    /// # Errors
    /// As [`Transaction::commit`](crate::Transaction::commit).
    fn commit(self) -> Result<()>
    where
        Self: Sized;

    /// Undoes all changes.
    ///
    /// # Errors
    /// As [`Transaction::abort`](crate::Transaction::abort).
    fn abort(self) -> Result<()>
    where
        Self: Sized;
}
