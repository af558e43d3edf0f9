//! A log of an older format, written anew in this one.

use std::fs;
use std::path::Path;

use crate::at::At;
use crate::error::{Error, Result};
use crate::front::{Front, NAME};
use crate::options::Options;
use crate::record::Kind;
use crate::{Log, Lsn};

/// What a log has that was written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted {
    /// Records of the program.
    pub records: u64,
    /// The number of the oldest record, or of the one to come.
    pub head: Lsn,
    /// The number of the record to come.
    pub next: Lsn,
}

impl Options {
    /// Writes the log at `from`, which no process uses meanwhile, to a new log at `to`, in this build's format: the same records under the same numbers. The
    /// old log is opened as by [`open`](Self::open), and so recovered if it was not closed; what is in it stays. The new one is under its name as a whole or
    /// not at all.
    ///
    /// ```
    /// # fn main() -> cairn_log::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    /// # cairn_log::Options::new().bytes(1 << 20).create(&old)?.append(b"debit")?;
    /// let found = cairn_log::Options::new().convert(&old, &new)?;
    /// assert_eq!((found.records, found.next), (1, cairn_log::Lsn::new(2)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create); [`Error::IsReplica`]: a replica of a log of an older format is used as it is, or removed, and a new one joins.
    pub fn convert(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Converted> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let io =
            |op: &'static str, path: &Path, source| Error::Pool(pmem::Error::Io { op, path: path.to_owned(), source });
        if fs::symlink_metadata(to).is_ok() {
            return Err(io("convert to", to, std::io::ErrorKind::AlreadyExists.into()));
        }
        let (old, found) = self.clone().idle(None).open(from)?;
        let draft = pmem::Draft::new(to)?;
        let converted = self.copy(&old, found.head, &draft)?;
        draft.publish()?;
        old.close()?;
        Ok(converted)
    }

    fn copy(&self, old: &Log, head: Lsn, draft: &pmem::Draft) -> Result<Converted> {
        let stats = old.stats();
        // Records lie otherwise in their segments, so that they may take some more of them.
        let bytes = stats.capacity + 2 * stats.segment_bytes;
        let options = self.clone().bytes(bytes).segment_bytes(stats.segment_bytes).frequency(64).threads(1).idle(None);
        options.check()?;
        let size = (bytes + Front::Two.bytes() + 16384).next_multiple_of(4096);
        let pool = options.pool.clone().size(size).engine(NAME, [0; 64]).create_draft(draft)?;
        let first = At { lsn: head.0, position: 0, epoch: 1 };
        let new = Log::new(crate::core::Core::create_from(&pool, NAME, &options, first)?);
        drop(pool);
        let (mut records, mut iter) = (0, old.iter());
        while let Some(record) = iter.next()? {
            new.skip_to(record.lsn)?;
            new.append(record.payload)?;
            records += 1;
        }
        new.skip_to(stats.next)?;
        let next = new.stats().next;
        new.close()?;
        Ok(Converted { records, head, next })
    }
}

impl Log {
    /// The record to come gets this number: those before it go to no record of the program.
    fn skip_to(&self, lsn: Lsn) -> Result<()> {
        let core = self.core();
        while core.image.last() + 1 < lsn.0 {
            let reserved = core.reserve(0, false)?;
            core.image.complete(reserved, Kind::Watermark, &[], 0)?;
            core.force(reserved.lsn)?;
        }
        Ok(())
    }
}
