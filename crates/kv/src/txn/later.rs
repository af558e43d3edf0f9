//! Commits that are awaited: for callers that must not wait for a device, or for other machines, themselves.
//!
//! Threads of the store commit for them, as many as there are commits to wait for, up to one for each writer: those that wait at the same time share a sync. They
//! also make what was committed visible and give its locks back, whether or not the caller still looks: so a transaction that waits for that, and
//! keeps the caller's own thread busy meanwhile, does not wait forever.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::Timestamp;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::raw::{Borrows, Held};
use crate::txn::transaction::Transaction;
use crate::writers::work::{Stage, Tell};

/// A commit on its way: see [`Transaction::commit_async`]. It comes to its end whether or not this is awaited.
#[must_use = "what becomes of the commit is said here"]
pub struct Commit(State);

enum State {
    Ready(Option<Result<Timestamp>>),
    Running(Arc<Outcome>),
}

/// Where a result is left.
#[derive(Default)]
struct Outcome {
    result: Mutex<Left>,
    changed: Condvar,
}

#[derive(Default)]
struct Left {
    result: Option<Result<Timestamp>>,
    waker: Option<Waker>,
}

/// Leaves a result, in any case.
struct Promise(Arc<Outcome>);

/// Of a transaction, which is of a core.
struct OfCore;

impl Borrows for OfCore {
    type Owner = Core;
    type Of<'o> = Transaction<'o>;

    fn owner<'v>(of: &'v Transaction<'_>) -> &'v Core {
        of.core()
    }
}

impl Transaction<'_> {
    /// Commits without keeping the caller's thread waiting for a device or another machine: await the result, in any runtime, or [`wait`](Commit::wait) for it.
    /// Commits that are under way at the same time share a sync. Where a barrier is no longer than a few hundred nanoseconds, the commit is made at once, and the result is ready.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Options::new().create(dir.path().join("s"))?;
    /// use kv::Isolation;
    /// let commits = (0u32..10).map(|n| {
    ///     let mut tx = store.begin(Isolation::Serializable)?;
    ///     tx.put(&n.to_be_bytes(), b"value")?;
    ///     Ok(tx.commit_async())
    /// });
    /// let commits = commits.collect::<kv::Result<Vec<_>>>()?;
    /// commits.into_iter().try_for_each(|commit| commit.wait().map(|_| ()))?; // or .await
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The result's are those of [`commit`](Self::commit).
    pub fn commit_async(self) -> Commit {
        self.commit_told(None)
    }

    /// As [`commit_async`](Self::commit_async); `tell` is called when the commit has come to a [`Stage`], in their order, more than once maybe, or not at all: a caller that settles for less than the
    /// commit can go on then. No reader sees it before it is committed, and it may still fail: what is ordered with the device or the log, what is here with this machine. Called on a thread that
    /// commits, so `tell` is to be brief, and is not to use the store. A commit that is made at once has no stages.
    ///
    /// # Errors
    /// The result's are those of [`commit`](Self::commit): behind a stage [`Error::InDoubt`] and [`Error::LogInDoubt`] alone, or that the store has failed already.
    pub fn commit_async_told(self, tell: impl Fn(Stage) + Send + Sync + 'static) -> Commit {
        self.commit_told(Some(Box::new(tell)))
    }

    fn commit_told(mut self, told: Option<Tell>) -> Commit {
        if self.writes() > 0
            && self.core().persistence.waits(self.core().versions.pool())
            && let Some(core) = self.core().shared()
        {
            self.work.get_mut().told = told;
            let outcome = Arc::new(Outcome::default());
            let promise = Promise(Arc::clone(&outcome));
            let committers = core.committers.shared();
            let held = Held::<OfCore>::new(self, core);
            committers.send(Box::new(move || {
                // The store is let go before the waiter hears of it: the waiter may close it.
                let result = held.end(|tx| tx.commit());
                promise.keep(result);
            }));
            return Commit(State::Running(outcome));
        }
        Commit(State::Ready(Some(self.commit())))
    }
}

impl Promise {
    fn keep(&self, result: Result<Timestamp>) {
        let mut left = self.0.result.lock();
        left.result = Some(result);
        let waker = left.waker.take();
        drop(left);
        self.0.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep(Err(Error::Doomed { first: "the thread that committed it has panicked".into() }));
        }
    }
}

impl Commit {
    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        matches!(&self.0, State::Running(outcome) if outcome.result.lock().result.is_none())
    }

    /// Blocks until it is known what became of the commit.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn wait(self) -> Result<Timestamp> {
        let outcome = match self.0 {
            State::Ready(Some(result)) => return result,
            State::Ready(None) => return Err(taken()),
            State::Running(outcome) => outcome,
        };
        let mut left = outcome.result.lock();
        loop {
            if let Some(result) = left.result.take() {
                return result;
            }
            outcome.changed.wait(&mut left);
        }
    }
}

impl Future for Commit {
    type Output = Result<Timestamp>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.0 {
            State::Ready(result) => result.take().unwrap_or_else(|| Err(taken())),
            State::Running(outcome) => {
                let mut left = outcome.result.lock();
                let Some(result) = left.result.take() else {
                    left.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                };
                result
            }
        };
        self.0 = State::Ready(None);
        Poll::Ready(result)
    }
}

fn taken() -> Error {
    Error::Doomed { first: "its result was taken already".into() }
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self.0, State::Ready(_)) { "Commit(done)" } else { "Commit" })
    }
}
