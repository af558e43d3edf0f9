//! Where transactions queue that met a conflict: two at a time run with locks.
//!
//! More would mostly wait for each other, and wound each other, while those that could go on are not on a processor. With two, one reads while the other commits.

use std::cell::Cell;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pmem::sync::wait_point;

const WIDTH: u32 = 2;
/// Longest sleep without a look: a wake-up may go to a thread that a test's scheduler holds.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) struct Queue {
    free: Mutex<u32>,
    changed: Condvar,
}

thread_local! {
    /// Whether this thread has a turn: a transaction within a transaction does not queue behind it.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// A place at the head; given back by dropping.
pub(crate) struct Turn<'a>(&'a Queue);

impl Queue {
    pub(crate) fn new() -> Self {
        Self { free: Mutex::new(WIDTH), changed: Condvar::new() }
    }

    /// Waits for a place, unless this thread has one.
    pub(crate) fn enter(&self) -> Option<Turn<'_>> {
        if HAS_TURN.get() {
            return None;
        }
        loop {
            let mut free = self.free.lock();
            if *free > 0 {
                *free -= 1;
                HAS_TURN.set(true);
                return Some(Turn(self));
            }
            if pmem::sync::is_scheduled() {
                drop(free);
                wait_point();
            } else {
                self.changed.wait_for(&mut free, LOOK);
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        HAS_TURN.set(false);
        *self.0.free.lock() += 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    #[test]
    fn no_more_than_its_width_are_in_it_and_all_get_through() {
        let (queue, inside, through) = (Queue::new(), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|threads| {
            for _ in 0..6 {
                threads.spawn(|| {
                    for _ in 0..200 {
                        let _turn = queue.enter();
                        assert!(inside.fetch_add(1, SeqCst) < WIDTH);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        through.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert_eq!(through.into_inner(), 1200);
    }
}
