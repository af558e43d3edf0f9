//! The gate that all transactions of clients pass: it is closed while something is removed in steps ([`remove`](crate::remove)), so that none sees part of it, and while
//! [databases](crate::databases) exchange their numbers.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::hidden::Hidden;

/// Counts: a thread has one, so that threads rarely share one.
const COUNTS: usize = 32;
/// Between two times that those inside are asked to leave.
const ASK: Duration = Duration::from_millis(20);
/// In place of a count: no transaction may enter.
const CLOSED: usize = usize::MAX;

/// What all transactions of clients pass.
#[derive(Debug)]
pub(crate) struct Gate {
    inside: Box<[Count]>,
    /// Held by the thread that closes it.
    one: Mutex<()>,
    closing: AtomicBool,
    /// What a removal that waits for room has yet to remove; it changes while the gate is closed. And whether there is anything.
    hidden: Mutex<Option<Arc<Hidden>>>,
    hides: AtomicBool,
    /// A transaction has left, or it was opened.
    changed: (Mutex<()>, Condvar),
}

/// How many are inside.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

/// Held by one that is inside.
pub(crate) struct Inside<'g> {
    gate: &'g Gate,
    at: usize,
    hidden: Option<Arc<Hidden>>,
}

/// No other transaction is inside.
pub(crate) struct Closed<'g> {
    gate: &'g Gate,
    _one: MutexGuard<'g, ()>,
}

impl Default for Gate {
    fn default() -> Self {
        let inside = (0..COUNTS).map(|_| Count::default()).collect();
        Self {
            inside,
            one: Mutex::default(),
            closing: false.into(),
            hidden: Mutex::default(),
            hides: false.into(),
            changed: (Mutex::default(), Condvar::new()),
        }
    }
}

impl Gate {
    /// None while it is closed, for the caller to wait elsewhere. A thread that has a transaction inside lets others in: it is closed only when they have left.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_>> {
        let at = pmem::thread_number() % COUNTS;
        let more = |count: usize| (count != CLOSED).then(|| count + 1);
        self.inside[at].0.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Inside { gate: self, at, hidden: self.hidden() })
    }

    /// Waits while it is closed.
    pub(crate) fn enter(&self) -> Inside<'_> {
        loop {
            if let Some(inside) = self.try_enter() {
                return inside;
            }
            let count = &self.inside[pmem::thread_number() % COUNTS].0;
            let mut changed = self.changed.0.lock();
            if count.load(SeqCst) == CLOSED {
                self.changed.1.wait(&mut changed);
            }
        }
    }

    /// Waits until all have left; now and then, until then, it asks those that take long to do so.
    pub(crate) fn close(&self, ask: &dyn Fn()) -> Closed<'_> {
        let one = self.one.lock();
        self.closing.store(true, SeqCst);
        for Count(count) in &self.inside {
            while count.compare_exchange(0, CLOSED, SeqCst, SeqCst).is_err() {
                ask();
                let mut changed = self.changed.0.lock();
                if count.load(SeqCst) != 0 {
                    self.changed.1.wait_for(&mut changed, ASK);
                }
            }
        }
        Closed { gate: self, _one: one }
    }

    /// What no transaction is to see.
    #[inline]
    pub(crate) fn hidden(&self) -> Option<Arc<Hidden>> {
        if self.hides.load(Relaxed) { self.hidden.lock().clone() } else { None }
    }

    pub(crate) fn hide(&self, hidden: Option<Hidden>) {
        let hides = hidden.is_some();
        *self.hidden.lock() = hidden.map(Arc::new);
        self.hides.store(hides, SeqCst);
    }

    fn tell(&self) {
        drop(self.changed.0.lock()); // a thread that has looked and not yet slept does now
        self.changed.1.notify_all();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let last = self.gate.inside[self.at].0.fetch_sub(1, SeqCst) == 1;
        if last && self.gate.closing.load(SeqCst) {
            self.gate.tell();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.inside.iter().for_each(|Count(count)| count.store(0, SeqCst));
        self.gate.closing.store(false, SeqCst);
        self.gate.tell();
    }
}

impl Inside<'_> {
    pub(crate) fn hidden(&self) -> Option<&Hidden> {
        self.hidden.as_deref()
    }
}

impl Closed<'_> {
    pub(crate) fn hidden(&self) -> Option<Arc<Hidden>> {
        self.gate.hidden()
    }

    /// From now on no transaction sees this.
    pub(crate) fn hide(&self, hidden: Option<Hidden>) {
        self.gate.hide(hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_inside_while_it_is_closed() {
        let (gate, open, both) = (Gate::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..2000 {
                        let _inside = gate.enter();
                        let _again = gate.enter();
                        open.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        open.fetch_sub(1, SeqCst);
                    }
                });
            }
            threads.spawn(|| {
                for _ in 0..200 {
                    let _closed = gate.close(&|| ());
                    both.fetch_add(open.load(SeqCst), SeqCst);
                }
            });
        });
        assert_eq!(both.load(SeqCst), 0);
    }

    #[test]
    fn who_would_wait_is_told() {
        let gate = Gate::default();
        let inside = gate.try_enter();
        assert!(inside.is_some());
        drop(inside);
        let closed = gate.close(&|| ());
        assert!(gate.try_enter().is_none());
        drop(closed);
        assert!(gate.try_enter().is_some());
    }
}
