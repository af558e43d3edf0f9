//! Is a copy that no process serves as its leaders left it?

use pmem::Pool;

use super::copy::{Copy, Log};
use super::replica::ReplicaStatus;
use crate::Lsn;
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::recovery::Walk;

/// What is in a copy of a log.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CheckedCopy {
    /// What it is a copy of.
    pub status: ReplicaStatus,
    /// Records of the program that stand in it, one behind the other, each read and whole.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first that does not.
    pub next: Lsn,
    /// Something stands behind them, which says of no record that it was durable: what a leader was writing when it stopped, or the last records, damaged since. The other
    /// copies tell, when the log is opened.
    pub in_doubt: bool,
}

/// Reads every record of the copy in a region of a pool, and changes nothing; `None` if it is a new one, of no log yet.
///
/// # Errors
/// [`Error::Lost`] if records are missing that were durable, by what stands behind them; [`Error::NotALog`], [`Error::BadSuperline`] and those of the pool for a copy that
/// cannot be read.
pub fn check_copy(pool: &Pool, region: &str) -> Result<Option<CheckedCopy>> {
    let copy = Copy::open_in(pool, region, Failpoints::default())?;
    copy.log().map(|log| log.check(pool)).transpose()
}

impl Log {
    fn check(&self, pool: &Pool) -> Result<CheckedCopy> {
        let mut reader = self.reader(pool);
        let walk = reader.walk()?;
        let Walk { lsn, position, epoch, records, bytes, .. } = walk;
        let end = Walk { lsn, position, epoch, opened: [].into(), records, bytes };
        let (through, in_doubt) = reader.behind(&end)?;
        if through >= lsn {
            return Err(Error::Lost { lsn: Lsn(lsn), offset: self.geometry.locate(position), through: Lsn(through) });
        }
        Ok(CheckedCopy { status: ReplicaStatus::of(&self.formed()), records, bytes, next: Lsn(lsn), in_doubt })
    }
}
