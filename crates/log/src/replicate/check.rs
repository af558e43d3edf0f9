//! Is a replica that no process serves as its leaders left it?

use pmem::Pool;

use super::replica::ReplicaStatus;
use super::stored::{Log, StoredReplica};
use super::wire::NEWEST;
use crate::Lsn;
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::recovery::Walk;

/// What is in a replica of a log.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CheckedReplica {
    /// What it is a replica of.
    pub status: ReplicaStatus,
    /// Records of the program that stand in it, one behind the other, each read and whole.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first that does not.
    pub next: Lsn,
    /// Something stands behind them, which says of no record that it was durable: what a leader was writing when it stopped, or the last records, damaged since. The other
    /// replicas tell, when the log is opened.
    pub in_doubt: bool,
}

/// Reads every record of the replica in a region of a pool, and changes nothing; `None` if it is a new one, of no log yet.
///
/// # Errors
/// [`Error::Lost`] if records are missing that were durable, by what stands behind them; [`Error::NotALog`], [`Error::BadSuperline`] and those of the pool for a replica that
/// cannot be read.
pub fn check_replica(pool: &Pool, region: &str) -> Result<Option<CheckedReplica>> {
    let replica = StoredReplica::open_in(pool, region, Failpoints::default())?;
    replica.log().map(|log| log.check(pool)).transpose()
}

impl Log {
    fn check(&self, pool: &Pool) -> Result<CheckedReplica> {
        let mut reader = self.reader(pool);
        let walk = reader.walk()?;
        let Walk { lsn, position, epoch, records, bytes, .. } = walk;
        let end = Walk { lsn, position, epoch, opened: [].into(), records, bytes };
        let (through, in_doubt) = reader.behind(&end)?;
        if through >= lsn {
            return Err(Error::Lost { lsn: Lsn(lsn), offset: self.geometry.locate(position), through: Lsn(through) });
        }
        Ok(CheckedReplica {
            status: ReplicaStatus::of(&self.formed(), NEWEST),
            records,
            bytes,
            next: Lsn(lsn),
            in_doubt,
        })
    }
}
