//! Real threads, one running at a time: who runs next is drawn from the seed at every flush, drain and lock.

use std::cell::Cell;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use pmem::sync::Scheduler;

use crate::rng::Rng;
use crate::sim::Sim;

/// The message of the panic that unwinds threads which wait for each other.
pub(crate) const DEADLOCK: &str = "deadlock: every thread waits for a lock that another one holds";

thread_local! {
    /// The turn of this thread. Not the number under which it flushes: a test may play several of those.
    static ME: Cell<usize> = const { Cell::new(0) };
}

pub(crate) struct Cooperative {
    turns: Mutex<Turns>,
    wake: Condvar,
    sim: Arc<Sim>,
}

struct Turns {
    current: usize,
    live: Vec<bool>,
    waits: Vec<bool>,
    rng: Rng,
    /// Nobody could run: all threads unwind, and run freely while they do.
    dead: bool,
}

impl Turns {
    fn draw(&mut self) -> Option<usize> {
        let able: Vec<usize> = (0..self.live.len()).filter(|&t| self.live[t] && !self.waits[t]).collect();
        (!able.is_empty()).then(|| able[self.rng.index(able.len())])
    }

    /// Somebody got on: whoever waits may try again.
    fn progress(&mut self) {
        self.waits.fill(false);
    }
}

impl Cooperative {
    pub(crate) fn new(threads: usize, seed: u64, sim: Arc<Sim>) -> Self {
        let mut turns = Turns {
            current: 0,
            live: vec![true; threads],
            waits: vec![false; threads],
            rng: Rng::seeded(seed),
            dead: false,
        };
        turns.current = turns.draw().unwrap_or(0);
        Self { turns: Mutex::new(turns), wake: Condvar::new(), sim }
    }

    /// Waits for the first turn of this thread.
    pub(crate) fn enter(&self, me: usize) {
        ME.set(me);
        self.hand_over(&mut self.turns.lock(), None);
    }

    /// This thread is done.
    pub(crate) fn leave(&self) {
        let mut turns = self.turns.lock();
        turns.live[ME.get()] = false;
        turns.progress();
        if let Some(next) = turns.draw() {
            turns.current = next;
        }
        self.wake.notify_all();
    }

    fn hand_over(&self, turns: &mut parking_lot::MutexGuard<'_, Turns>, next: Option<usize>) {
        let me = ME.get();
        if let Some(next) = next.filter(|&next| next != turns.current) {
            self.sim.compare_now();
            turns.current = next;
            self.wake.notify_all();
        }
        while turns.current != me && !turns.dead {
            self.wake.wait(turns);
        }
    }

    fn give_up() {
        // A second panic while this thread unwinds would end the process; the others let go of their locks soon.
        if std::thread::panicking() {
            std::thread::yield_now();
        } else {
            panic!("{DEADLOCK}");
        }
    }
}

impl Scheduler for Cooperative {
    fn switch(&self) {
        let mut turns = self.turns.lock();
        if !turns.dead {
            turns.progress();
            let next = turns.draw();
            self.hand_over(&mut turns, next);
        }
        if turns.dead {
            drop(turns);
            Self::give_up();
        }
    }

    fn blocked(&self) {
        let mut turns = self.turns.lock();
        if !turns.dead {
            turns.waits[ME.get()] = true;
            match turns.draw() {
                Some(next) => self.hand_over(&mut turns, Some(next)),
                None => {
                    turns.dead = true;
                    self.wake.notify_all();
                }
            }
        }
        if turns.dead {
            drop(turns);
            Self::give_up();
        }
    }
}
