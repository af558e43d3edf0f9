//! Where transactions queue that met a conflict: two at a time run with locks.
//!
//! More would mostly wait for each other, and wound each other, while those that could go on are not on a processor. With two, one reads while the other commits.
//! They get through in the order in which they came: a thread that gives a turn back gives it to the first in the row.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::threads::wait::{Ticket, Wait};

const WIDTH: u32 = 2;

pub(crate) struct Queue(Mutex<Row>);

struct Row {
    free: u32,
    waiting: VecDeque<Arc<Ticket>>,
}

thread_local! {
    /// Whether this thread has a turn: a transaction within a transaction does not queue behind it.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// A place at the head; given back by dropping.
pub(crate) struct Turn<'a>(&'a Queue);

impl Queue {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Row { free: WIDTH, waiting: VecDeque::new() }))
    }

    /// Waits for a place, unless this thread has one; not for longer than its timeout, since it is not needed, only better.
    pub(crate) fn enter(&self) -> Option<Turn<'_>> {
        if HAS_TURN.get() {
            return None;
        }
        let ticket = {
            let mut row = self.0.lock();
            if row.free > 0 {
                row.free -= 1;
                None
            } else {
                let ticket = Ticket::new();
                row.waiting.push_back(ticket.clone());
                Some(ticket)
            }
        };
        if let Some(ticket) = ticket {
            let mut wait = Wait::new();
            while !ticket.is_given() {
                if !wait.again() && self.leave(&ticket) {
                    return None;
                }
            }
        }
        HAS_TURN.set(true);
        Some(Turn(self))
    }

    /// False if it has a turn by now.
    fn leave(&self, ticket: &Arc<Ticket>) -> bool {
        let mut row = self.0.lock();
        row.waiting.retain(|other| !Arc::ptr_eq(other, ticket));
        !ticket.is_given()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        HAS_TURN.set(false);
        let mut row = self.0.0.lock();
        match row.waiting.pop_front() {
            Some(next) => next.give(),
            None => row.free += 1,
        }
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

    #[test]
    fn nobody_is_overtaken() {
        let queue = Queue::new();
        let got = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            // Two have it, on threads of their own; a third holds nobody up who has none.
            let turns: Vec<_> = (0..WIDTH).map(|_| threads.spawn(|| queue.enter().map(std::mem::forget))).collect();
            turns.into_iter().for_each(|turn| turn.join().unwrap().unwrap());
            let waiting: Vec<_> = (0..6)
                .map(|n| {
                    let (queue, got) = (&queue, &got);
                    let thread = threads.spawn(move || {
                        let turn = queue.enter();
                        got.lock().push(n);
                        drop(turn);
                    });
                    while queue.0.lock().waiting.len() <= n {
                        std::thread::yield_now();
                    }
                    thread
                })
                .collect();
            drop(Turn(&queue));
            waiting.into_iter().for_each(|thread| thread.join().unwrap());
            drop(Turn(&queue));
        });
        assert_eq!(got.into_inner(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(queue.0.lock().free, WIDTH);
    }
}
