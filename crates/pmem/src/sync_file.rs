//! Group commit of the file domain: one `fdatasync` for all threads that wait at that moment.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Syncs are numbered. A caller is served by the first one that *starts* after it asked: what it stored before asking
/// is then in the page cache that the sync writes out.
#[derive(Default)]
pub(crate) struct GroupSync {
    state: parking_lot::Mutex<State>,
    changed: parking_lot::Condvar,
    failed: AtomicBool,
}

#[derive(Default)]
struct State {
    started: u64,
    finished: u64,
    running: bool,
}

impl GroupSync {
    /// Returns when a sync that started after this call has finished. Either this thread runs it or another does.
    ///
    /// Invariant: `failed` is set before any thread that waited for the failed sync is woken, and never cleared.
    pub(crate) fn wait(&self, sync: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let mine = state.started + 1;
        while state.finished < mine && state.running {
            self.changed.wait(&mut state);
        }
        self.check()?;
        if state.finished >= mine {
            return Ok(());
        }
        // No thread syncs: this one does, for all that asked before now.
        state.running = true;
        state.started += 1;
        let this = state.started;
        drop(state);
        let result = sync();
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        let mut state = self.state.lock();
        state.running = false;
        state.finished = this;
        self.changed.notify_all();
        drop(state);
        result.map_err(|source| Error::Sync { source })
    }

    /// An error if a sync has failed, ever: the kernel reports a lost page once, so a later success proves nothing.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Makes every later call fail.
    pub(crate) fn poison(&self) {
        self.failed.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn waiting_threads_share_syncs_and_each_starts_after_its_request() {
        let (group, syncs, start) = (GroupSync::default(), AtomicU64::new(0), Barrier::new(32));
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..20 {
                        let sync = || {
                            syncs.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(std::time::Duration::from_millis(1));
                            Ok(())
                        };
                        group.wait(sync).expect("sync");
                    }
                });
            }
        });
        let syncs = syncs.load(Ordering::SeqCst);
        assert!((20..=320).contains(&syncs), "{syncs} syncs for 640 drains of 32 threads");
    }

    #[test]
    fn a_failed_sync_poisons_everything_after_it() {
        let group = GroupSync::default();
        group.wait(|| Ok(())).expect("good");
        assert!(matches!(group.wait(|| Err(io::Error::from_raw_os_error(5))), Err(Error::Sync { .. })));
        assert!(matches!(group.wait(|| Ok(())), Err(Error::Poisoned)));
        assert!(matches!(group.check(), Err(Error::Poisoned)));
    }
}
