//! Locks on records, shared and exclusive, kept until their transaction ends.
//!
//! Each record that a transaction has or wants has a queue, and they come in its order, but for a transaction that reads a record and wants to write it: that
//! goes first. One that waits looks whether a circle of transactions wait for each other, before it sleeps and each time it wakes; then it does not wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pmem::sync::{CachePadded, Mutex};
use smallvec::SmallVec;

use crate::error::{Error, Result};

const SHARDS: usize = 64;
/// A sleeper looks by itself after this long, so often.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// What taking a lock has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The transaction had it.
    Before,
    /// It has it now.
    New,
    /// It shared it, and has it alone now.
    More,
}

/// Number of a transaction, of which no other has the same.
pub(crate) type Owner = u64;

#[derive(Default)]
struct Queue {
    /// One that writes, or several that read.
    holders: SmallVec<[(Owner, Mode); 2]>,
    waiting: VecDeque<(Owner, Mode)>,
}

/// By transaction, those it waits for.
type Waits = BTreeMap<Owner, Vec<Owner>>;

/// All locks of a store.
pub(crate) struct Locks {
    shards: [CachePadded<Mutex<BTreeMap<u64, Queue>>>; SHARDS],
    /// Taken inside a shard's lock, never around it.
    waits: Mutex<Waits>,
    owners: AtomicU64,
}

impl Queue {
    /// Whether it could have it now, whichever others wait.
    fn is_free(&self, owner: Owner, mode: Mode) -> bool {
        self.holders.iter().all(|(other, has)| *other == owner || (mode, *has) == (Mode::Shared, Mode::Shared))
    }

    fn has(&self, owner: Owner, mode: Mode) -> bool {
        self.holders.iter().any(|(holder, has)| *holder == owner && *has >= mode)
    }

    fn grant(&mut self, owner: Owner, mode: Mode) {
        match self.holders.iter_mut().find(|(holder, _)| *holder == owner) {
            Some((_, has)) => *has = mode.max(*has),
            None => self.holders.push((owner, mode)),
        }
    }

    /// Those in front get it, and wait for none; what the others wait for is noted anew. Whether any got it.
    fn advance(&mut self, waits: &Mutex<Waits>) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let mut any = false;
        let mut waits = waits.lock();
        while let Some((owner, mode)) = self.waiting.front().copied()
            && self.is_free(owner, mode)
        {
            self.waiting.pop_front();
            self.grant(owner, mode);
            waits.remove(&owner);
            any = true;
        }
        for (owner, _) in &self.waiting {
            waits.insert(*owner, self.before(*owner));
        }
        any
    }

    /// What it waits for: those that have it, and those before it.
    fn before(&self, owner: Owner) -> Vec<Owner> {
        let ahead = self.waiting.iter().map(|(other, _)| *other).take_while(|other| *other != owner);
        self.holders.iter().map(|(holder, _)| *holder).filter(|holder| *holder != owner).chain(ahead).collect()
    }
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| CachePadded(Mutex::new(BTreeMap::new()))),
            waits: Mutex::new(BTreeMap::new()),
            owners: AtomicU64::new(1),
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owners.fetch_add(1, Relaxed)
    }

    fn shard(&self, record: u64) -> &Mutex<BTreeMap<u64, Queue>> {
        &self.shards[(record.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize]
    }

    /// Takes it.
    pub(crate) fn take(&self, owner: Owner, record: u64, mode: Mode) -> Result<Taken> {
        let shard = self.shard(record);
        let mut queues = shard.lock();
        let queue = queues.entry(record).or_default();
        let has = queue.has(owner, Mode::Shared);
        if queue.has(owner, mode) {
            return Ok(Taken::Before);
        }
        let taken = if has { Taken::More } else { Taken::New };
        if queue.is_free(owner, mode) && (has || queue.waiting.is_empty()) {
            queue.grant(owner, mode);
            return Ok(taken);
        }
        if has {
            queue.waiting.push_front((owner, mode));
        } else {
            queue.waiting.push_back((owner, mode));
        }
        drop(queues);
        self.wait(owner, record, mode).map(|()| taken)
    }

    fn wait(&self, owner: Owner, record: u64, mode: Mode) -> Result<()> {
        let shard = self.shard(record);
        let mut looks = 0;
        loop {
            let mut queues = shard.lock();
            let queue = queues.entry(record).or_default();
            if queue.has(owner, mode) {
                return Ok(());
            }
            let is_circle = self.closes_circle(owner, queue.before(owner));
            if is_circle || looks == LOOKS {
                self.waits.lock().remove(&owner);
                queue.waiting.retain(|(waiting, _)| *waiting != owner);
                let any = queue.advance(&self.waits);
                drop(queues);
                if any {
                    pmem::sync::unpark(Self::address(shard));
                }
                return Err(if is_circle { Error::Deadlock } else { Error::LockWait { waited: LOOK * LOOKS } });
            }
            drop(queues);
            let waits = || shard.lock().get(&record).is_some_and(|queue| !queue.has(owner, mode));
            if pmem::sync::is_scheduled() {
                // Asked again, as others may have come between; from here on none does.
                let _ = waits() && pmem::sync::wait_point();
            } else {
                looks += u32::from(!pmem::sync::park_while(Self::address(shard), LOOK, waits));
            }
        }
    }

    /// Says for which others it waits. If one of those waits for it, directly or through others, it does not, and true is returned.
    fn closes_circle(&self, owner: Owner, before: Vec<Owner>) -> bool {
        let mut waits = self.waits.lock();
        let (mut ahead, mut seen) = (before.clone(), Vec::new());
        while let Some(next) = ahead.pop() {
            if next == owner {
                waits.remove(&owner);
                return true;
            }
            if !seen.contains(&next) {
                seen.push(next);
                ahead.extend(waits.get(&next).into_iter().flatten());
            }
        }
        waits.insert(owner, before);
        false
    }

    pub(crate) fn release(&self, owner: Owner, record: u64) {
        self.give(record, |queue| queue.holders.retain(|(holder, _)| *holder != owner));
    }

    /// What it had alone it shares again.
    pub(crate) fn share(&self, owner: Owner, record: u64) {
        self.give(record, |queue| {
            let own = queue.holders.iter_mut().filter(|(holder, _)| *holder == owner);
            own.for_each(|(_, mode)| *mode = Mode::Shared);
        });
    }

    fn give(&self, record: u64, give: impl FnOnce(&mut Queue)) {
        let shard = self.shard(record);
        let mut queues = shard.lock();
        let Some(queue) = queues.get_mut(&record) else { return };
        give(queue);
        let any = queue.advance(&self.waits);
        if queue.holders.is_empty() && queue.waiting.is_empty() {
            queues.remove(&record);
        }
        drop(queues);
        if any {
            pmem::sync::unpark(Self::address(shard));
        }
    }

    fn address(shard: &Mutex<BTreeMap<u64, Queue>>) -> usize {
        std::ptr::from_ref(shard) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Others come there, or the test fails.
    fn until(is_there: impl Fn() -> bool) {
        let some = (0..60_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            is_there()
        });
        assert!(some, "nobody came");
    }

    #[test]
    fn readers_share_and_a_writer_waits_in_its_turn() {
        let locks = Locks::new();
        let [reader, other, writer, late] = std::array::from_fn(|_| locks.owner());
        assert_eq!(locks.take(reader, 7, Mode::Shared).unwrap(), Taken::New);
        assert_eq!(locks.take(other, 7, Mode::Shared).unwrap(), Taken::New);
        assert_eq!(locks.take(other, 7, Mode::Shared).unwrap(), Taken::Before);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                locks.take(writer, 7, Mode::Exclusive).unwrap();
                order.lock().push("writer");
                locks.release(writer, 7);
            });
            until(|| !locks.shard(7).lock()[&7].waiting.is_empty());
            threads.spawn(|| {
                locks.take(late, 7, Mode::Shared).unwrap(); // behind the writer, though it is only read now
                order.lock().push("late");
                locks.release(late, 7);
            });
            until(|| locks.shard(7).lock()[&7].waiting.len() == 2);
            locks.release(reader, 7);
            locks.release(other, 7);
        });
        assert_eq!(order.into_inner(), ["writer", "late"]);
        assert!(locks.shard(7).lock().is_empty() && locks.waits.lock().is_empty());
    }

    /// Both read, both want to write: one of them goes on.
    #[test]
    fn two_that_want_to_write_what_both_read_are_a_circle() {
        let locks = Locks::new();
        let owners = [locks.owner(), locks.owner()];
        owners.iter().for_each(|owner| assert_eq!(locks.take(*owner, 1, Mode::Shared).unwrap(), Taken::New));
        let victims = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for owner in owners {
                let (locks, victims) = (&locks, &victims);
                threads.spawn(move || {
                    if let Err(error) = locks.take(owner, 1, Mode::Exclusive) {
                        assert!(matches!(error, Error::Deadlock), "{error}");
                        victims.fetch_add(1, Relaxed);
                    }
                    locks.release(owner, 1);
                });
            }
        });
        assert_eq!(victims.into_inner(), 1);
    }

    /// A transaction that has given up what another waited for is waited for no more: it does not close a circle.
    #[test]
    fn what_was_given_up_is_waited_for_by_nobody() {
        let locks = Locks::new();
        let [gives, stays, waits] = std::array::from_fn(|_| locks.owner());
        locks.take(gives, 1, Mode::Shared).unwrap();
        locks.take(stays, 1, Mode::Shared).unwrap();
        locks.take(waits, 2, Mode::Exclusive).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                locks.take(waits, 1, Mode::Exclusive).unwrap();
                [1, 2].into_iter().for_each(|record| locks.release(waits, record));
            });
            until(|| locks.waits.lock().get(&waits).is_some_and(|before| before.len() == 2));
            locks.release(gives, 1);
            threads.spawn(|| {
                locks.take(gives, 2, Mode::Shared).unwrap(); // waits
                locks.release(gives, 2);
            });
            until(|| locks.waits.lock().len() == 2);
            locks.release(stays, 1);
        });
    }

    #[test]
    fn what_one_had_alone_can_be_shared_again() {
        let locks = Locks::new();
        let [one, other] = [locks.owner(), locks.owner()];
        locks.take(one, 1, Mode::Shared).unwrap();
        assert_eq!(locks.take(one, 1, Mode::Exclusive).unwrap(), Taken::More);
        locks.share(one, 1);
        assert_eq!(locks.take(other, 1, Mode::Shared).unwrap(), Taken::New);
    }

    #[test]
    fn circles_of_several_transactions_are_found() {
        const COUNT: u64 = 4;
        let locks = Locks::new();
        let owners: Vec<_> = (0..COUNT).map(|_| locks.owner()).collect();
        for (owner, record) in owners.iter().zip(0..) {
            locks.take(*owner, record, Mode::Exclusive).unwrap();
        }
        let victims = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for (owner, record) in owners.iter().zip(0..COUNT) {
                let (locks, victims) = (&locks, &victims);
                threads.spawn(move || {
                    match locks.take(*owner, (record + 1) % COUNT, Mode::Exclusive) {
                        Ok(_) => locks.release(*owner, (record + 1) % COUNT),
                        Err(_) => _ = victims.fetch_add(1, Relaxed),
                    }
                    locks.release(*owner, record);
                });
            }
        });
        assert_eq!(victims.into_inner(), 1);
    }
}
