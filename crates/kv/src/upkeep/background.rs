//! The thread that makes checkpoints, so that committers need not.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::core::Core;
use crate::threads::signal::{TICK, Wanted};
use crate::upkeep::sweep::Sweep;

/// The thread, as long as the store is open.
pub(crate) struct Background {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it, unless the options say that committers do its work.
    pub(crate) fn start(core: &Arc<Core>) -> Option<Self> {
        if !core.options.background || core.versions.pool().is_read_only() {
            return None;
        }
        let kept = Arc::clone(core);
        let run = move || {
            let (mut idle, mut ages, mut sweep) = (Idle::default(), Ages::default(), Sweep::default());
            while !kept.maintenance.background.is_stopped() {
                let Wanted { checkpoint, look } = kept.maintenance.background.wait();
                // First: a writer may be about to find none.
                make_room_ahead(&kept);
                ages.look(&kept);
                // A follower is told what is removed.
                if !kept.persistence.follows()
                    && let Err(error) = sweep.step(&kept)
                {
                    tracing::debug!(%error, "sweeping is put off");
                }
                if kept.versions.space.take_urgent() {
                    // Of a transaction that does not try again by itself.
                    if let Err(error) = kept.checkpointing().rescue() {
                        tracing::warn!(%error, "nothing can be moved in a full store");
                    }
                }
                // A thread that was just woken has not looked on for a while.
                if checkpoint || !look && idle.is_due(&kept) {
                    make_checkpoint(&kept);
                }
                if let Err(error) = kept.checkpointing().look_after_scans() {
                    tracing::debug!(%error, "what is scanned stays where it is");
                }
                make_room_ahead(&kept);
            }
        };
        let thread = std::thread::Builder::new().name("cairn-kv".into()).spawn(run).ok()?;
        core.maintenance.background.run();
        Some(Self { core: Arc::clone(core), thread: Some(thread) })
    }
}

/// Tells transactions that are older than they may be. It knows their ages by readings of the clock, one a tick.
#[derive(Default)]
struct Ages {
    readings: std::collections::VecDeque<(Instant, u64)>,
}

impl Ages {
    #[expect(clippy::disallowed_methods, reason = "how old a snapshot is, is a matter of real time")]
    fn look(&mut self, core: &Core) {
        let Some(most) = core.options.max_snapshot_age else { return };
        let now = Instant::now();
        let mut limit = None;
        while self.readings.front().is_some_and(|(at, _)| now.duration_since(*at) >= most) {
            limit = self.readings.pop_front().map(|(_, reading)| reading);
        }
        if let Some(limit) = limit {
            crate::stats::add(&core.counters.expired, core.versions.concurrency.active.expire(limit) as u64);
        }
        if self.readings.back().is_none_or(|(at, _)| now.duration_since(*at) >= TICK / 2) {
            self.readings.push_back((now, core.versions.concurrency.active.stable()));
        }
    }
}

/// Notices that nothing more comes: then a checkpoint is made, so that a restart has nothing to do, and space comes back.
#[derive(Default)]
struct Idle {
    last: u64,
    checkpointed: u64,
}

impl Idle {
    fn is_due(&mut self, core: &Core) -> bool {
        let now = core.versions.now();
        let quiet = now == self.last && (now != self.checkpointed || core.maintenance.is_unfinished());
        self.last = now;
        if quiet {
            // The checkpoint itself moves the clock.
            self.checkpointed = now + 1;
        }
        quiet
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.core.versions.pool().check_usable(), Err(pmem::Error::Forked)) {
            std::mem::forget(self.thread.take()); // it is the parent's
            return;
        }
        self.core.maintenance.background.stop();
        if let Some(thread) = self.thread.take() {
            // It panics only if a lock is broken; there is no caller to tell.
            let _ = thread.join();
        }
    }
}

/// Has segments, and memory for them, ready for those who will ask.
fn make_room_ahead(core: &Core) {
    let (background, space) = (&core.maintenance.background, &core.versions.space);
    if let Err(error) = space.grow_ahead(|| !background.is_stopped()) {
        tracing::warn!(%error, store = %core.versions.pool().path().display(), "the store could not grow ahead; commits go on as long as there is room");
    }
    space.populate(|| !background.is_called());
}

fn make_checkpoint(core: &Core) {
    if let Err(error) = core.checkpointing().checkpoint() {
        tracing::warn!(%error, store = %core.versions.pool().path().display(), "a checkpoint failed; commits go on as long as there is room");
    }
    core.maintenance.background.is_made();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use crate::Options;

    /// A thread that commits does not wait for a checkpoint that takes its time, nor for one of its own behind it.
    #[test]
    fn commits_go_on_behind_a_keeper_that_cannot_keep_up() {
        const ENOUGH: u64 = 256 << 10;
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let store = Options::new().checkpoint_bytes(ENOUGH).create(dir.path().join("store")).unwrap();
        let (done, is_done) = channel();
        std::thread::scope(|threads| {
            // As if it had much to do.
            let checkpointing = store.core.maintenance.checkpointer();
            let checkpoints = store.stats().checkpoints;
            threads.spawn(|| {
                // Four and a half times what is worth one.
                let puts = ENOUGH * 9 / 2 / 4096;
                let all = (0..puts).try_for_each(|n| store.put(&n.to_be_bytes(), &[7; 4000]).map(drop));
                done.send(all.map(|()| puts)).unwrap();
            });
            let all = is_done.recv_timeout(Duration::from_secs(60));
            let made = store.stats().checkpoints - checkpoints;
            drop(checkpointing);
            assert!(matches!(all, Ok(Ok(_))) && made == 0, "{all:?}, {made} checkpoints");
        });
        let behind = |store: &crate::Store| store.core.maintenance.behind();
        for _ in 0..1000 {
            if behind(&store) < ENOUGH {
                return;
            }
            store.core.maintenance.background.call_and_wait();
        }
        panic!("{} bytes behind, and no checkpoint", behind(&store));
    }
}
