//! A thread that works from time to time, for as long as its owner is there.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Error;
use crate::pool::Pool;
use crate::sync::Ticker;

/// A thread that works on every tick. Dropping it ends the thread and waits for that; in the child of a fork, which does not have the thread, it is left alone.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use std::ops::ControlFlow;
/// use std::time::Duration;
///
/// let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("pool"))?;
/// let (tell, told) = std::sync::mpsc::channel();
/// let background = pmem::Background::start(&pool, Duration::from_millis(1), move || {
///     let _ = tell.send("a tick");
///     ControlFlow::Continue(())
/// });
/// assert_eq!(told.recv().unwrap(), "a tick");
/// drop(background);
/// # Ok::<_, pmem::Error>(())
/// ```
#[derive(Debug)]
pub struct Background {
    stop: Arc<Ticker>,
    thread: Option<JoinHandle<()>>,
    pool: Pool,
}

impl Background {
    /// `work` on every tick, until it breaks. What it uses is kept until the thread has ended.
    #[expect(clippy::disallowed_methods, reason = "ends, and is waited for, when this is dropped")]
    pub fn start(pool: &Pool, tick: Duration, mut work: impl FnMut() -> ControlFlow<()> + Send + 'static) -> Self {
        let stop = Arc::new(Ticker::default());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || while stopped.tick(tick) && work().is_continue() {});
        Self { stop, thread: Some(thread), pool: pool.clone() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.pool.check_usable(), Err(Error::Forked)) {
            // The thread is the parent's: it cannot be waited for, and may have had a lock.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to say, and a panic in it was said
        }
    }
}
