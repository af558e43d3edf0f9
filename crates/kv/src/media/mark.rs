//! Positions in logs.

use pmem::LINE;

/// A position in a writer's log: segments are numbered, and counted in lines inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) sequence: u32,
    pub(crate) at: u64,
}

impl Mark {
    /// Before everything.
    pub(crate) const START: Self = Self { sequence: 0, at: 0 };

    pub(crate) fn from_word(word: u64) -> Self {
        Self { sequence: (word >> 32) as u32, at: (word & u64::from(u32::MAX)) * LINE }
    }

    pub(crate) fn to_word(self) -> u64 {
        (u64::from(self.sequence) << 32) | (self.at / LINE)
    }
}
