//! Which engines there are.

use std::str::FromStr;

use heap::Policy;

/// Which engine, and how it rolls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A heap with this policy.
    Heap(Policy),
    /// Several versions of each object.
    Mvcc,
}

impl Kind {
    /// As in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heap(policy) => policy.name(),
            Self::Mvcc => "mvcc",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "mvcc" => Ok(Self::Mvcc),
            _ => match name.parse() {
                Ok(policy) => Ok(Self::Heap(policy)),
                Err(_) => Err(format!("{name:?} is none of none, undo, inplace, inplace-partial, eaw and mvcc")),
            },
        }
    }
}
