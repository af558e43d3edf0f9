//! The head as an engine: any structure works on it.

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

    /// # Errors
    /// [`Error::Stopped`](crate::Error::Stopped). That this is not the head is said by the first access.
    fn begin(&self, _: Isolation) -> tx::Result<NodeTx<'_>> {
        let mut core = self.core.lock();
        core.check_runs()?;
        let (transaction, epoch) = (core.begin(pmem::thread_number()), core.epoch());
        Ok(NodeTx::new(self, transaction, epoch))
    }
}
