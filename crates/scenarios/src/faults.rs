//! Which faults of the medium a scenario's promise covers, and what may be gone of a log then without a word.
//!
//! A line that cannot be read is an error wherever it is read; only a single cell shows its older value, which is all that is left. A flipped bit is noticed where there is a
//! checksum: objects and values of a structure have none at rest. A line, or a page, that went back in time is noticed in a log and in a store, but for the last records of one that was not
//! closed, which README's limits name; elsewhere, alone, it is an older state: only what is written once has none.

use std::collections::BTreeMap;

use crash::FaultKind::{Flip, Page, Poison, Stuck};
use crash::{FaultKind, Violation};

const ALL: &[FaultKind] = &[Flip, Poison, Stuck, Page];

/// Those that notice more than what cannot be read, or less.
const OTHERS: &[(&str, &[FaultKind])] = &[
    ("two-slot", &[]),
    ("checksummed", &[Flip, Poison, Stuck]),
    ("ring", &[Flip, Poison]),
    ("header", ALL),
    ("log", ALL),
    ("log-2", ALL),
    ("log-freq", ALL),
    ("log-freq-2", ALL),
    ("log-every", ALL),
    ("log-every-freq", ALL),
    // Its other copies tell.
    ("log-copy", &[Flip, Poison]),
    ("log-leader", ALL),
    ("kv", ALL),
    ("kv-2", ALL),
    ("kv-grouped", ALL),
    ("kv-bounded", ALL),
    ("kv-bounded-2", ALL),
    ("kv-every", ALL),
    ("kv-every-bounded", ALL),
];

/// How many of the last transactions of a store's log may be missing, if its watermark is written after so many: the bytes of the last one do not tell whether it was torn, and
/// nothing tells that a line or a page was written.
pub(crate) fn unnoticed(planted: Option<FaultKind>, every: usize) -> usize {
    match planted {
        None | Some(Poison) => 0,
        Some(Flip) => 1,
        Some(Stuck | Page) => every,
    }
}

/// Whether the watermark of a log must tell that a record was durable: `durable` are those that were, each with what was known to be durable when it was reserved. The first of
/// those that were reserved behind the record's barrier may just have missed it; behind `every` more that are durable another one is to write the watermark.
pub(crate) fn is_told(lsn: u64, durable: &BTreeMap<u64, u64>, every: u64) -> bool {
    let behind = durable.iter().find(|(_, known)| **known >= lsn);
    behind.is_some_and(|(first, _)| durable.values().any(|known| known + 2 >= first + every))
}

/// Nothing tells that these were there. After a mere crash this is a loss.
pub(crate) fn gone_unnoticed(lost: usize, of: &str) -> Result<(), Violation> {
    if lost == 0 {
        Ok(())
    } else {
        Err(Violation::detected(format!("the last {lost} {of} are gone, and nothing tells")))
    }
}

pub(crate) fn withstood(name: &str) -> &'static [FaultKind] {
    OTHERS.iter().find(|(of, _)| *of == name).map_or(&[Poison], |(_, kinds)| kinds)
}

#[cfg(test)]
mod tests {
    use super::is_told;

    #[test]
    fn all_that_are_listed_are_there() {
        let is = |name: &str| crate::ALL.iter().any(|named| named.name == name);
        assert!(super::OTHERS.iter().all(|(name, _)| is(name)));
    }

    /// Sixteen of one thread, and not one more; of a force, those that were reserved together, too.
    #[test]
    fn the_watermark_tells_of_all_but_the_last() {
        let one_by_one = (1..=40).map(|lsn| (lsn, lsn - 1)).collect();
        assert!((1..=24).all(|lsn| is_told(lsn, &one_by_one, 16)));
        assert!((25..=40).all(|lsn| !is_told(lsn, &one_by_one, 16)));
        let at_once = (1..=40).map(|lsn| (lsn, 0)).collect();
        assert!((1..=40).all(|lsn| !is_told(lsn, &at_once, 16)));
    }
}
