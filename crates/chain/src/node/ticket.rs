//! What the tail will say of a transaction.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Condvar;
use pmem::sync::Mutex;

use crate::{Error, Result};

#[derive(Debug, Default)]
struct Shared {
    outcome: Mutex<Option<std::result::Result<(), Lost>>>,
    told: Condvar,
}

/// Why there will be no answer.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// The copy was voided.
    Removed(u64),
    Stopped(String),
}

/// A transaction that is committed at the head, and on its way.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<Shared>);

impl Ticket {
    pub(crate) fn tell(&self, outcome: std::result::Result<(), Lost>) {
        self.0.outcome.lock().get_or_insert(outcome);
        self.0.told.notify_all();
    }

    /// Waits until every member has the transaction, persistently.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no acknowledgement came in time, or this replica is out of the chain: then it may have happened or not. [`Error::Stopped`]:
    /// likewise.
    pub fn wait(&self, most: Duration) -> Result<()> {
        let mut outcome = self.0.outcome.lock();
        if outcome.is_none() {
            self.0.told.wait_while_for(&mut outcome, |outcome| outcome.is_none(), most);
        }
        match &*outcome {
            Some(Ok(())) => Ok(()),
            Some(Err(Lost::Removed(n))) => Err(Error::Unknown { n: *n }),
            Some(Err(Lost::Stopped(why))) => Err(Error::Stopped { why: why.clone() }),
            None => Err(Error::Unknown { n: 0 }),
        }
    }
}
