//! In which order commits are numbered and seen: that of their timestamps.
//!
//! Where a commit waits for a device or for other machines, a reader must not: it sees the state before the first commit that is still under way
//! ([`Active::stable`]). So a commit is acknowledged only when all with smaller timestamps are published, or have given up: then it is in the state that a
//! transaction that begins from then on sees.
//!
//! ```text
//!   join       a timestamp and a position in the queue, under one lock: the queue is in order of timestamps
//!   turn       if commits are numbered: when all before it have their numbers, so that a prefix by numbers is one by timestamps
//!   publish    readers see it when all before it are published
//!   seen       waits until they do
//! ```
//!
//! A commit that waits here waits for smaller timestamps only, as validation does; and each of these leaves the queue, since dropping its position is leaving it.

use std::collections::VecDeque;
use std::thread::Thread;

use pmem::sync::{Mutex, wait_point};

use crate::isolation::active::Active;

/// Commits under way, in the order of their timestamps.
#[derive(Default)]
pub(super) struct Order(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// How many at the front have their numbers.
    numbered: usize,
}

struct Entry {
    ts: u64,
    stage: Stage,
    /// To be woken for its turn, or when it is seen.
    waits: Option<Thread>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Validating,
    Numbered,
    Published,
}

/// A position in the queue. Dropping it leaves.
pub(crate) struct Position<'o> {
    order: &'o Order,
    active: &'o Active,
    pub(crate) ts: u64,
}

impl Order {
    /// A timestamp, and a position.
    pub(super) fn join<'o>(&'o self, active: &'o Active) -> Position<'o> {
        let mut queue = self.0.lock();
        let ts = active.tick();
        queue.entries.push_back(Entry { ts, stage: Stage::Validating, waits: None });
        Position { order: self, active, ts }
    }

    /// The clock goes on without a commit.
    pub(super) fn tick(&self, active: &Active) {
        let queue = self.0.lock();
        active.tick();
        queue.show(active);
    }
}

impl Queue {
    fn find(&mut self, ts: u64) -> Option<usize> {
        let at = self.entries.partition_point(|entry| entry.ts < ts);
        (self.entries.get(at)?.ts == ts).then_some(at)
    }

    fn set(&mut self, ts: u64, stage: Stage, active: &Active) {
        let Some(at) = self.find(ts) else { return };
        self.entries[at].stage = stage;
        if stage == Stage::Published && at == 0 {
            let mut woken = Vec::new();
            while let Some(entry) = self.entries.pop_front_if(|entry| entry.stage == Stage::Published) {
                self.numbered = self.numbered.saturating_sub(1);
                woken.extend(entry.waits);
            }
            self.show(active);
            woken.iter().for_each(Thread::unpark);
        }
        while self.entries.get(self.numbered).is_some_and(|entry| entry.stage > Stage::Validating) {
            self.numbered += 1;
        }
        if let Some(thread) = self.entries.get_mut(self.numbered).and_then(|entry| entry.waits.take()) {
            thread.unpark();
        }
    }

    /// Tells readers how far everything is published.
    fn show(&self, active: &Active) {
        active.set_stable(self.entries.front().map_or_else(|| active.now(), |entry| entry.ts - 1));
    }
}

impl Position<'_> {
    /// Waits until all before it have their numbers. It draws its own next, and says so.
    pub(crate) fn turn(&self) {
        self.wait(|queue, at| queue.numbered >= at);
    }

    pub(crate) fn is_numbered(&self) {
        self.order.0.lock().set(self.ts, Stage::Numbered, self.active);
    }

    /// All of it is published, or never will be.
    pub(crate) fn publish(&self) {
        self.order.0.lock().set(self.ts, Stage::Published, self.active);
    }

    /// Waits until readers see it.
    pub(crate) fn wait_until_seen(self) {
        if self.active.stable() < self.ts {
            self.wait(|_, _| false);
        }
    }

    /// Waits until it has left the queue, or that is so of the queue and its position there.
    fn wait(&self, is_so: impl Fn(&Queue, usize) -> bool) {
        loop {
            {
                let mut queue = self.order.0.lock();
                let Some(at) = queue.find(self.ts) else { return };
                if is_so(&queue, at) {
                    return;
                }
                queue.entries[at].waits = Some(std::thread::current());
            }
            if !wait_point() {
                std::thread::park();
            }
        }
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        if self.active.stable() < self.ts {
            self.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_has_everything_before_it() {
        let (order, active) = (Order::default(), Active::new(5, 2, true));
        let positions = [(); 3].map(|()| order.join(&active));
        assert_eq!((active.stable(), active.now()), (5, 8));
        positions[1].publish();
        assert_eq!(active.stable(), 5, "the one before is under way");
        let [first, second, third] = positions;
        first.publish();
        assert_eq!(active.stable(), 7);
        first.wait_until_seen();
        second.wait_until_seen();
        order.tick(&active);
        assert_eq!((active.stable(), active.now()), (7, 9));
        drop(third);
        assert_eq!(active.stable(), 9, "who gives up holds nobody up");
    }

    #[test]
    fn numbers_are_drawn_in_the_order_of_timestamps() {
        let (order, active) = (Order::default(), Active::new(0, 2, true));
        let drawn = std::sync::Mutex::new(Vec::new());
        let mut positions: Vec<_> = (0..8).map(|_| order.join(&active)).collect();
        let gone = positions.remove(3);
        std::thread::scope(|threads| {
            for position in positions.into_iter().rev() {
                let drawn = &drawn;
                threads.spawn(move || {
                    position.turn();
                    drawn.lock().unwrap().push(position.ts);
                    position.is_numbered();
                    position.publish();
                    position.wait_until_seen();
                });
            }
            drop(gone);
        });
        assert_eq!(drawn.into_inner().unwrap(), [1, 2, 3, 5, 6, 7, 8]);
        assert_eq!(active.stable(), 8);
    }
}
