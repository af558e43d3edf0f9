//! Exact counts of what persistence costs, kept per thread and summed on demand.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Threads with counters of their own; further ones share the last, with atomic additions.
pub(crate) const THREADS: usize = 64;

/// Counted costs of one pool since it was opened, all threads together.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut area = pool.add_region("r", 4096)?.into_area()?;
/// let before = pool.stats();
/// area.bytes_mut(0, 200)?.fill(1);
/// area.persist(0, 200)?;
/// let cost = pool.stats() - before;
/// assert_eq!((cost.drains, cost.flushed_lines, cost.media_bytes()), (1, 4, 256));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lines flushed, each [`LINE`](crate::LINE) bytes.
    pub flushed_lines: u64,
    /// Drains: barriers. Our first cost measure.
    pub drains: u64,
    /// Bytes stored past the cache.
    pub nt_bytes: u64,
    /// System calls that waited for the device. In the file domain several drains may share one.
    pub syncs: u64,
}

impl Stats {
    /// Bytes on their way to the media: whole lines, and what was stored past the cache.
    pub fn media_bytes(&self) -> u64 {
        self.flushed_lines * crate::LINE + self.nt_bytes
    }
}

impl Stats {
    fn with(self, other: Stats, f: impl Fn(u64, u64) -> u64) -> Stats {
        Stats {
            flushed_lines: f(self.flushed_lines, other.flushed_lines),
            drains: f(self.drains, other.drains),
            nt_bytes: f(self.nt_bytes, other.nt_bytes),
            syncs: f(self.syncs, other.syncs),
        }
    }
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        *self = self.with(other, |a, b| a + b);
    }
}

impl std::ops::Sub for Stats {
    type Output = Stats;
    fn sub(self, earlier: Stats) -> Stats {
        self.with(earlier, |a, b| a - b)
    }
}

/// Added to the numbers of threads that are played: far from those of real threads, since an engine may leave to a real thread what is reached by its number
/// alone. It divides by every count up to 16 and by 64, so that homes among so many are as without it.
const PLAYED: usize = 2_882_880;

/// Whether this is a played thread whose number has a row to itself.
#[inline]
pub(crate) fn is_played_apart(thread: usize) -> bool {
    thread.checked_sub(PLAYED).is_some_and(|played| played < THREADS - 1)
}

/// One thread's counters, alone on their lines: no count is shared on the hot path.
#[repr(align(128))]
#[derive(Default)]
struct Row {
    flushed_lines: AtomicU64,
    drains: AtomicU64,
    nt_bytes: AtomicU64,
}

pub(crate) struct Counters {
    rows: Box<[Row]>,
    syncs: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self { rows: (0..2 * THREADS).map(|_| Row::default()).collect(), syncs: AtomicU64::new(0) }
    }

    /// Where a thread counts that has no row to itself, or may not be the only one of its number.
    #[inline]
    fn shared(&self, thread: usize) -> &Row {
        match thread.checked_sub(PLAYED) {
            Some(played) => &self.rows[THREADS + played.min(THREADS - 1)],
            None => &self.rows[THREADS - 1],
        }
    }

    #[inline]
    fn add(&self, cell: impl Fn(&Row) -> &AtomicU64, n: u64) -> u64 {
        let thread = thread_id();
        if thread < THREADS - 1 {
            // Only the thread that owns this id writes here, so load and store lose nothing.
            let cell = cell(&self.rows[thread]);
            let sum = cell.load(Relaxed) + n;
            cell.store(sum, Relaxed);
            sum
        } else {
            cell(self.shared(thread)).fetch_add(n, Relaxed) + n
        }
    }

    #[inline]
    pub(crate) fn flushed(&self, lines: u64) {
        self.add(|r| &r.flushed_lines, lines);
    }

    /// Counts a drain and returns its number in this thread's row.
    #[inline]
    pub(crate) fn drained(&self) -> u64 {
        self.add(|r| &r.drains, 1)
    }

    /// Drains of this thread so far.
    #[inline]
    pub(crate) fn drains_here(&self) -> u64 {
        let thread = thread_id();
        let row = if thread < THREADS - 1 { &self.rows[thread] } else { self.shared(thread) };
        row.drains.load(Relaxed)
    }

    #[inline]
    pub(crate) fn streamed(&self, bytes: u64) {
        self.add(|r| &r.nt_bytes, bytes);
    }

    pub(crate) fn synced(&self) {
        self.syncs.fetch_add(1, Relaxed); // beside a system call that waits for a device
    }

    pub(crate) fn sum(&self) -> Stats {
        let mut stats = Stats { syncs: self.syncs.load(Relaxed), ..Stats::default() };
        for row in &self.rows {
            stats.flushed_lines += row.flushed_lines.load(Relaxed);
            stats.drains += row.drains.load(Relaxed);
            stats.nt_bytes += row.nt_bytes.load(Relaxed);
        }
        stats
    }
}

// Thread ids: small numbers, unique among live threads, given back when a thread ends.

struct Ids {
    next: usize,
    free: BinaryHeap<Reverse<usize>>,
}

static IDS: parking_lot::Mutex<Ids> = parking_lot::Mutex::new(Ids { next: 0, free: BinaryHeap::new() });

struct IdGuard(usize);

impl Drop for IdGuard {
    fn drop(&mut self) {
        // What is torn down behind this guard gets another one, which nobody has.
        if ID.get() == self.0 {
            ID.set(usize::MAX);
        }
        if OWN.get() == Some(self.0) {
            OWN.set(Some(usize::MAX));
        }
        IDS.lock().free.push(Reverse(self.0));
    }
}

thread_local! {
    // Apart from the guard, so that reading it needs no check for destruction. MAX: not known, or another one each time.
    static ID: Cell<usize> = const { Cell::new(usize::MAX) };
    static GUARD: Cell<Option<IdGuard>> = const { Cell::new(None) };
    /// The thread's own id, while it plays others.
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The calling thread's id: the smallest that no other live thread has.
#[inline]
pub(crate) fn thread_id() -> usize {
    let id = ID.get();
    if id == usize::MAX { find_id() } else { id }
}

/// From now on a scheduler says each time who the calling thread is, or no longer.
pub(crate) fn play(others: bool) {
    match (OWN.get(), others) {
        (None, true) => OWN.set(Some(ID.replace(usize::MAX))),
        (Some(id), false) => {
            OWN.set(None);
            ID.set(id);
        }
        _ => {}
    }
}

/// Runs `f` as the thread of this number.
pub(crate) fn as_thread<R>(number: usize, f: impl FnOnce() -> R) -> R {
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            ID.set(self.0);
        }
    }
    let _back = Back(ID.replace(PLAYED.saturating_add(number)));
    f()
}

#[cold]
fn find_id() -> usize {
    let Some(own) = OWN.get() else { return claim_id() };
    if let Some(played) = crate::sync::played_thread() {
        // A smaller one could be a real thread's.
        return if played < crate::sync::PLAYED { PLAYED.saturating_add(played) } else { played };
    }
    if own != usize::MAX {
        return own;
    }
    let id = claim_id();
    ID.set(usize::MAX);
    OWN.set(Some(id));
    id
}

fn claim_id() -> usize {
    let mut ids = IDS.lock();
    let id = match ids.free.pop() {
        Some(Reverse(id)) => id,
        None => {
            ids.next += 1;
            ids.next - 1
        }
    };
    drop(ids);
    ID.set(id);
    // A thread that is being torn down cannot keep a guard: its id is then never given again, which is harmless.
    let _ = GUARD.try_with(|g| g.set(Some(IdGuard(id))));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_are_exact() {
        let counters = Counters::new();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            counters.flushed(2);
                            counters.drained();
                        }
                    });
                }
            });
        }
        let sum = counters.sum();
        assert_eq!((sum.flushed_lines, sum.drains), (600_000, 300_000));
    }

    /// Plays the thread of that number; 0 is none in particular.
    struct Plays(AtomicU64);

    impl crate::sync::Scheduler for Plays {
        fn switch(&self) {}

        fn blocked(&self) {}

        fn thread(&self) -> Option<usize> {
            Some(self.0.load(Relaxed) as usize).filter(|&id| id != 0)
        }
    }

    /// Two threads that play one: what both count is counted.
    #[test]
    fn counts_of_threads_that_play_the_same_one_are_exact() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in [5, 200] {
                        as_thread(number, || (0..50_000).for_each(|_| _ = counters.drained()));
                    }
                });
            }
        });
        assert_eq!(counters.sum().drains, 400_000);
        assert_eq!(as_thread(5, || counters.drains_here()), 200_000);
    }

    /// Also while a thread's own variables are torn down, before and behind the guard of its id.
    #[test]
    fn an_id_is_no_other_threads_as_long_as_its_own_runs() {
        struct Asks;
        impl Drop for Asks {
            fn drop(&mut self) {
                let own = thread_id();
                let other = std::thread::scope(|threads| threads.spawn(thread_id).join().unwrap());
                assert!(own != other, "both are {own}");
            }
        }
        thread_local! {
            static FIRST: Cell<Option<Asks>> = const { Cell::new(None) };
            static LAST: Cell<Option<Asks>> = const { Cell::new(None) };
        }
        std::thread::scope(|threads| {
            let ends = threads.spawn(|| {
                FIRST.set(Some(Asks));
                let own = thread_id();
                LAST.set(Some(Asks));
                own
            });
            // Its variables, too, are gone behind this.
            assert!(ends.join().is_ok());
        });
    }

    #[test]
    fn a_scheduler_says_who_the_thread_is() {
        use crate::sync::{PLAYED, set_scheduler};
        let own = thread_id();
        for _ in 0..2 {
            let plays = std::sync::Arc::new(Plays(AtomicU64::new(PLAYED as u64)));
            assert!(set_scheduler(Some(plays.clone())).is_none());
            assert_eq!(thread_id(), PLAYED);
            plays.0.store(PLAYED as u64 + 1, Relaxed);
            assert_eq!(thread_id(), PLAYED + 1);
            plays.0.store(0, Relaxed);
            assert_eq!(thread_id(), own);
            plays.0.store(PLAYED as u64 + 2, Relaxed);
            assert_eq!(thread_id(), PLAYED + 2);
            set_scheduler(None);
            assert_eq!(thread_id(), own);
        }
        // Without a scheduler, one inside another.
        let inner = || (thread_id(), as_thread(9, thread_id), thread_id());
        assert_eq!(
            (as_thread(8, inner), thread_id()),
            ((super::PLAYED + 8, super::PLAYED + 9, super::PLAYED + 8), own)
        );
        // A scheduler that says the number of a real thread does not get it.
        set_scheduler(Some(std::sync::Arc::new(Plays(AtomicU64::new(own as u64 + 1)))));
        assert_eq!(thread_id(), super::PLAYED + own + 1);
        set_scheduler(None);
        // One that plays nobody changes nothing.
        set_scheduler(Some(std::sync::Arc::new(Plays(AtomicU64::new(0)))));
        assert_eq!(thread_id(), own);
        set_scheduler(None);
        // Asked for the first time while it is played.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let plays = std::sync::Arc::new(Plays(AtomicU64::new(PLAYED as u64)));
                set_scheduler(Some(plays.clone()));
                plays.0.store(0, Relaxed);
                let own = thread_id();
                plays.0.store(PLAYED as u64 + 5, Relaxed);
                assert_eq!(thread_id(), PLAYED + 5);
                set_scheduler(None);
                assert_eq!(thread_id(), own);
            });
        });
    }
}
