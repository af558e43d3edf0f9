//! Reading a replica in the process that serves it: what is committed, in order.
//!
//! A replica knows what is committed by what leaders say: each record names what was durable when it was written, and a head has only such records before it. Through
//! there a replica that a leader has repaired holds what every later leader will find, so nothing that was read is ever taken back.

use pmem::Pool;

use super::at::At;
use super::stored::Log;
use crate::Lsn;
use crate::error::{Error, Result};

/// How far a [`Replica`](crate::Replica) was read.
///
/// ```no_run
/// # fn main() -> cairn_log::Result<()> {
/// # let trust = cairn_log::fabric::Options::default();
/// use cairn_log::{Replica, Cursor};
/// let replica = Replica::serve_read(&pmem::Options::new(), "/mnt/pmem/orders.replica", "0.0.0.0:7400", trust)?;
/// let mut cursor = Cursor::default();
/// loop {
///     let seen = replica.news();
///     for (lsn, record) in replica.read(&mut cursor, 1 << 20)? {
///         println!("{lsn}: {} bytes", record.len());
///         replica.release(lsn)?; // carried out, not needed any more
///     }
///     replica.await_news(seen, std::time::Duration::from_secs(1));
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor(Option<At>);

impl Cursor {
    /// If the replica is `held` for its reader, records that it has not read may be missing for one reason alone: a leader began with a log that begins behind them.
    pub(super) fn read(&mut self, pool: &Pool, log: &Log, most: usize, held: bool) -> Result<Vec<(Lsn, Vec<u8>)>> {
        let head = log.head();
        if let Some(at) = self.0.filter(|at| held && at.lsn < head.lsn) {
            return Err(Error::Overtaken { wanted: Lsn(at.lsn), head: Lsn(head.lsn) });
        }
        let mut records = Vec::new();
        self.0 = Some(log.read(pool, self.0.unwrap_or_else(|| log.head()), most, &mut records)?);
        Ok(records)
    }

    /// Everything before this record was read, or is not in the log any more.
    #[must_use]
    pub fn position(&self) -> Lsn {
        Lsn(self.0.map_or(1, |at| at.lsn))
    }
}
