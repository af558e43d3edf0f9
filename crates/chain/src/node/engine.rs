//! The head as an engine, and the tail as one for transactions that only read: any structure works on it.

use tx::{Engine, Isolation};

use super::Node;
use super::transaction::NodeTx;

impl Engine for Node {
    type Tx<'a> = NodeTx<'a>;

    fn name(&self) -> &'static str {
        "chain"
    }

    fn strongest(&self) -> Isolation {
        Isolation::Strict
    }

    /// A transaction of the head; at a tail that is not the head one that only reads: it sees what transactions that are acknowledged have left, and perhaps later ones, all at one moment, which is between its
    /// begin and the end of its commit.
    ///
    /// # Errors
    /// [`Error::Stopped`](crate::Error::Stopped). That this replica is neither, or has no lease, is said by the first access, and that the tail changes nothing by the first access that would
    /// ([`Error::NotHead`](crate::Error::NotHead)).
    fn begin(&self, _: Isolation) -> tx::Result<NodeTx<'_>> {
        let mut core = self.core.lock();
        core.check_runs()?;
        let (transaction, epoch) = (core.begin(pmem::thread_number()), core.epoch());
        Ok(NodeTx::new(self, transaction, epoch, core.is_at_tail(transaction)))
    }
}
