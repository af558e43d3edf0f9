//! Which faults of the medium a scenario's promise covers.
//!
//! A line that cannot be read is an error wherever it is read; only a single cell shows its older value, which is all that is left. A flipped bit is noticed where there is a
//! checksum: objects and values of a structure have none at rest, and of a log the last record cannot be told from a torn one, which scenarios that are held to each
//! record do not allow. A line that went back in time, alone, is an older state: only what is written once has none.

use crash::FaultKind;
use crash::FaultKind::{Flip, Poison, Stuck};

/// Those that notice more than what cannot be read, or less.
const OTHERS: &[(&str, &[FaultKind])] = &[
    ("two-slot", &[]),
    ("sealed", &[Flip, Poison, Stuck]),
    ("ring", &[Flip, Poison]),
    ("header", &[Flip, Poison]),
    ("log", &[Flip, Poison]),
    ("log-2", &[Flip, Poison]),
    ("log-freq", &[Flip, Poison]),
    ("log-freq-2", &[Flip, Poison]),
    ("log-copy", &[Flip, Poison]),
];

pub(crate) fn withstood(name: &str) -> &'static [FaultKind] {
    OTHERS.iter().find(|(of, _)| *of == name).map_or(&[Poison], |(_, kinds)| kinds)
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_that_are_listed_are_there() {
        let is = |name: &str| crate::ALL.iter().any(|named| named.name == name);
        assert!(super::OTHERS.iter().all(|(name, _)| is(name)));
    }
}
