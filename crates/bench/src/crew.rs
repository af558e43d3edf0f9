//! Threads that stay: what an engine keeps per thread is as warm in every round as in a program that runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::{Error, Result, clock};

/// One thread's share of a measurement.
pub trait Worker: Send {
    /// Does what it was told to.
    ///
    /// # Errors
    /// Those of what is measured.
    fn work(&mut self) -> Result<()>;
}

type Job<'env> = Box<dyn FnOnce() + Send + 'env>;

/// Some threads, waiting for work.
pub struct Crew<'env> {
    threads: Vec<Sender<Job<'env>>>,
}

/// Calls `f` with a crew of that many threads, which end when it returns.
pub fn with_crew<'env, R>(threads: usize, f: impl FnOnce(&Crew<'env>) -> R) -> R {
    thread::scope(|scope| {
        let start = |_| {
            let (send, receive): (Sender<Job<'env>>, Receiver<_>) = channel();
            scope.spawn(move || receive.into_iter().for_each(|job| job()));
            send
        };
        f(&Crew { threads: (0..threads).map(start).collect() })
    })
}

impl<'env> Crew<'env> {
    /// How many threads there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.threads.len()
    }

    /// Lets all workers work at once, each on a thread of its own, always the same. Returns the time from the first one's begin to the last one's
    /// end: with more threads than cores, what one of them takes says nothing, for it may have had its core to itself.
    ///
    /// # Errors
    /// The first error of a worker; [`Error::Worker`] if one panicked, or there are more of them than threads.
    pub fn run<W: Worker + 'env>(&self, workers: &mut Vec<W>) -> Result<Duration> {
        let count = workers.len();
        if count > self.threads.len() {
            return Err(Error::Worker);
        }
        let waiting = Arc::new(AtomicUsize::new(count));
        let (send, receive) = channel();
        for ((at, mut worker), thread) in workers.drain(..).enumerate().zip(&self.threads) {
            let (send, waiting) = (send.clone(), waiting.clone());
            let job = move || {
                start_together(&waiting);
                let span = clock::span(|| worker.work());
                let _ = send.send((at, worker, span));
            };
            thread.send(Box::new(job)).map_err(|_| Error::Worker)?;
        }
        drop(send);
        let mut back: Vec<_> = receive.into_iter().collect();
        back.sort_by_key(|(at, ..)| *at);
        let mut spans = Vec::with_capacity(count);
        for (_, worker, span) in back {
            workers.push(worker);
            spans.push(span);
        }
        if workers.len() != count {
            return Err(Error::Worker);
        }
        let spans = spans.into_iter().collect::<Result<Vec<_>>>()?;
        let (start, end) = (spans.iter().map(|s| s.0).min(), spans.iter().map(|s| s.1).max());
        Ok(start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start))
    }
}

/// Spins at first: a thread that slept would begin late.
fn start_together(waiting: &AtomicUsize) {
    const SPINS: usize = 20_000;
    waiting.fetch_sub(1, SeqCst);
    for spin in 0.. {
        if waiting.load(SeqCst) == 0 {
            return;
        }
        if spin < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Adder<'a> {
        sum: &'a AtomicUsize,
        by: usize,
        seen: Option<thread::ThreadId>,
    }

    impl Worker for Adder<'_> {
        fn work(&mut self) -> Result<()> {
            self.sum.fetch_add(self.by, SeqCst);
            let id = thread::current().id();
            assert_eq!(*self.seen.get_or_insert(id), id, "always the same thread");
            if self.by == 13 { Err(pmem::Error::ReadOnly.into()) } else { Ok(()) }
        }
    }

    fn adders<'a>(sum: &'a AtomicUsize, by: &[usize]) -> Vec<Adder<'a>> {
        by.iter().map(|by| Adder { sum, by: *by, seen: None }).collect()
    }

    #[test]
    fn all_work_every_time_on_the_same_threads() {
        let sum = AtomicUsize::new(0);
        with_crew(3, |crew| {
            let mut workers = adders(&sum, &[1, 10, 100]);
            for _ in 0..3 {
                crew.run(&mut workers).unwrap();
            }
            assert_eq!(workers.iter().map(|worker| worker.by).collect::<Vec<_>>(), [1, 10, 100]);
        });
        assert_eq!(sum.into_inner(), 333);
    }

    #[test]
    fn an_error_comes_back_with_the_workers() {
        let sum = AtomicUsize::new(0);
        with_crew(2, |crew| {
            let mut workers = adders(&sum, &[13, 1]);
            assert!(crew.run(&mut workers).is_err());
            assert_eq!(workers.len(), 2);
            assert!(crew.run(&mut adders(&sum, &[1, 1, 1])).is_err(), "more workers than threads");
        });
    }
}
