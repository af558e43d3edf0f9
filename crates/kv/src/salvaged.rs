//! What the opening of a damaged store gave up.

use std::collections::BTreeSet;
use std::fmt;

use pmem::LINE;

use crate::error::Result;
use crate::media::key;
use crate::media::mark::Mark;
use crate::recovery::Reading;
use crate::store::Store;

/// What was given up when a store was opened by [`Options::salvage`](crate::Options::salvage).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Salvaged {
    /// What was wrong with the index: it was made anew of all whole records, so that keys may be back that were deleted, or some versions of it were left out.
    pub index: Option<String>,
    /// Logs that count only up to what of them is lost.
    pub logs: Vec<CutLog>,
}

impl Salvaged {
    /// Whether nothing was given up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_none() && self.logs.is_empty()
    }
}

/// A log that was cut off: what stands behind is whole, but was committed after something that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CutLog {
    /// Whose log.
    pub writer: usize,
    /// From here on.
    pub offset: u64,
    /// Whole records behind.
    pub records: u64,
    /// How many different keys they are of.
    pub keys: u64,
}

impl fmt::Display for CutLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writer, offset, records, keys } = self;
        write!(f, "log of writer {writer}: cut off at byte {offset}, where something of it is lost; ")?;
        write!(f, "{records} whole records of {keys} keys behind it are left out")
    }
}

impl Store {
    /// What opening this store has given up: nothing unless it was damaged, and opened by [`Options::salvage`](crate::Options::salvage).
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = kv::Options::new().salvage(true).create(dir.path().join("s"))?;
    /// assert!(store.salvaged().is_empty());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn salvaged(&self) -> &Salvaged {
        &self.core.salvaged
    }
}

impl Reading<'_> {
    /// What is whole from where the reading has stopped.
    pub(crate) fn cut_off(&self) -> Result<CutLog> {
        let (mut records, mut keys) = (0, BTreeSet::new());
        for (sequence, piece) in self.pieces.range(self.at.sequence..) {
            let mut at = if *sequence == self.at.sequence { self.at.at.next_multiple_of(LINE) } else { 0 };
            while at < piece.limit {
                match self.checksummed(Mark { sequence: *sequence, at })? {
                    Some(record) => {
                        records += 1;
                        keys.insert(key::hash(record.key()));
                        at += record.space();
                    }
                    // A commit begins on a line.
                    None => at = (at + 1).next_multiple_of(LINE),
                }
            }
        }
        let piece = self.pieces.range(self.at.sequence..).next();
        let offset = piece.map_or(0, |(_, piece)| piece.base + self.at.at);
        Ok(CutLog { writer: self.writer, offset, records, keys: keys.len() as u64 })
    }
}
