//! Waiting between the attempts of a transaction that met a conflict.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long conflicts are retried.
///
/// ```
/// use std::time::Duration;
/// let patience = tx::Patience::default().attempts(10).deadline(Duration::from_millis(5));
/// # let _ = patience;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    attempts: u32,
    deadline: Option<Duration>,
}

impl Default for Patience {
    /// A hundred thousand attempts: tens of seconds of conflicts without a pause.
    fn default() -> Self {
        Self { attempts: 100_000, deadline: None }
    }
}

impl Patience {
    /// At most this many attempts; at least one is made.
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

/// Doubling pauses with jitter, first spinning, then giving the processor away, then sleeping.
///
/// ```
/// let mut backoff = tx::Backoff::new(tx::Patience::default().attempts(2));
/// assert!(backoff.wait()); // a second attempt
/// assert!(!backoff.wait()); // no third
/// assert_eq!(backoff.attempts(), 2);
/// ```
#[derive(Debug)]
pub struct Backoff {
    patience: Patience,
    attempts: u32,
    end: Option<Instant>,
}

/// Pauses of up to 2^6 spins; longer ones yield.
const SPIN_LOG2: u32 = 6;
/// Attempts that yield before any sleeps.
const YIELDS: u32 = 10;
/// Longest sleep.
const SLEEP_US: u64 = 500;

impl Backoff {
    /// No attempt has failed yet.
    pub fn new(patience: Patience) -> Self {
        Self { patience, attempts: 0, end: None }
    }

    /// Attempts that failed.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Notes that an attempt failed, and waits; false if patience is at its end.
    #[cold]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one clock of transactions: a deadline for retrying, never for correctness"
    )]
    pub fn wait(&mut self) -> bool {
        self.attempts += 1;
        if self.attempts >= self.patience.attempts {
            return false;
        }
        if let Some(deadline) = self.patience.deadline {
            let now = Instant::now();
            if now >= *self.end.get_or_insert(now + deadline) {
                return false;
            }
        }
        if pmem::sync::wait_point() {
            return true; // a scheduler decides who runs
        }
        match self.attempts {
            n if n <= SPIN_LOG2 => (0..jitter() % (1 << n)).for_each(|_| std::hint::spin_loop()),
            n if n <= SPIN_LOG2 + YIELDS => std::thread::yield_now(),
            n => {
                let most = (1u64 << (n - SPIN_LOG2 - YIELDS).min(16)).min(SLEEP_US);
                std::thread::sleep(Duration::from_micros(1 + jitter() % most));
            }
        }
        true
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
