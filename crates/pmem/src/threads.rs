//! Numbers of threads: small, unique among live threads, given back when a thread ends. A played thread has another one.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::scheduler;

/// Added to the numbers of threads that are played: far from those of real threads, since an engine may leave to a real thread what is reached by its number
/// alone. It divides by every count up to 16 and by 64, so that homes among so many are as without it.
pub(crate) const PLAYED: usize = 2_882_880;

struct Ids {
    next: usize,
    free: BinaryHeap<Reverse<usize>>,
}

static IDS: parking_lot::Mutex<Ids> = parking_lot::Mutex::new(Ids { next: 0, free: BinaryHeap::new() });

struct IdGuard(usize);

impl Drop for IdGuard {
    fn drop(&mut self) {
        // What is torn down behind this guard gets another one, which no thread has.
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

/// From now on a scheduler says each time which thread the calling one is, or no longer.
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

/// Runs `f` as the played thread of this number, whatever the calling thread's own is: for simulations, in which nothing may depend on what else runs
/// in the process. Its [`thread_number`](crate::thread_number) is this one and a constant, which no real thread has: two threads that play the same one at the same time are
/// served one after the other wherever a number leads to something shared. Those below 63 have counts of their own. The constant divides by every count up to 16 and
/// by 64.
pub fn as_thread_number<R>(number: usize, f: impl FnOnce() -> R) -> R {
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
    if let Some(played) = scheduler::played_thread() {
        // A smaller one could be a real thread's.
        return if played < scheduler::PLAYED { PLAYED.saturating_add(played) } else { played };
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
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

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

    /// Plays the thread of that number; 0 is none in particular.
    struct Plays(AtomicU64);

    impl crate::sync::Scheduler for Plays {
        fn switch(&self) {}

        fn blocked(&self) {}

        fn thread(&self) -> Option<usize> {
            Some(self.0.load(Relaxed) as usize).filter(|&id| id != 0)
        }
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
        let inner = || (thread_id(), as_thread_number(9, thread_id), thread_id());
        assert_eq!(
            (as_thread_number(8, inner), thread_id()),
            ((super::PLAYED + 8, super::PLAYED + 9, super::PLAYED + 8), own)
        );
        // A scheduler that says the number of a real thread does not get it.
        set_scheduler(Some(std::sync::Arc::new(Plays(AtomicU64::new(own as u64 + 1)))));
        assert_eq!(thread_id(), super::PLAYED + own + 1);
        set_scheduler(None);
        // One that plays no other thread changes nothing.
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
