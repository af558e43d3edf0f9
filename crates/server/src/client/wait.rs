//! `CLIENT UNBLOCK`: a client that is blocked is told to wait no longer.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst;

use tokio::sync::Notify;

/// What the client that was blocked is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unblock {
    /// As if its time was over.
    Timeout,
    Error,
}

const FREE: u8 = 0;
const BLOCKED: u8 = 1;
const TIMEOUT: u8 = 2;
const ERROR: u8 = 3;

/// Of a client.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    state: AtomicU8,
    told: Notify,
}

impl Wait {
    /// Its wait is to end. False if it is not blocked, or was told before.
    pub(crate) fn end(&self, how: Unblock) -> bool {
        let to = if how == Unblock::Timeout { TIMEOUT } else { ERROR };
        let told = self.state.compare_exchange(BLOCKED, to, SeqCst, SeqCst).is_ok();
        if told {
            self.told.notify_one();
        }
        told
    }

    /// Until it may have been told.
    pub(crate) async fn told(&self) {
        self.told.notified().await;
    }

    /// What it was told since it is [blocked](Blocked::begin).
    pub(crate) fn how(&self) -> Option<Unblock> {
        match self.state.load(SeqCst) {
            TIMEOUT => Some(Unblock::Timeout),
            ERROR => Some(Unblock::Error),
            _ => None,
        }
    }
}

/// A request of it that may block. Dropping it ends that.
pub(crate) struct Blocked<'w>(&'w Wait);

impl<'w> Blocked<'w> {
    pub(crate) fn of(wait: &'w Wait) -> Self {
        Self(wait)
    }

    /// It has found nothing, and waits from now on, or goes on to.
    pub(crate) fn begin(&self) {
        // What it was told meanwhile stays.
        let _ = self.0.state.compare_exchange(FREE, BLOCKED, SeqCst, SeqCst);
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.state.store(FREE, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_is_blocked_is_told() {
        let wait = Wait::default();
        assert!(!wait.end(Unblock::Error) && wait.how().is_none());
        let blocked = Blocked::of(&wait);
        assert!(!wait.end(Unblock::Timeout));
        blocked.begin();
        assert!(wait.end(Unblock::Error) && !wait.end(Unblock::Timeout));
        blocked.begin();
        assert_eq!(wait.how(), Some(Unblock::Error));
        drop(blocked);
        assert!(wait.how().is_none() && !wait.end(Unblock::Timeout));
    }
}
