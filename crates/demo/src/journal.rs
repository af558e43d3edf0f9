//! A journal per thread, beside the keys: each reported update notes its number there, in the same transaction.
//!
//! So the two prove each other: a transaction of which only half is there shows, and whether one that was under way has been made is known
//! exactly. The numbers go round 64 entries, so that an entry is applied long before it is written again, as it is with keys.

use structures::Map;
use tx::{Result, Transaction};

use crate::value::{Stamp, Values};

/// Entries of a thread.
const ENTRIES: u64 = 64;
/// Begins the names of entries. No key begins with a tab.
const MARK: u8 = b'\t';
/// Bytes of a name.
pub(crate) const NAME_BYTES: usize = 3;
/// A name has one byte for the thread.
pub(crate) const THREADS_MAX: usize = 128;

/// Where a thread notes the update of that number.
fn name(thread: usize, number: u64) -> [u8; NAME_BYTES] {
    [MARK, thread as u8, (number % ENTRIES) as u8]
}

/// What the entry says: it is no key's.
fn stamp(thread: usize, number: u64) -> Stamp {
    Stamp { key: u64::MAX - thread as u64, version: number }
}

/// Notes an update; `buffer` is to be used again.
pub(crate) fn note<M: Map, X: Transaction>(
    map: &M,
    tx: &mut X,
    values: &Values,
    (thread, number): (usize, u64),
    buffer: &mut Vec<u8>,
) -> Result<()> {
    map.put(tx, &name(thread, number), values.make(stamp(thread, number), 0, buffer)).map(drop)
}

/// What the journals say.
#[derive(Debug)]
pub(crate) struct Journal {
    entries: Vec<[u64; ENTRIES as usize]>,
}

impl Journal {
    /// Nothing yet, of that many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self { entries: vec![[0; ENTRIES as usize]; threads] }
    }

    /// Reads those that are in the map.
    pub(crate) fn read<M: Map, X: Transaction>(map: &M, tx: &X, values: &Values, threads: usize) -> Result<Self> {
        let mut journal = Self::new(threads);
        for thread in 0..threads {
            for entry in 0..ENTRIES {
                let name = name(thread, entry);
                if let Some(Ok(stamp)) = map.get(tx, &name)?.map(|value| values.read(value)) {
                    journal.enter(&name, stamp);
                }
            }
        }
        Ok(journal)
    }

    /// True of the name of an entry.
    pub(crate) fn is_entry(name: &[u8]) -> bool {
        name.first() == Some(&MARK)
    }

    /// Takes an entry; false if it is none, or in another's place.
    pub(crate) fn enter(&mut self, found: &[u8], Stamp { key, version }: Stamp) -> bool {
        let thread = (u64::MAX - key) as usize;
        let right = thread < self.entries.len() && found == name(thread, version);
        if right {
            self.entries[thread][(version % ENTRIES) as usize] = version;
        }
        right
    }

    /// The number of each thread's last update.
    pub(crate) fn last(&self) -> Vec<u64> {
        self.entries.iter().map(|entries| entries.iter().copied().max().unwrap_or(0)).collect()
    }

    /// Updates that are missing though later ones are there: thread and number.
    pub(crate) fn holes(&self) -> Vec<(usize, u64)> {
        let mut holes = Vec::new();
        for (thread, (entries, last)) in self.entries.iter().zip(self.last()).enumerate() {
            let expected = (last.saturating_sub(ENTRIES - 1)..=last).filter(|number| *number > 0);
            holes.extend(expected.filter(|n| entries[(n % ENTRIES) as usize] != *n).map(|n| (thread, n)));
        }
        holes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(numbers: impl IntoIterator<Item = u64>) -> Journal {
        let mut journal = Journal::new(2);
        for number in numbers {
            assert!(journal.enter(&name(1, number), stamp(1, number)));
        }
        journal
    }

    #[test]
    fn the_last_one_and_those_before_it() {
        assert_eq!(journal([]).last(), [0, 0]);
        for last in [1, 5, 63, 64, 65, 1000] {
            let journal = journal(1..=last);
            assert_eq!((journal.last(), journal.holes()), (vec![0, last], vec![]), "{last}");
        }
    }

    #[test]
    fn one_that_is_missing_is_a_hole() {
        assert_eq!(journal((1..=100).filter(|n| *n != 70)).holes(), [(1, 70)]);
        assert_eq!(journal((1..=10).filter(|n| *n != 1)).holes(), [(1, 1)]);
        assert_eq!(journal((1..=100).filter(|n| *n != 30)).holes(), [], "written over since");
    }

    #[test]
    fn entries_of_others_are_refused() {
        let mut journal = Journal::new(2);
        assert!(!journal.enter(&name(1, 7), stamp(0, 7)));
        assert!(!journal.enter(&name(1, 7), stamp(1, 8)));
        assert!(!journal.enter(&name(2, 7), stamp(2, 7)));
        assert!(!journal.enter(b"\t", stamp(1, 7)));
        assert!(!journal.enter(&name(1, 7), Stamp { key: 3, version: 7 }));
        assert_eq!(journal.last(), [0, 0]);
    }
}
