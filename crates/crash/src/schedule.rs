//! Real threads, one running at a time: the next one is drawn from the seed at every flush, drain and lock, or after a stretch of them.
//!
//! Drawn each time, a thread hardly ever stands still while another does a hundred things; but the machine does that.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pmem::sync::Scheduler;

use crate::config::Config;
use crate::rng::Rng;
use crate::sim::Sim;

/// The message of the panic that unwinds threads which wait for each other.
pub(crate) const DEADLOCK: &str = "deadlock: every thread waits for a lock that another one holds";

/// The message when no thread runs although one should.
pub(crate) const HIDDEN: &str = "deadlock: a thread waits for something the scheduler cannot see; \
    use pmem::sync::Mutex for locks that are held across a flush or a drain";

thread_local! {
    /// The turn of this thread. Not the number under which it flushes: a test may play several of those.
    static ME: Cell<usize> = const { Cell::new(0) };
}

pub(crate) struct Cooperative {
    turns: Mutex<Turns>,
    wake: Condvar,
    sim: Arc<Sim>,
    /// A thread that neither comes to an event nor explores for so long waits for a thread that waits for its turn.
    silence: Duration,
    /// Moves with every recovery: a thread that explores is alive.
    pulse: Arc<AtomicU64>,
}

struct Turns {
    current: usize,
    live: Vec<bool>,
    waits: Vec<bool>,
    rng: Rng,
    /// A thread runs on for so many events, on average.
    stretch: u64,
    /// No thread could run: all threads unwind, and run freely while they do.
    dead: bool,
    /// It was not seen, but timed out.
    hidden: bool,
    /// Moves with every change of turns.
    steps: u64,
}

impl Turns {
    fn draw(&mut self) -> Option<usize> {
        let current = self.current;
        let runs_on = self.stretch > 1 && self.live[current] && !self.waits[current];
        if runs_on && self.rng.below(self.stretch) > 0 {
            return Some(current);
        }
        let able: Vec<usize> = (0..self.live.len()).filter(|&t| self.live[t] && !self.waits[t]).collect();
        (!able.is_empty()).then(|| able[self.rng.index(able.len())])
    }

    /// A thread got on: any that waits may try again.
    fn progress(&mut self) {
        self.waits.fill(false);
    }
}

impl Cooperative {
    pub(crate) fn new(threads: usize, seed: u64, config: &Config, sim: Arc<Sim>, pulse: Arc<AtomicU64>) -> Self {
        let silence = Duration::from_millis(config.silence_ms);
        let mut turns = Turns {
            current: 0,
            live: vec![true; threads],
            waits: vec![false; threads],
            rng: Rng::seeded(seed),
            stretch: if seed.is_multiple_of(2) { 1 } else { config.stretch },
            dead: false,
            hidden: false,
            steps: 0,
        };
        turns.current = turns.draw().unwrap_or(0);
        Self { turns: Mutex::new(turns), wake: Condvar::new(), sim, silence, pulse }
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
            turns.steps += 1;
        }
        self.wake.notify_all();
    }

    fn hand_over(&self, turns: &mut parking_lot::MutexGuard<'_, Turns>, next: Option<usize>) {
        let me = ME.get();
        if let Some(next) = next.filter(|&next| next != turns.current) {
            self.sim.compare_now();
            turns.current = next;
            turns.steps += 1;
            self.wake.notify_all();
        }
        while turns.current != me && !turns.dead {
            let before = (turns.steps, self.pulse.load(Relaxed));
            let silent = self.wake.wait_for(turns, self.silence).timed_out();
            if silent && before == (turns.steps, self.pulse.load(Relaxed)) {
                (turns.dead, turns.hidden) = (true, true);
                self.wake.notify_all();
            }
        }
    }

    fn give_up(hidden: bool) {
        // A second panic while this thread unwinds would end the process; the others let go of their locks soon.
        if std::thread::panicking() {
            std::thread::yield_now();
        } else {
            panic!("{}", if hidden { HIDDEN } else { DEADLOCK });
        }
    }
}

impl Scheduler for Cooperative {
    fn switch(&self) {
        let mut turns = self.turns.lock();
        if !turns.dead {
            turns.progress();
            turns.steps += 1;
            let next = turns.draw();
            self.hand_over(&mut turns, next);
        }
        if turns.dead {
            let hidden = turns.hidden;
            drop(turns);
            Self::give_up(hidden);
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
            let hidden = turns.hidden;
            drop(turns);
            Self::give_up(hidden);
        }
    }
}
