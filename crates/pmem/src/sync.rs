//! Locks that a cooperative scheduler can see.
//!
//! Outside an exploration [`Mutex`] is `parking_lot`'s. On a thread that runs under a [`Scheduler`] every acquisition
//! is a point where another thread may be scheduled, and waiting for a lock hands the processor on instead
//! of blocking the only thread that runs.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};
use std::time::Duration;

use parking_lot::lock_api;

pub use crate::park::{barrier_everywhere, park_while, unpark};
pub use crate::scheduler::{PLAYED, Scheduler, is_scheduled, switch_point, wait_point};
pub use crate::threads::as_thread_number;
pub use crate::watched::{Ticker, Watched};

/// A value alone on its cache lines (two, for processors that fetch pairs): what is beside it does not wait for its changes.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use pmem::sync::CachePadded;
///
/// let counters = [0, 0].map(|n| CachePadded(AtomicU64::new(n)));
/// counters[0].fetch_add(1, Relaxed); // does not slow down who counts in the other
/// assert!(align_of_val(&counters) >= 2 * 64);
/// ```
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct CachePadded<T>(pub T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Puts the calling thread under a scheduler, or takes it out; returns what was there before.
pub fn set_scheduler(scheduler: Option<Arc<dyn Scheduler>>) -> Option<Arc<dyn Scheduler>> {
    crate::scheduler::set(scheduler, crate::threads::play)
}

/// A mutual exclusion lock, not poisoned by panics.
///
/// ```
/// let queue = pmem::sync::Mutex::new(vec![1]);
/// queue.lock().push(2);
/// assert_eq!(*queue.lock(), [1, 2]);
/// ```
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// Access to what a [`Mutex`] guards.
pub type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits until the lock is free and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if is_scheduled() { self.lock_scheduled() } else { self.0.lock() }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        switch_point();
        self.0.try_lock()
    }

    #[cold]
    fn lock_scheduled(&self) -> MutexGuard<'_, T> {
        switch_point();
        loop {
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            wait_point();
        }
    }

    /// What the lock guarded.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// What the lock guards, without locking: `&mut` proves that nothing else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A lock for what one thread nearly always has to itself. It takes one atomic read-modify-write where others take two: release is a plain store, which does not
/// wait for lines that were flushed before it, and a load that finds no sleeper. A thread that finds the lock taken for long sleeps, and is woken.
///
/// ```
/// let own = pmem::sync::OwnMutex::new(1);
/// *own.lock() += 1;
/// assert_eq!(*own.lock(), 2);
/// ```
pub type OwnMutex<T> = lock_api::Mutex<Flag, T>;

/// Access to what an [`OwnMutex`] guards.
pub type OwnMutexGuard<'a, T> = lock_api::MutexGuard<'a, Flag, T>;

/// Tries that only pause: most locks are held for less time than a system call takes.
const SPINS: u32 = 64;
/// Tries before a waiting thread sleeps: the holder waits for a disk.
const YIELDS: u32 = 200;
/// It looks again by itself after this long; without barriers in other threads, which make sure that it is woken, after this long.
const LOOK: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 1 });
const LOOK_UNSURE: Duration = Duration::from_micros(50);

/// What an [`OwnMutex`] is locked by.
#[derive(Debug)]
pub struct Flag {
    locked: AtomicBool,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
}

// SAFETY: the flag goes from false to true in one step, with `Acquire`, so one thread has the lock; only its holder stores false, with
// `Release`.
unsafe impl lock_api::RawMutex for Flag {
    const INIT: Self = Self { locked: AtomicBool::new(false), sleepers: AtomicU32::new(0) };
    type Guard = ();

    #[inline]
    fn lock(&self) {
        switch_point();
        if self.locked.swap(true, Acquire) {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        switch_point();
        (!self.locked.swap(true, Acquire)).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        self.locked.store(false, Release);
        // A sleeper counts itself, and has every thread pass a barrier, before it looks at the flag for the last time: either it sees this store, or it is seen here.
        compiler_fence(SeqCst);
        if self.sleepers.load(Relaxed) != 0 {
            crate::park::unpark(self.address());
        }
    }

    fn is_locked(&self) -> bool {
        self.locked.load(Relaxed)
    }
}

impl Flag {
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    #[inline]
    fn is_taken(&self) -> bool {
        self.locked.load(Relaxed) || self.locked.swap(true, Acquire)
    }

    #[cold]
    fn wait(&self) {
        let mut tries = 0;
        while self.is_taken() {
            tries += 1;
            if !wait_point() {
                match tries {
                    0..SPINS => std::hint::spin_loop(),
                    SPINS..YIELDS => std::thread::yield_now(),
                    _ => return self.sleep(),
                }
            }
        }
    }

    /// Until it is ours.
    fn sleep(&self) {
        self.sleepers.fetch_add(1, SeqCst);
        let look = if crate::park::barrier_everywhere() { LOOK } else { LOOK_UNSURE };
        while !crate::park::park_while(self.address(), look, || self.is_taken()) {}
        self.sleepers.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that sleeps for the lock gets it when it is given up, not when it looks by itself.
    #[test]
    fn a_sleeper_is_woken_when_the_lock_is_given_up() {
        const THREADS: u32 = 4;
        let own = OwnMutex::new(0);
        // SAFETY: the guard is not used for anything else.
        let flag = unsafe { own.raw() };
        let held = own.lock();
        std::thread::scope(|threads| {
            let sleepers: Vec<_> = (0..THREADS).map(|_| threads.spawn(|| *own.lock() += 1)).collect();
            while flag.sleepers.load(SeqCst) < THREADS {
                std::thread::yield_now();
            }
            drop(held);
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        });
        assert_eq!((flag.sleepers.load(SeqCst), own.into_inner()), (0, THREADS));
    }
}
