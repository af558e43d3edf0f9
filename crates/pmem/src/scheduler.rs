//! The seam for cooperative schedulers: which thread runs, and which one it plays.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Decides which of the threads of an exploration runs next. Exactly one of them runs at any time.
pub trait Scheduler: Send + Sync {
    /// The running thread may be switched here.
    fn switch(&self);

    /// The running thread cannot go on before another one has run (it waits for a lock).
    fn blocked(&self);

    /// Which thread the running one is, if one thread of the system plays several; `None` while it is itself. Asked when the scheduler is
    /// set, too: one that says `None` then is not asked again. Numbers from [`PLAYED`] on do not meet those of real threads; smaller ones are
    /// those of [`as_thread_number`](crate::sync::as_thread_number).
    fn thread(&self) -> Option<usize> {
        None
    }
}

/// First number for threads that a [`Scheduler`] plays.
pub const PLAYED: usize = 1 << 20;

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    static SCHEDULER: RefCell<Option<Arc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// Puts the calling thread under a scheduler, or takes it out; returns what was there before. `plays` is told whether it says which thread it is.
pub(crate) fn set(scheduler: Option<Arc<dyn Scheduler>>, plays: impl FnOnce(bool)) -> Option<Arc<dyn Scheduler>> {
    ACTIVE.set(scheduler.is_some());
    plays(scheduler.as_ref().is_some_and(|s| s.thread().is_some()));
    SCHEDULER.replace(scheduler)
}

/// A point where the scheduler of this thread, if any, may switch to another thread.
#[inline]
pub fn switch_point() {
    if ACTIVE.get() {
        with_scheduler(|s| s.switch());
    }
}

/// Hands the processor on, because this thread cannot go on before another has run. False, and nothing done, outside of a scheduler.
#[inline]
pub fn wait_point() -> bool {
    let scheduled = ACTIVE.get();
    if scheduled {
        with_scheduler(|s| s.blocked());
    }
    scheduled
}

/// Whether the calling thread runs under a scheduler.
#[inline]
pub fn is_scheduled() -> bool {
    ACTIVE.get()
}

/// The number of the thread that the scheduler plays right now, if it plays several.
pub(crate) fn played_thread() -> Option<usize> {
    let mut thread = None;
    with_scheduler(|s| thread = s.thread());
    thread
}

#[cold]
fn with_scheduler(f: impl FnOnce(&dyn Scheduler)) {
    // The scheduler is cloned out, so that it may replace itself while it is called.
    let scheduler = SCHEDULER.with_borrow(Clone::clone);
    if let Some(scheduler) = scheduler {
        f(&*scheduler);
    }
}
