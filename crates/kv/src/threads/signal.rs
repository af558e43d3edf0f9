//! How the background thread is called.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use pmem::sync::Watched;

/// How often it looks without being called.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// How long a thread that commits waits, each time, while the background thread cannot keep up: then it does.
const BREATH: Duration = Duration::from_millis(2);

/// How the background thread is called.
#[derive(Default)]
pub(crate) struct Signal {
    wanted: Watched<Wanted>,
    /// Checkpoints that were made.
    kept: Watched<u64>,
    stop: AtomicBool,
    /// Whether there is one.
    running: AtomicBool,
}

#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) checkpoint: bool,
    pub(crate) look: bool,
}

impl Signal {
    /// For a checkpoint.
    pub(crate) fn call(&self) {
        self.wanted.lock().checkpoint = true;
        self.wanted.wake_one();
    }

    /// The same, and waits for the next one to be made, though not for long.
    pub(crate) fn call_and_wait(&self) {
        let kept = self.kept.lock();
        self.call();
        drop(self.kept.sleep(kept, BREATH));
    }

    /// It has made one.
    pub(crate) fn is_made(&self) {
        *self.kept.lock() += 1;
        self.kept.wake_all();
    }

    /// For whatever else there is to do.
    pub(crate) fn wake(&self) {
        self.wanted.lock().look = true;
        self.wanted.wake_one();
    }

    /// There is a background thread from now on.
    pub(crate) fn run(&self) {
        self.running.store(true, Release);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Acquire)
    }

    /// It is to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Release);
        self.call();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Acquire)
    }

    pub(crate) fn is_called(&self) -> bool {
        self.wanted.lock().checkpoint || self.is_stopped()
    }

    /// Waits to be called, or woken, or until it is time to look.
    pub(crate) fn wait(&self) -> Wanted {
        let mut wanted = self.wanted.lock();
        if !wanted.checkpoint && !wanted.look {
            wanted = self.wanted.sleep(wanted, TICK);
        }
        std::mem::take(&mut *wanted)
    }
}
