//! What a transaction may see of others.

use std::fmt;

/// How far a transaction is shielded from others that run at the same time. Each level refuses what the ones before it refuse.
///
/// ```
/// use tx::Isolation;
/// assert!(Isolation::Snapshot < Isolation::Serializable && Isolation::Serializable < Isolation::Strict);
/// assert_eq!("strict".parse(), Ok(Isolation::Strict));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// Reads one committed state, the same to the end; of two that change one object only the first commits. Write skew and the
    /// read-only anomaly may occur (Berenson et al. 1995; Fekete et al. 2004).
    Snapshot,
    /// As if transactions had run one after the other, in some order.
    Serializable,
    /// As if they had run one after the other, in an order that agrees with real time: a transaction that begins after another has committed sees it.
    Strict,
}

impl Isolation {
    /// All levels, weakest first.
    pub const ALL: [Self; 3] = [Self::Snapshot, Self::Serializable, Self::Strict];

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
            Self::Strict => "strict",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Isolation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| format!("{name:?} is no isolation level: snapshot, serializable or strict"))
    }
}
