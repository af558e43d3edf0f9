//! Which transaction writes which key: first updater wins.
//!
//! A table of words. A word has the holder of one key's lock, and most of that key's hash: two keys that share a word are told apart. Where a second key comes
//! to a word, or a transaction waits, the word leads to a list (`Row`) instead, and goes back to being a word when that is over. A lock is held from the first
//! write of a key to the end of the transaction.
//!
//! A transaction that waits stands in a row, in the order of ages, and sleeps. One that gives a lock back gives it to the first in its row: none that is
//! younger gets it before. So a transaction that waits for a lock waits for the present holder and for those that are older than itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use pmem::sync::{Mutex, switch_point};

use crate::isolation::active::{Active, Pin};
use crate::threads::wait::{Ticket, Wait};

/// Words, at most, and for each transaction there can be. Keys that share one cost a little time when both are locked, and a larger table costs cache misses.
const STRIPES: usize = 1 << 14;
const EACH: usize = 64;
/// Of lists.
const SHARDS: usize = 64;

/// The bits of a word that have the holder's transaction slot plus one; the others have the hash. All of them: there is a list.
const SEAT: u64 = (1 << 20) - 1;

pub(super) struct Locks {
    words: Box<[AtomicU64]>,
    /// Of words that lead to them. A word changes to and from that under the lock of its shard.
    shards: Box<[Shard]>,
}

/// The lists of some words, by their places.
type Shard = Mutex<HashMap<usize, Vec<Row>>>;

/// The lock of a key, and the transactions that wait for it.
struct Row {
    /// TxSlot and hash, as in a word.
    holder: u64,
    /// How often it went from hand to hand.
    turns: u64,
    waiting: Vec<Waiting>,
}

struct Waiting {
    /// Oldest first.
    age: u64,
    tx_slot: usize,
    ticket: Arc<Ticket>,
}

/// Why a transaction does not wait any more.
#[derive(Debug)]
pub(crate) enum Stop {
    /// An older transaction wants something that this one has.
    Wounded,
    /// Another transaction held it for too long.
    TimedOut,
    /// No transaction can commit any more.
    Unusable(pmem::Error),
}

/// What came of trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// It was free.
    Taken,
    /// It was ours already.
    Own,
    /// Another transaction has it.
    Busy,
}

/// What a waiting transaction needs to know of the store.
pub(super) trait Around {
    fn active(&self) -> &Active;
    /// A number for a transaction that waits and has no age.
    fn age(&self) -> u64;
    fn check_usable(&self) -> pmem::Result<()>;
}

fn word(hash: u64, tx_slot: usize) -> u64 {
    hash & !SEAT | (tx_slot as u64 + 1)
}

fn is_same_key(a: u64, b: u64) -> bool {
    a & !SEAT == b & !SEAT
}

fn tx_slot(word: u64) -> usize {
    (word & SEAT) as usize - 1
}

impl Locks {
    /// Asks for a lock that is about to be taken.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        pmem::prefetch((&raw const self.words[self.index(hash)]).cast());
    }

    pub(super) fn new(transactions: usize) -> Self {
        let count = (transactions * EACH).next_power_of_two().min(STRIPES);
        let words = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { words, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.words.len() - 1)
    }

    fn shard(&self, index: usize) -> &Shard {
        &self.shards[index % SHARDS]
    }

    /// The transaction slot of its holder.
    #[inline]
    pub(super) fn owner(&self, hash: u64) -> Option<usize> {
        let index = self.index(hash);
        match self.words[index].load(Acquire) {
            0 => None,
            other if other & SEAT != SEAT => is_same_key(other, hash).then(|| tx_slot(other)),
            _ => self.owner_in_row(index, hash),
        }
    }

    #[cold]
    fn owner_in_row(&self, index: usize, hash: u64) -> Option<usize> {
        let shard = self.shard(index).lock();
        let holder = match self.words[index].load(Acquire) {
            0 => None,
            other if other & SEAT != SEAT => Some(other),
            _ => shard.get(&index)?.iter().map(|row| row.holder).find(|holder| is_same_key(*holder, hash)),
        };
        holder.filter(|holder| is_same_key(*holder, hash)).map(tx_slot)
    }

    #[inline]
    pub(super) fn try_lock(&self, hash: u64, pin: &Pin<'_>) -> Tried {
        switch_point();
        let index = self.index(hash);
        let own = word(hash, pin.tx_slot);
        match self.words[index].compare_exchange(0, own, AcqRel, Acquire) {
            Ok(_) => Tried::Taken,
            Err(other) if other == own => Tried::Own,
            Err(other) if other & SEAT != SEAT && is_same_key(other, own) => Tried::Busy,
            Err(_) => self.with_row(index, own, |_| Tried::Busy),
        }
    }

    /// Takes the lock in the list of its word, or has `busy` look at its holder. A list is made.
    #[cold]
    fn with_row(&self, index: usize, own: u64, busy: impl FnOnce(&mut Row) -> Tried) -> Tried {
        let mut shard = self.shard(index).lock();
        let mut present = self.words[index].load(Acquire);
        while present & SEAT != SEAT {
            let wanted = if present == 0 { own } else { SEAT };
            match self.words[index].compare_exchange(present, wanted, AcqRel, Acquire) {
                Ok(0) => return Tried::Taken,
                Ok(holder) => {
                    shard.insert(index, vec![Row { holder, turns: 0, waiting: Vec::new() }]);
                    break;
                }
                Err(other) => present = other,
            }
        }
        let rows = shard.entry(index).or_default();
        let Some(row) = rows.iter_mut().find(|row| is_same_key(row.holder, own)) else {
            rows.push(Row { holder: own, turns: 0, waiting: Vec::new() });
            return Tried::Taken;
        };
        if row.holder == own { Tried::Own } else { busy(row) }
    }

    /// Waits for the lock until an older transaction wants us out of the way, or the time allowed for one holder is over.
    ///
    /// Wound-wait (Rosenkrantz, Stearns, Lewis 1978): an older transaction tells the holder to give way, a younger one waits. So waiting goes from younger to
    /// older only, and there is no circle; the oldest transaction always gets through. The row is in the order of ages, so the one that gets the lock from it
    /// is older than all that go on waiting.
    pub(super) fn lock(&self, hash: u64, pin: &Pin<'_>, around: &impl Around) -> Result<Tried, Stop> {
        match self.try_lock(hash, pin) {
            Tried::Busy => self.lock_in_row(hash, pin, around),
            got => Ok(got),
        }
    }

    #[cold]
    fn lock_in_row(&self, hash: u64, pin: &Pin<'_>, around: &impl Around) -> Result<Tried, Stop> {
        let (index, own) = (self.index(hash), word(hash, pin.tx_slot));
        let wounds = pin.tx_slot().age.load(Relaxed);
        let age = if wounds != 0 { wounds } else { around.age() };
        let ticket = Ticket::new();
        // Said before anybody can know that it waits.
        let _here = pin.tx_slot().parked().here();
        let mut turns = 0;
        let got = self.with_row(index, own, |row| {
            turns = row.turns;
            let at = row.waiting.partition_point(|waiting| waiting.age <= age);
            row.waiting.insert(at, Waiting { age, tx_slot: pin.tx_slot, ticket: ticket.clone() });
            let holder = around.active().tx_slot(tx_slot(row.holder));
            if wounds != 0 && holder.age.load(Relaxed) > wounds {
                holder.wound();
            }
            Tried::Busy
        });
        if got != Tried::Busy {
            return Ok(got);
        }
        let mut wait = Wait::new();
        loop {
            if ticket.is_given() {
                return Ok(Tried::Taken);
            }
            let stop = if wounds != 0 && pin.tx_slot().wounded.load(Acquire) {
                Some(Stop::Wounded)
            } else if let Err(error) = around.check_usable() {
                Some(Stop::Unusable(error))
            } else if wait.again() {
                None
            } else {
                let other = self.turns(index, own);
                if other != Some(turns) {
                    wait.renew();
                    turns = other.unwrap_or(turns);
                    continue;
                }
                Some(Stop::TimedOut)
            };
            if let Some(stop) = stop {
                return if self.leave(index, own, &ticket) { Err(stop) } else { Ok(Tried::Taken) };
            }
        }
    }

    /// How often a lock went from hand to hand.
    fn turns(&self, index: usize, own: u64) -> Option<u64> {
        let shard = self.shard(index).lock();
        shard.get(&index)?.iter().find(|row| is_same_key(row.holder, own)).map(|row| row.turns)
    }

    /// Leaves a row; false if it has the lock by now. The ticket alone tells: with no waiter behind it the row is a word again.
    fn leave(&self, index: usize, own: u64, ticket: &Ticket) -> bool {
        let mut shard = self.shard(index).lock();
        if ticket.is_given() {
            return false;
        }
        let rows = shard.get_mut(&index).into_iter().flatten();
        for row in rows.filter(|row| is_same_key(row.holder, own)) {
            row.waiting.retain(|waiting| waiting.tx_slot != tx_slot(own));
        }
        true
    }

    #[inline]
    pub(super) fn unlock(&self, hash: u64, pin: &Pin<'_>) {
        let index = self.index(hash);
        let own = word(hash, pin.tx_slot);
        if self.words[index].compare_exchange(own, 0, Release, Relaxed).is_err() {
            self.pass_on(index, own);
        }
    }

    #[cold]
    fn pass_on(&self, index: usize, own: u64) {
        let mut shard = self.shard(index).lock();
        let Some(rows) = shard.get_mut(&index) else {
            // The thread that gave it to us has made it a word again since we looked; it does not become a list without the shard.
            let _ = self.words[index].compare_exchange(own, 0, Release, Relaxed);
            return;
        };
        let Some(at) = rows.iter().position(|row| row.holder == own) else { return };
        let row = &mut rows[at];
        if row.waiting.is_empty() {
            rows.swap_remove(at);
        } else {
            let next = row.waiting.remove(0);
            row.holder = own & !SEAT | (next.tx_slot as u64 + 1);
            row.turns += 1;
            next.ticket.give();
        }
        // A list with one holder and no waiter is a word again.
        let word = match rows.as_slice() {
            [] => 0,
            [row] if row.waiting.is_empty() => row.holder,
            _ => return,
        };
        shard.remove(&index);
        self.words[index].store(word, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Alone(Active, AtomicU64);

    impl Alone {
        fn new(tx_slots: usize) -> Self {
            Self(Active::new(1, tx_slots, false), 100.into())
        }
    }

    impl Around for Alone {
        fn active(&self) -> &Active {
            &self.0
        }

        fn age(&self) -> u64 {
            self.1.fetch_add(1, Relaxed)
        }

        fn check_usable(&self) -> pmem::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_older_one_gets_the_lock() {
        let (locks, alone) = (Locks::new(4), Alone::new(4));
        let (old, young) = (alone.0.pin().unwrap(), alone.0.pin().unwrap());
        old.tx_slot().age.store(1, Relaxed);
        young.tx_slot().age.store(2, Relaxed);
        assert_eq!(locks.try_lock(7, &young), Tried::Taken);
        assert_eq!(locks.try_lock(7, &young), Tried::Own);
        assert_eq!(locks.try_lock(7, &old), Tried::Busy);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| locks.lock(7, &old, &alone));
            while !young.tx_slot().wounded.load(Acquire) {
                std::thread::yield_now();
            }
            locks.unlock(7, &young);
            assert!(matches!(waiting.join().unwrap(), Ok(Tried::Taken)));
        });
        // And the young one, wounded, does not wait.
        assert!(matches!(locks.lock(7, &young, &alone), Err(Stop::Wounded)));
        assert_eq!(locks.owner(7), Some(old.tx_slot));
    }

    #[test]
    fn keys_that_share_a_word_have_locks_of_their_own() {
        let (locks, alone) = (Locks::new(4), Alone::new(4));
        let pins = [(); 3].map(|()| alone.0.pin().unwrap());
        let keys = [7, 7 | 1 << 40, 7 | 2 << 40];
        for (key, pin) in keys.iter().zip(&pins) {
            assert_eq!(locks.try_lock(*key, pin), Tried::Taken);
            assert_eq!(locks.try_lock(*key, pin), Tried::Own);
        }
        for (key, pin) in keys.iter().zip(&pins) {
            assert_eq!(locks.owner(*key), Some(pin.tx_slot));
            assert_eq!(locks.try_lock(keys[0], pin), if *key == 7 { Tried::Own } else { Tried::Busy });
        }
        for (key, pin) in keys.iter().zip(&pins) {
            locks.unlock(*key, pin);
            assert_eq!(locks.owner(*key), None);
        }
        assert!(locks.words.iter().all(|word| word.load(Relaxed) == 0));
        assert!(locks.shards.iter().all(|shard| shard.lock().is_empty()));
    }

    /// It is told to give way when the lock comes to it, and no other waiter is behind it.
    #[test]
    fn who_is_given_a_lock_while_it_leaves_has_it() {
        let (locks, alone) = (Locks::new(4), Alone::new(4));
        let (holder, waits) = (alone.0.pin().unwrap(), alone.0.pin().unwrap());
        let (index, own) = (locks.index(7), word(7, waits.tx_slot));
        let ticket = Ticket::new();
        assert_eq!(locks.try_lock(7, &holder), Tried::Taken);
        locks.with_row(index, own, |row| {
            row.waiting.push(Waiting { age: 1, tx_slot: waits.tx_slot, ticket: ticket.clone() });
            Tried::Busy
        });
        locks.unlock(7, &holder);
        assert!(ticket.is_given() && !locks.leave(index, own, &ticket));
        assert_eq!(locks.owner(7), Some(waits.tx_slot));
        locks.unlock(7, &waits);
        assert_eq!(locks.owner(7), None);
    }

    /// Three take two locks each, under many schedules, or give way to an older one. (One that asked again would find what it had left behind.)
    #[test]
    fn every_lock_is_given_back() {
        let takes = |locks: &Locks, alone: &Alone, age: u64, keys: [u64; 2]| {
            let pin = alone.0.pin().unwrap();
            pin.tx_slot().age.store(age, Relaxed);
            let gets = |key: &&u64| locks.lock(**key, &pin, alone).is_ok();
            let taken = keys.iter().take_while(gets).count();
            switch_point();
            keys[..taken].iter().for_each(|key| locks.unlock(*key, &pin));
        };
        conformance::shuttle::explore(1, 2000, move || {
            let (locks, alone) = (Locks::new(1), Alone::new(4));
            let (locks, alone) = (&locks, &alone);
            let thread =
                |age, keys| -> Box<dyn FnOnce() + Send + '_> { Box::new(move || takes(locks, alone, age, keys)) };
            conformance::shuttle::together(vec![thread(3, [5, 3]), thread(2, [7, 3]), thread(1, [5, 7])]);
            assert!(locks.words.iter().all(|word| word.load(Relaxed) == 0), "a lock that nobody has");
            assert!(locks.shards.iter().all(|shard| shard.lock().is_empty()));
        });
    }

    /// Each thread takes two locks, in any order, again and again: all get through, none is overtaken by one that came later, and nothing is left.
    #[test]
    fn who_waits_gets_it_in_the_order_of_ages() {
        let (locks, alone) = (Locks::new(1), Alone::new(16));
        let holder = alone.0.pin().unwrap();
        let (got, next) = (std::sync::Mutex::new(Vec::new()), AtomicU64::new(1));
        assert_eq!(locks.try_lock(3, &holder), Tried::Taken);
        std::thread::scope(|threads| {
            for n in 0..6 {
                let (locks, alone, got) = (&locks, &alone, &got);
                threads.spawn(move || {
                    let pin = alone.0.pin().unwrap();
                    assert!(matches!(locks.lock(3, &pin, alone), Ok(Tried::Taken)));
                    got.lock().unwrap().push(n);
                    locks.unlock(3, &pin);
                });
                while locks.shard(3).lock().get(&3).map_or(0, |rows| rows[0].waiting.len()) <= n {
                    std::thread::yield_now();
                }
            }
            locks.unlock(3, &holder);
        });
        assert_eq!(got.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
        std::thread::scope(|threads| {
            for n in 0..6_u64 {
                let (locks, alone, next) = (&locks, &alone, &next);
                threads.spawn(move || {
                    for _ in 0..200 {
                        let age = next.fetch_add(1, Relaxed);
                        'again: loop {
                            let pin = alone.0.pin().unwrap();
                            pin.tx_slot().age.store(age, Relaxed);
                            let keys = if n % 2 == 0 { [3, 5] } else { [5, 3] };
                            for (at, key) in keys.iter().enumerate() {
                                if locks.lock(*key, &pin, alone).is_err() {
                                    keys[..at].iter().for_each(|key| locks.unlock(*key, &pin));
                                    continue 'again;
                                }
                            }
                            keys.iter().for_each(|key| locks.unlock(*key, &pin));
                            break;
                        }
                    }
                });
            }
        });
        locks.unlock(3, &holder); // a pin that does not have it gives nothing back
        assert!(locks.words.iter().all(|word| word.load(Relaxed) == 0));
        assert!(locks.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
