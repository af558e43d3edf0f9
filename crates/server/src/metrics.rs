//! What a server counts: each thread for itself, so that counting costs a store to a line no other thread writes; the thread that asks adds them up.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Upper ends of the classes of durations, in nanoseconds: powers of two from one microsecond to 34 seconds.
pub(crate) const CLASSES: usize = 26;

pub(crate) fn class_end(class: usize) -> u64 {
    1_000 << class
}

/// How long things took.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    classes: [AtomicU64; CLASSES],
    nanos: AtomicU64,
}

impl Durations {
    /// Of the thread that this belongs to.
    pub(crate) fn add(&self, nanos: u64, count: u64) {
        let class = (0..CLASSES - 1).find(|class| nanos <= class_end(*class)).unwrap_or(CLASSES - 1);
        add(&self.classes[class], count);
        add(&self.nanos, nanos * count);
    }

    fn merge(&self, other: &Self) {
        self.classes.iter().zip(&other.classes).for_each(|(own, other)| add(own, other.load(Relaxed)));
        add(&self.nanos, other.nanos.load(Relaxed));
    }
}

/// One writer: no read-modify-write.
/// Classes of how long requests take: up to 1024 ns, and twice as long each time; the last one has all that is longer.
pub(crate) const TIME_CLASSES: usize = 21;

pub(crate) fn time_class(nanos: u64) -> usize {
    let over = nanos.saturating_sub(1) >> 10;
    ((u64::BITS - over.leading_zeros()) as usize).min(TIME_CLASSES - 1)
}

/// The most nanoseconds that a class tells of, as Redis' histograms have them: two digits of them are right.
pub(crate) fn time_class_end(class: usize) -> u64 {
    let end = 1024 << class;
    end + end / 128 - 1
}

fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one thread counts.
        #[derive(Debug)]
        #[repr(align(128))]
        pub(crate) struct Recorder {
            $($(#[$doc])* pub(crate) $name: Counter,)*
            /// From when a request was read until its reply was written, for each batch.
            pub(crate) replies: Durations,
            /// Transactions that wrote, until they were durable.
            pub(crate) commits: Durations,
            /// Calls of each command, in their order.
            pub(crate) calls: Vec<Counter>,
            /// How long they took, by classes: of commands, and of second names ([`Catalogue::time_of`](crate::form::Catalogue::time_of)).
            pub(crate) times: Vec<[Counter; TIME_CLASSES]>,
        }

        impl Recorder {
            /// Of a server with so many commands, and so many names of which times are kept.
            pub(crate) fn new(commands: usize, times: usize) -> Self {
                Self {
                    $($name: Counter::default(),)*
                    replies: Durations::default(),
                    commits: Durations::default(),
                    calls: (0..commands).map(|_| Counter::default()).collect(),
                    times: (0..times).map(|_| Default::default()).collect(),
                }
            }

            /// Adds what `other` has counted; to be called by the thread this belongs to.
            pub(crate) fn merge(&self, other: &Self) {
                $(self.$name.add(other.$name.get());)*
                self.replies.merge(&other.replies);
                self.commits.merge(&other.commits);
                self.calls.iter().zip(&other.calls).for_each(|(own, other)| own.add(other.get()));
            }
        }

        /// What all threads have counted.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Totals {
            $(pub(crate) $name: u64,)*
            pub(crate) replies: Summed,
            pub(crate) commits: Summed,
            pub(crate) calls: Vec<u64>,
        }

        impl Totals {
            pub(crate) fn of(recorders: &[Arc<Recorder>]) -> Self {
                let commands = recorders.first().map_or(0, |one| one.calls.len());
                let mut all = Self { calls: vec![0; commands], ..Self::default() };
                for one in recorders {
                    $(all.$name += one.$name.get();)*
                    all.replies.add(&one.replies);
                    all.commits.add(&one.commits);
                    all.calls.iter_mut().zip(&one.calls).for_each(|(all, one)| *all += one.get());
                }
                all
            }
        }
    };
}

counters! {
    /// Connections that were accepted.
    connections,
    /// Connections that are there now: each thread counts those it has.
    connected,
    /// Commands run.
    commands,
    /// Error replies.
    errors,
    /// Bytes read.
    read,
    /// Bytes written.
    written,
    /// Reads that found a key, and those that did not.
    hits,
    misses,
    /// Batches, and transactions they became.
    batches,
    transactions,
    /// Attempts at transactions that met a conflict.
    conflicts,
    /// Runs on threads that serve no connections: of what takes long, or has to wait.
    apart,
    /// Passwords that were wrong.
    denied,
    /// Answers that were sent before their commit; and those that were, whose commit failed or is in doubt.
    early,
    early_lost,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        add(&self.0, by);
    }

    pub(crate) fn less(&self, by: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(by), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Durations of all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summed {
    pub(crate) classes: [u64; CLASSES],
    pub(crate) nanos: u64,
}

impl Summed {
    fn add(&mut self, one: &Durations) {
        self.classes.iter_mut().zip(&one.classes).for_each(|(all, one)| *all += one.load(Relaxed));
        self.nanos += one.nanos.load(Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// The end of the class that the share `of` (0 to 1) of all durations ends in, in nanoseconds.
    pub(crate) fn quantile(&self, of: f64) -> u64 {
        let wanted = (self.count() as f64 * of).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return class_end(class);
            }
        }
        0
    }
}

/// How many keys there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyCount {
    pub(crate) keys: u64,
    /// Of these, those that expire; and in how many milliseconds, all together.
    pub(crate) expires: u64,
    pub(crate) ttl: u64,
}

impl KeyCount {
    /// A key that expires at that moment, if it does.
    pub(crate) fn add(&mut self, expires: Option<u64>, now: u64) {
        self.keys += 1;
        if let Some(at) = expires {
            self.expires += 1;
            self.ttl = self.ttl.saturating_add(at.saturating_sub(now));
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        (self.keys, self.expires) = (self.keys + other.keys, self.expires + other.expires);
        self.ttl = self.ttl.saturating_add(other.ttl);
    }
}

/// Keys of each database, when they were counted last.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) keys: Vec<KeyCount>,
    /// They have been counted.
    pub(crate) is_known: bool,
    /// Counts on another thread, of which there is one at a time: those that have begun, and have come to an end.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_first_class_that_is_long_enough() {
        for (nanos, class) in [(0, 0), (1024, 0), (1025, 1), (2048, 1), (2049, 2), (1 << 30, 20), (u64::MAX, 20)] {
            assert_eq!(time_class(nanos), class, "{nanos}");
        }
        assert_eq!([0, 1, 4, 5, 6, 7].map(|class| time_class_end(class) / 1000), [1, 2, 16, 33, 66, 132]);
    }

    #[test]
    fn threads_are_added_up() {
        let recorders: Vec<Arc<Recorder>> = (0..3).map(|_| Arc::new(Recorder::new(1, 1))).collect();
        for (at, one) in recorders.iter().enumerate() {
            one.commands.add(at as u64);
            one.replies.add(1_500, 10);
            one.commits.add(u64::MAX >> 8, 1);
        }
        let all = Totals::of(&recorders);
        assert_eq!((all.commands, all.replies.count(), all.replies.quantile(0.99)), (3, 30, 2_000));
        assert_eq!(all.commits.quantile(0.5), class_end(CLASSES - 1));
        recorders[0].merge(&recorders[1]);
        let merged = Totals::of(&recorders[..1]);
        assert_eq!((merged.commands, merged.replies.count(), merged.replies.nanos), (1, 20, 30_000));
    }
}
