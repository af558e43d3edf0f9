//! Threads that commit for others: as many as there are commits to wait for, up to so many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use pmem::sync::Watched;

/// One commit, and telling of it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// They end with the store.
pub(crate) struct Committers(Arc<Shared>);

/// What they share.
pub(crate) struct Shared {
    queue: Watched<Queue>,
    /// Threads there can be.
    most: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Committers {
    /// Of up to so many threads.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Shared { queue: Watched::default(), most }))
    }

    /// For a caller that sends something that has the store, and may be the last to have it.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }
}

impl Shared {
    pub(crate) fn send(self: &Arc<Self>, job: Job) {
        let mut queue = self.queue.lock();
        queue.jobs.push_back(job);
        if queue.idle < queue.jobs.len() && queue.threads < self.most {
            let shared = Arc::clone(self);
            let started = std::thread::Builder::new().name("cairn-kv-commit".into()).spawn(move || shared.run());
            queue.threads += usize::from(started.is_ok());
        }
        let job = if queue.threads == 0 { queue.jobs.pop_back() } else { None };
        drop(queue);
        self.queue.wake_one();
        // No thread is to be had.
        if let Some(job) = job {
            job();
        }
    }

    fn run(&self) {
        let _one = Running(self);
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.queue.lock();
            } else if queue.ended {
                return;
            } else {
                queue.idle += 1;
                queue = self.queue.sleep(queue, Duration::MAX);
                queue.idle -= 1;
            }
        }
    }
}

/// One of the threads, until it ends.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().threads -= 1;
    }
}

impl Drop for Committers {
    fn drop(&mut self) {
        self.0.queue.lock().ended = true;
        self.0.queue.wake_all();
    }
}
