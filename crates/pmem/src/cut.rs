//! The cut of a copy that is made beside writers: the moment of which it is.
//!
//! What a store flushes in an order that recovery counts on, it flushes with something locked. The copier takes all of that, and then reads the rest. What is read
//! while any of it is held is [`CUT_MAX`] at most: others may flush so much, all together, and then wait for the copier. Should they use it up before everything is held, the
//! copier lets go of what it has, catches up, and tries again. Meanwhile no thread begins to commit (the [`Door`]), so that it waits for one commit of each
//! thread. Should they use it up [`ATTEMPTS`] times, these are larger than the bound: the copier keeps what it has, and copies what they still write.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use crate::error::Result;
use crate::image::Image;
use crate::scheduler::wait_point;

/// What is copied at most while no thread can commit, in bytes: less than a millisecond in memory.
const CUT_MAX: u64 = 1 << 20;
/// Passes over what is written meanwhile before writers are held back.
const PASSES_MAX: u64 = 16;
/// How often the cut is tried before it waits for transactions that write more than [`CUT_MAX`].
const ATTEMPTS: usize = 16;
/// Tries that only pause, and that hand the processor on, before a thread that waits for a lock sleeps; and for how long.
const SPINS: usize = 64;
const YIELDS: usize = 200;
const POLL_INTERVAL: Duration = Duration::from_micros(50);

impl Image<'_> {
    /// Copies everything, and what is written meanwhile, until that becomes little or no less; returns how often. `progress` is told how many of how many bytes are copied; a later
    /// pass is about fewer.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn catch_up(&mut self, mut progress: impl FnMut(u64, u64)) -> Result<u64> {
        let (mut passes, mut before) = (1, self.pass(&mut progress)?);
        loop {
            let copied = self.pass(&mut progress)?;
            passes += 1;
            if copied <= CUT_MAX / 2 || copied >= before || passes == PASSES_MAX {
                return Ok(passes);
            }
            before = copied;
        }
    }

    /// The cut, with all held that `hold` takes: [`Waits::until`] for each, so that it gives up when that says [`None`]. It is called again then. Returns how many bytes were read
    /// while some thread could not commit.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn cut_held<G>(&mut self, mut hold: impl FnMut(&mut Waits<'_, '_>) -> Result<Option<G>>) -> Result<u64> {
        for attempt in 0.. {
            self.hold_back(CUT_MAX / 2)?;
            self.allow(CUT_MAX);
            let mut waits = Waits { image: self, copied: 0, lets_go: attempt < ATTEMPTS };
            let held = hold(&mut waits)?;
            let copied = waits.copied;
            if held.is_some() {
                return Ok(copied + self.cut_into_memory()?);
            }
        }
        Ok(0) // not reached: an attempt that does not let go succeeds
    }
}

/// Where transactions wait, with nothing held but their objects, while the cut takes what it needs: so it waits for one commit of each thread, not for as many as are
/// made meanwhile.
#[derive(Debug, Default)]
pub struct Door {
    closed: AtomicBool,
    waiting: parking_lot::Mutex<()>,
    opened: parking_lot::Condvar,
}

/// Opens the door again.
#[derive(Debug)]
pub struct Closed<'a>(&'a Door);

/// A transaction waits no longer at the door: the backup's medium may be stuck.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Door {
    /// The caller is about to lock what a cut takes, and holds nothing of it.
    #[inline]
    pub fn pass(&self) {
        if self.closed.load(Relaxed) {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        while self.closed.load(SeqCst) {
            if !wait_point() {
                return self.wait_long();
            }
        }
    }

    fn wait_long(&self) {
        let mut waiting = self.waiting.lock();
        while self.closed.load(SeqCst) {
            if self.opened.wait_for(&mut waiting, TIMEOUT).timed_out() {
                return;
            }
        }
    }

    /// No thread passes while the guard lives; none waits longer than ten seconds for that.
    pub fn close(&self) -> Closed<'_> {
        self.closed.store(true, SeqCst);
        Closed(self)
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.store(false, SeqCst);
        let _waiting = self.0.waiting.lock();
        self.0.opened.notify_all();
    }
}

/// How the cut waits for locks whose holders may wait for the copier.
#[derive(Debug)]
pub struct Waits<'a, 'p> {
    image: &'a mut Image<'p>,
    /// Bytes copied while something was held.
    copied: u64,
    lets_go: bool,
}

impl Waits<'_, '_> {
    /// What `take` takes; `None` if a thread is held back meanwhile, and the copier is to let go of what it has.
    ///
    /// # Errors
    /// As [`Image::pass`].
    pub fn until<G>(&mut self, mut take: impl FnMut() -> Option<G>) -> Result<Option<G>> {
        for tries in 0.. {
            if let Some(guard) = take() {
                return Ok(Some(guard));
            }
            let nap = match tries {
                _ if wait_point() => Duration::ZERO,
                0..SPINS => {
                    std::hint::spin_loop();
                    continue;
                }
                SPINS..YIELDS => {
                    std::thread::yield_now();
                    Duration::ZERO
                }
                _ => POLL_INTERVAL, // the holder waits for a disk
            };
            if self.image.holds_up(nap) {
                if self.lets_go {
                    return Ok(None);
                }
                self.copied += self.image.hold_back(CUT_MAX / 2)?;
                self.image.allow(CUT_MAX);
            }
        }
        Ok(None)
    }
}
