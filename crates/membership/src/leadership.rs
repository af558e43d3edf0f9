//! What the elected has.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::inner::Inner;
use crate::keeper::{Lease, give_back, keep};
use crate::tenure::Tenure;
use crate::{Error, Member, Result, Why};

/// Leader until it is resigned, dropped or lost. Dropping it resigns without waiting.
#[derive(Debug)]
pub struct Leadership {
    member: Member,
    tenure: Tenure,
    /// Whether the lease was given back.
    done: mpsc::Receiver<Result<()>>,
    /// Dropped before what waits for the keeper.
    stop: oneshot::Sender<()>,
    inner: Arc<Inner>,
}

pub(crate) fn start(inner: Arc<Inner>, member: Member, mut lease: Lease, term: u64) -> Leadership {
    let tenure = Tenure::new(term, lease.holding.held_until());
    let (stop, mut stopped) = oneshot::channel();
    let (said, done) = mpsc::sync_channel(1);
    let (etcd, timeout, kept) = (inner.etcd.clone(), inner.timeout, tenure.clone());
    inner.runtime.spawn_to_finish(move || async move {
        let why = keep(&etcd, &mut lease, &kept, &mut stopped).await;
        tracing::debug!(term, %why, "leadership is over");
        // A lease that is lost may still be there, and keep the key.
        drop(said.send(give_back(&etcd, lease.id, timeout).await));
    });
    Leadership { member, tenure, done, stop, inner }
}

impl Leadership {
    /// The member that was elected.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// The fencing number: higher than that of every leadership before.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.tenure.term()
    }

    /// Whether no other leader can have been elected yet: a look at the clock. Once false, it stays false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.tenure.is_held()
    }

    /// Nothing while it is held.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn check(&self) -> Result<()> {
        self.tenure.check()
    }

    /// Waits until it is no longer held.
    pub fn lost(&self) -> Why {
        self.tenure.lost()
    }

    /// Waits until it is no longer held, at most so long.
    pub fn lost_within(&self, limit: Duration) -> Option<Why> {
        self.tenure.lost_within(limit)
    }

    /// Why it is over, in words, with what the last attempt to keep it met; nothing while it is held.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.tenure.reason()
    }

    /// For every thread that acts in its name.
    #[must_use]
    pub fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// Gives it up, so that another can be elected at once.
    ///
    /// # Errors
    /// [`Error::Lost`]: it was lost before. [`Error::Unreachable`] and others: it is given up, but etcd does not know, and waits until the lease expires.
    pub fn resign(self) -> Result<()> {
        let held = self.tenure.check();
        self.tenure.end(Why::Resigned);
        drop(self.stop);
        let ended = || Error::Thread(std::io::Error::other("it has ended"));
        let given_back = self.done.recv().unwrap_or_else(|_| Err(ended()));
        drop(self.inner);
        held.and(given_back)
    }
}
