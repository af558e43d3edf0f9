//! Threads that take turns as a seed says: at each switch point of the engine another one may go on, and only one ever runs.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pmem::sync::{PLAYED, Scheduler, set_scheduler};

use crate::support::Rng;

struct State {
    running: usize,
    alive: Vec<bool>,
    rng: Rng,
    /// One switch point in so many is used.
    one_in: u64,
    /// How often a thread had to wait for others since one did not.
    blocked: u64,
}

struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

thread_local! {
    static ME: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// More waiting than this, and no thread moves.
const BLOCKED_MAX: u64 = 1_000_000;

impl Turns {
    /// Even if a thread has panicked: the others end.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_on(&self, state: &mut State, except: Option<usize>) {
        let others: Vec<usize> = (0..state.alive.len()).filter(|&t| state.alive[t] && Some(t) != except).collect();
        if !others.is_empty() {
            state.running = others[state.rng.below(others.len() as u64) as usize];
            self.changed.notify_all();
        }
    }

    fn wait(&self, me: usize, mut state: MutexGuard<'_, State>) {
        while state.running != me {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Scheduler for Turns {
    fn switch(&self) {
        let mut state = self.state();
        state.blocked = 0;
        let one_in = state.one_in;
        if state.rng.below(one_in) == 0 {
            self.hand_on(&mut state, None);
            self.wait(ME.get(), state);
        }
    }

    fn blocked(&self) {
        let mut state = self.state();
        state.blocked += 1;
        assert!(state.blocked < BLOCKED_MAX, "the threads wait for each other");
        let me = ME.get();
        self.hand_on(&mut state, Some(me));
        self.wait(me, state);
    }

    fn thread(&self) -> Option<usize> {
        Some(PLAYED + ME.get())
    }
}

/// The thread is over, also if it panics.
struct Over(Arc<Turns>);

impl Drop for Over {
    fn drop(&mut self) {
        set_scheduler(None);
        let mut state = self.0.state();
        state.alive[ME.get()] = false;
        self.0.hand_on(&mut state, None);
    }
}

/// Runs these beside each other.
pub fn take_turns<'a>(seed: u64, threads: Vec<Box<dyn FnOnce() + Send + 'a>>) {
    let mut rng = Rng(seed);
    let one_in = 1 << rng.below(4);
    let state = State { running: 0, alive: vec![true; threads.len()], rng, one_in, blocked: 0 };
    let turns = Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() });
    let joined: Vec<_> = std::thread::scope(|scope| {
        let spawned: Vec<_> = threads
            .into_iter()
            .enumerate()
            .map(|(me, thread)| {
                let turns = Arc::clone(&turns);
                scope.spawn(move || {
                    ME.set(me);
                    let _over = Over(Arc::clone(&turns));
                    turns.wait(me, turns.state());
                    set_scheduler(Some(turns));
                    thread();
                })
            })
            .collect();
        spawned.into_iter().map(|thread| thread.join()).collect()
    });
    if let Some(panic) = joined.into_iter().find_map(Result::err) {
        std::panic::resume_unwind(panic);
    }
}
