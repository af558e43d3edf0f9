//! What the opening of a damaged store gave up.

use std::fmt;

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
