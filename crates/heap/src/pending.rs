//! The objects that a slot's committed transactions keep pending, and what the slot owes before it writes one of them again.
//!
//! What an object is owed follows from two things, which stand in one place each: what its record can tell of it at recovery ([`Told`], from the commit to the
//! retirement), and how far its transaction has come (its place in the slot's queue). Taking the object back, for a new transaction of the slot, is one step under the
//! slot's log lock: either the lock word becomes the writer's and the entry gives it up, or a reader is there and the entry is as it was.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::counted::steps;
use crate::hash::PointerHash;
use crate::lock::{self, Attempt};
use crate::raw::Word;

/// What the record of a committed transaction can tell of an object that it wrote, should it come up at recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// All that was written to it, and recovery does not look at the object for that: only short ranges were written, or none.
    Carried,
    /// Whether main still holds what was written: by the record's checksum.
    Checksummed,
    /// Nothing.
    Bare,
}

/// What a slot owes before it writes an object again that it has pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing: recovery finds the last durable state whatever happens to main.
    Nothing,
    /// The backup has to follow, durably: should the record come up, its checksum fails, and the backup counts.
    Stable,
    /// The record has to go: it would make the backup what main is then, or an earlier one would behind its failed checksum.
    Applied,
}

impl Told {
    /// What is owed when the record is of a transaction that is stable, or not, and when records in front of it, or behind, carry bytes.
    pub(crate) fn owed(self, stable: bool, carries: bool) -> Owed {
        match (self, stable) {
            (Told::Carried, _) => Owed::Nothing,
            // A checksum that fails says that the backup is right, and an unretired record before it that carries bytes would make it wrong.
            (Told::Checksummed, _) if carries => Owed::Applied,
            (Told::Checksummed, true) => Owed::Nothing,
            (Told::Checksummed, false) => Owed::Stable,
            // It cannot be told, so it goes first.
            (Told::Bare, _) => Owed::Applied,
        }
    }
}

/// A lock that stays pending.
#[derive(Clone, Copy)]
struct Entry {
    word: Word,
    /// The slot itself writes it again, or has: the lock is not this entry's any longer.
    taken: bool,
    told: Told,
    /// Its transaction: so many were applied before it.
    number: u64,
}

/// The locks that a slot keeps pending, in the order of their transactions.
#[derive(Default)]
pub(crate) struct Pending {
    entries: VecDeque<Entry>,
    /// Entries that are gone.
    gone: u64,
    /// From a word to its entry, counted with those that are gone. Made when a thread looks for one among many.
    index: HashMap<usize, u64, BuildHasherDefault<PointerHash>>,
    /// Entries that were put into the index, or had gone before.
    indexed: u64,
}

/// Entries up to this number are looked through.
const FEW: usize = 256;

impl Pending {
    #[inline]
    pub(crate) fn push(&mut self, word: Word, told: Told, number: u64) {
        self.entries.push_back(Entry { word, taken: false, told, number });
    }

    /// The place of a word that the slot has pending. In all, as many steps as there are entries, and some for each call.
    pub(crate) fn find(&mut self, word: Word) -> Option<usize> {
        if self.entries.len() <= FEW {
            return self.entries.iter().position(|entry| {
                steps::count();
                entry.word == word && !entry.taken
            });
        }
        let from = self.indexed.max(self.gone);
        for (entry, at) in self.entries.iter().skip((from - self.gone) as usize).zip(from..) {
            steps::count();
            if !entry.taken {
                self.index.insert(entry.word.id(), at);
            }
        }
        self.indexed = self.gone + self.entries.len() as u64;
        let at = self.index.get(&word.id())?.checked_sub(self.gone)? as usize;
        self.entries.get(at).filter(|entry| entry.word == word && !entry.taken).map(|_| at)
    }

    /// What the record tells of the object at `at`, and the number of its transaction.
    pub(crate) fn told(&self, at: usize) -> Option<(Told, u64)> {
        self.entries.get(at).map(|entry| (entry.told, entry.number))
    }

    /// Makes the slot the writer of the object at `at`, which only `readers` of the same transaction read. If it cannot be, nothing has changed.
    pub(crate) fn take(&mut self, at: usize, slot: usize, readers: u32, marked: bool) -> Option<Attempt> {
        let entry = self.entries.get_mut(at)?;
        let taken = lock::try_rewrite(entry.word.get(), slot, readers, marked);
        if taken.is_ok() {
            entry.taken = true;
            self.index.remove(&entry.word.id());
        }
        Some(taken)
    }

    /// Takes locks back from a transaction of the slot that has not changed what they stand for: those for which `gives` says so, each once. Those that are applied meanwhile are
    /// not asked for.
    pub(crate) fn take_back(&mut self, mut gives: impl FnMut(Word) -> bool) {
        for (at, entry) in self.entries.iter_mut().enumerate().rev().filter(|(_, entry)| entry.taken) {
            if gives(entry.word) {
                entry.taken = false;
                let at = self.gone + at as u64;
                if at < self.indexed {
                    self.index.insert(entry.word.id(), at);
                }
            }
        }
    }

    /// For tests: the object at `at` counts as carried.
    pub(crate) fn forget(&mut self, at: usize) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.told = Told::Carried;
        }
    }

    /// The locks of the first `count` entries end, which are gone.
    #[inline]
    pub(crate) fn pop(&mut self, count: usize) {
        self.gone += count as u64;
        let indexed = !self.index.is_empty();
        for word in self.entries.drain(..count).filter(|entry| !entry.taken).map(|entry| entry.word) {
            if indexed {
                self.index.remove(&word.id()); // it has one entry at most: taking it leaves none
            }
            lock::end_pending(word.get());
        }
        if self.index.capacity() > KEEP && self.index.is_empty() {
            self.index = HashMap::default();
        }
    }

    /// For tests: the locks of the first `count` entries end too early.
    pub(crate) fn unlock(&mut self, count: usize) {
        for entry in self.entries.range_mut(..count).filter(|entry| !entry.taken) {
            entry.taken = true;
            lock::end_pending(entry.word.get());
        }
    }
}

/// Words in the index whose memory is kept.
const KEEP: usize = 4096;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

    use pmem::{DomainChoice, PPtr};
    use tx::{Engine, Isolation, Typed};

    use super::*;
    use crate::{Heap, Intents, Options, Policy};

    /// A record that carries everything owes nothing; one without a checksum has to go; and so has one with a checksum beside one that carries.
    #[test]
    fn what_is_owed() {
        let all = [Told::Carried, Told::Checksummed, Told::Bare];
        let owed = |stable, carries| all.map(|told| told.owed(stable, carries));
        assert_eq!(owed(false, false), [Owed::Nothing, Owed::Stable, Owed::Applied]);
        assert_eq!(owed(true, false), [Owed::Nothing, Owed::Nothing, Owed::Applied]);
        assert_eq!(owed(false, true), [Owed::Nothing, Owed::Applied, Owed::Applied]);
        assert_eq!(owed(true, true), [Owed::Nothing, Owed::Applied, Owed::Applied]);
    }

    fn heap(dir: &tempfile::TempDir, options: Options) -> Heap {
        let options = options.coordinator(false).pool(pmem::Options::new().domain(DomainChoice::Emulated));
        Heap::create(dir.path().join("p"), &options).unwrap()
    }

    fn steps_of(work: impl FnOnce()) -> u64 {
        let before = steps::STEPS.get();
        work();
        steps::STEPS.get() - before
    }

    fn add_one(heap: &Heap, numbers: &[PPtr<u64>]) {
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let ranges: Vec<_> = numbers.iter().map(|&n| tx::Range::new(n.cast(), 8)).collect();
            tx::Transaction::intend(tx, &ranges)?;
            numbers.iter().try_for_each(|&number| tx.write(number).map(|n| *n += 1))
        })
        .unwrap();
    }

    /// However many objects a slot has pending, it looks for one among them in a few steps.
    #[test]
    fn many_pending_objects_are_written_again_in_linear_time() {
        const MANY: usize = 4000;
        for policy in [Policy::InPlace, Policy::InPlacePartial, Policy::Undo, Policy::Eaw] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let heap = heap(&dir, Options::new().policy(policy).bytes(2 << 20).slots(2).alpha(0.9));
            let mut numbers: Vec<PPtr<u64>> = heap
                .transact(Isolation::Strict, |tx| (0..MANY).map(|_| tx.alloc(&0)).collect::<tx::Result<_>>())
                .unwrap();
            heap.apply_pending().unwrap();
            let taken = steps_of(|| {
                for _ in 0..3 {
                    add_one(&heap, &numbers);
                    numbers.reverse();
                }
            });
            let most = 3 * MANY as u64 + FEW as u64;
            assert!((MANY as u64..=most).contains(&taken), "{policy}: {taken} steps for {MANY} objects, three times");
            let tx = heap.begin(Isolation::Strict).unwrap();
            assert!(numbers.iter().all(|&number| *tx.read(number).unwrap() == 3));
        }
    }

    /// However many zones are dirty.
    #[test]
    fn many_dirty_zones_are_cleaned_in_linear_time() {
        const ZONES: u64 = 1000;
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let heap =
            heap(&dir, Options::new().intents(Intents::Objects).bytes(2 * ZONES * 4096).slots(4).zone_bytes(4096));
        let zones: Vec<PPtr<u8>> = heap
            .transact(Isolation::Strict, |tx| -> tx::Result<_> {
                (0..ZONES).map(|_| tx::Transaction::alloc_bytes(tx, 4096, 8)).collect()
            })
            .unwrap();
        assert!(heap.stats().dirty_zones >= ZONES as usize as _, "{:?}", heap.stats());
        // Beside a transaction which is in one of them.
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(zones[7].cast::<u64>()).map(|n| *n = 1).unwrap();
        let most = 8 * heap.stats().dirty_zones as u64;
        let cleaned = steps_of(|| heap.core().clean_some().unwrap());
        assert!(cleaned > 0 && cleaned <= most, "{cleaned} steps, expected {most} at most");
        drop(tx);
        let closed = steps_of(|| heap.close().unwrap());
        assert!(closed > 0 && closed <= most, "{closed} steps, expected {most} at most");
    }
}
