//! Waiting between the attempts of a transaction that met a conflict.
//!
//! Short conflicts are over after a few pauses of the processor. Then the transaction enters its engine's [`Queue`], if it has one, and sleeps until it is woken. Without one
//! there is no transaction to wait for: in an engine with versions the other transaction has committed already, and the pause only keeps the two apart.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long conflicts are retried.
///
/// ```
/// use std::time::Duration;
/// let policy = tx::RetryPolicy::default().attempts(10).deadline(Duration::from_millis(5));
/// # let _ = policy;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    attempts: u32,
    deadline: Option<Duration>,
}

impl Default for RetryPolicy {
    /// A hundred thousand attempts: tens of seconds of conflicts without a pause, and fifty seconds in a queue at most.
    fn default() -> Self {
        Self { attempts: 100_000, deadline: None }
    }
}

impl RetryPolicy {
    /// At most this many attempts; at least one is made. For each, half a millisecond may be spent in a queue.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// No new attempt once this long has passed since the first.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }
}

/// Where an engine's transactions wait for each other, in order.
pub trait Queue {
    /// The calling thread's transaction, which is over, met a conflict at this offset: its next one is served before all that come later, until [`leave`](Self::leave).
    /// Waits until that may go on, `most` at most. The thread keeps its position at every object that it has met a conflict at.
    fn wait(&self, offset: u64, most: Duration) -> Waited;

    /// The calling thread has committed, or given up.
    fn leave(&self);
}

/// How a wait in a [`Queue`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Another transaction has made way.
    Woken,
    /// None has, for as long as it was to wait.
    InVain,
    /// No transaction is in the way that it could wait for: no time has passed.
    ForNobody,
}

/// Doubling pauses with jitter, first spinning, then giving the processor away, then sleeping.
///
/// ```
/// let mut backoff = tx::Backoff::new(tx::RetryPolicy::default().attempts(2));
/// assert!(backoff.wait()); // a second attempt
/// assert!(!backoff.wait()); // no third
/// assert_eq!(backoff.attempts(), 2);
/// ```
#[derive(Debug)]
pub struct Backoff {
    policy: RetryPolicy,
    attempts: u32,
    end: Option<Instant>,
    /// Spent in a queue without being woken.
    queued: Duration,
}

/// Pauses of up to 2^6 spins; longer ones yield.
const SPIN_LOG2: u32 = 6;
/// Attempts that yield before any sleeps.
const YIELDS: u32 = 10;
/// Longest sleep.
const SLEEP_US: u64 = 500;
/// A thread in a queue is woken; it looks by itself after this long.
const LOOK: Duration = Duration::from_millis(10);

impl Backoff {
    /// No attempt has failed yet.
    pub fn new(policy: RetryPolicy) -> Self {
        Self { policy, attempts: 0, end: None, queued: Duration::ZERO }
    }

    /// Attempts that failed.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Notes that an attempt failed, and waits; false if policy is at its end.
    #[cold]
    pub fn wait(&mut self) -> bool {
        let Some(left) = self.next() else { return false };
        if !pmem::sync::wait_point() && !self.pause() {
            self.sleep(left);
        }
        true
    }

    fn sleep(&self, left: Duration) {
        let most = (1u64 << self.attempts.saturating_sub(SPIN_LOG2 + YIELDS).min(16)).min(SLEEP_US);
        std::thread::sleep(Duration::from_micros(1 + jitter() % most).min(left));
    }

    /// One more attempt: for how long it may be waited for.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one clock of transactions: a deadline for retrying, never for correctness"
    )]
    fn next(&mut self) -> Option<Duration> {
        self.attempts += 1;
        if self.attempts >= self.policy.attempts {
            return None;
        }
        let most = Duration::from_micros(SLEEP_US).saturating_mul(self.policy.attempts);
        let left = most.checked_sub(self.queued).filter(|left| !left.is_zero())?;
        let Some(deadline) = self.policy.deadline else { return Some(left) };
        let now = Instant::now();
        let until = self.end.get_or_insert(now + deadline).checked_duration_since(now);
        until.filter(|until| !until.is_zero()).map(|until| until.min(left))
    }

    /// Not for longer than a short conflict takes; false if this is none.
    fn pause(&self) -> bool {
        match self.attempts {
            n if n <= SPIN_LOG2 => (0..jitter() % (1 << n)).for_each(|_| std::hint::spin_loop()),
            n if n <= SPIN_LOG2 + YIELDS => std::thread::yield_now(),
            _ => return false,
        }
        true
    }
}

/// A [`Backoff`] that goes on in an engine's queue, and leaves it when it is dropped.
pub(crate) struct Turns<'q> {
    pub(crate) backoff: Backoff,
    queue: Option<&'q dyn Queue>,
    entered: bool,
}

impl<'q> Turns<'q> {
    pub(crate) fn new(policy: RetryPolicy, queue: Option<&'q dyn Queue>) -> Self {
        Self { backoff: Backoff::new(policy), queue, entered: false }
    }

    /// As [`Backoff::wait`], behind a conflict at `offset`.
    #[cold]
    pub(crate) fn wait(&mut self, offset: u64) -> bool {
        let Some(queue) = self.queue else { return self.backoff.wait() };
        let Some(left) = self.backoff.next() else { return false };
        let scheduled = pmem::sync::is_scheduled();
        if !scheduled && self.backoff.pause() {
            return true;
        }
        self.entered = true;
        let most = LOOK.min(left);
        match queue.wait(offset, most) {
            Waited::Woken => {}
            Waited::InVain => self.backoff.queued += most,
            Waited::ForNobody if scheduled => _ = pmem::sync::wait_point(), // it decides which thread runs
            Waited::ForNobody => self.backoff.sleep(left),
        }
        true
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.filter(|_| self.entered) {
            queue.leave();
        }
    }
}

thread_local! {
    static JITTER: Cell<u64> = const { Cell::new(0) };
}

/// A number that differs between threads and calls (xorshift64); nothing depends on its quality.
fn jitter() -> u64 {
    JITTER.with(|cell| {
        let mut x = match cell.get() {
            0 => std::ptr::from_ref(cell) as u64 | 1,
            x => x,
        };
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        cell.set(x);
        x
    })
}
