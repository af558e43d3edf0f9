//! Two threads in every order of their steps: at each switch point of the store the one that runs is preempted or not, and both are tried. Musuvathi and
//! Qadeer, *Iterative Context Bounding for Systematic Testing of Multithreaded Programs*, PLDI 2007.

use std::sync::{Arc, Condvar, Mutex};

use pmem::sync::{PLAYED, Scheduler, set_scheduler};

/// A thread that waits so often in vain would wait forever.
const TIMEOUT: usize = 10_000;

/// One order.
pub(crate) struct Order {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    runs: usize,
    ended: [bool; 2],
    /// At which switch points to preempt; at none behind these.
    given: Vec<bool>,
    /// At which it was done: as given, and on.
    taken: Vec<bool>,
    waits: usize,
}

/// Runs `scenario` in each order with at most so many preemptions, until it returns false; returns how many orders that were.
pub(crate) fn each_order(most: usize, mut scenario: impl FnMut(&Arc<Order>) -> bool) -> usize {
    let (mut given, mut orders) = (Vec::new(), 0);
    loop {
        let state = Mutex::new(State { given, ..State::default() });
        let order = Arc::new(Order { state, moved: Condvar::new() });
        orders += 1;
        if !scenario(&order) {
            return orders;
        }
        let taken = std::mem::take(&mut order.state.lock().unwrap().taken);
        let done = |at: usize| taken[..at].iter().filter(|preempted| **preempted).count();
        // The last decision that can still be the other one.
        let Some(at) = (0..taken.len()).rev().find(|at| !taken[*at] && done(*at) < most) else { return orders };
        given = [&taken[..at], &[true]].concat();
    }
}

impl Order {
    /// Runs the two in this order.
    pub(crate) fn run<R: Send>(self: &Arc<Self>, threads: [&(dyn Fn() -> R + Sync); 2]) -> [R; 2] {
        std::thread::scope(|scope| {
            let spawn = |me: usize| {
                scope.spawn(move || {
                    let turn = Arc::new(Turn { order: self.clone(), me });
                    let _end = End(turn.clone());
                    drop(turn.wait(self.state.lock().unwrap()));
                    set_scheduler(Some(turn));
                    threads[me]()
                })
            };
            [spawn(0), spawn(1)].map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}

struct Turn {
    order: Arc<Order>,
    me: usize,
}

impl Turn {
    fn wait<'a>(&self, state: std::sync::MutexGuard<'a, State>) -> std::sync::MutexGuard<'a, State> {
        self.order.moved.wait_while(state, |state| state.runs != self.me).unwrap()
    }

    fn hand_over(&self, mut state: std::sync::MutexGuard<'_, State>) {
        state.runs = 1 - self.me;
        self.order.moved.notify_all();
        drop(self.wait(state));
    }
}

impl Scheduler for Turn {
    fn switch(&self) {
        let mut state = self.order.state.lock().unwrap();
        if state.ended[1 - self.me] {
            return;
        }
        let preempted = state.given.get(state.taken.len()).copied().unwrap_or(false);
        state.taken.push(preempted);
        if preempted {
            self.hand_over(state);
        }
    }

    fn blocked(&self) {
        let mut state = self.order.state.lock().unwrap();
        state.waits += 1;
        let forever = state.ended[1 - self.me] || state.waits > TIMEOUT;
        if forever {
            drop(state);
            panic!("waits forever");
        }
        self.hand_over(state);
    }

    fn thread(&self) -> Option<usize> {
        Some(PLAYED + self.me)
    }
}

/// The other one goes on alone.
struct End(Arc<Turn>);

impl Drop for End {
    fn drop(&mut self) {
        set_scheduler(None);
        let mut state = self.0.order.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.ended[self.0.me] = true;
        state.runs = 1 - self.0.me;
        self.0.order.moved.notify_all();
    }
}

#[test]
fn every_order_of_two_and_two_steps_comes_up() {
    let orders = |most: usize| {
        let mut seen = std::collections::BTreeSet::new();
        each_order(most, |order| {
            let steps = Mutex::new(String::new());
            let thread = |name: char| {
                let steps = &steps;
                move || {
                    for _ in 0..2 {
                        pmem::sync::switch_point();
                        steps.lock().unwrap().push(name);
                    }
                }
            };
            order.run([&thread('a'), &thread('b')]);
            seen.insert(steps.into_inner().unwrap());
            true
        });
        seen.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(orders(0), ["aabb"]);
    assert_eq!(orders(usize::MAX), ["aabb", "abab", "abba", "baab", "baba", "bbaa"]);
}
