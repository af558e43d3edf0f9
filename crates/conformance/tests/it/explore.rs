//! The explorer of schedules finds what it is for, and the same again from the same seed.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use conformance::{explore, together};
use pmem::sync::{Mutex, PLAYED, switch_point};
use pmem::thread_number;

type Thread<'a, R> = Box<dyn FnOnce() -> R + Send + 'a>;

/// True if the scenario panics under some schedule.
fn found(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(1, schedules, scenario))).is_err()
}

fn two<R: Send>(f: impl Fn() -> R + Send + Sync) -> Vec<R> {
    let f = &f;
    together(vec![Box::new(f) as Thread<'_, R>, Box::new(f)])
}

#[test]
fn finds_a_lost_update() {
    assert!(found(100, || {
        let number = Mutex::new(0);
        two(|| {
            let before = *number.lock();
            *number.lock() = before + 1;
        });
        assert_eq!(*number.lock(), 2);
    }));
    assert!(!found(100, || {
        let number = Mutex::new(0);
        two(|| *number.lock() += 1);
        assert_eq!(*number.lock(), 2);
    }));
}

#[test]
fn finds_a_deadlock() {
    assert!(found(100, || {
        let locks = [Mutex::new(()), Mutex::new(())];
        let take = |order: [usize; 2]| -> Thread<'_, ()> {
            let locks = &locks;
            Box::new(move || {
                let _first = locks[order[0]].lock();
                let _second = locks[order[1]].lock();
            })
        };
        together(vec![take([0, 1]), take([1, 0])]);
    }));
}

/// The thread that holds a lock must not look like one that wants it.
#[test]
fn tells_threads_apart() {
    let real = thread_number();
    explore(1, 50, || {
        let main = thread_number();
        let ids = two(|| {
            let first = thread_number();
            switch_point();
            (first, thread_number())
        });
        assert!(ids.iter().all(|(before, after)| before == after), "{ids:?}");
        let distinct: BTreeSet<usize> = ids.iter().map(|(id, _)| *id).chain([main]).collect();
        assert!(distinct.len() == 3 && distinct.iter().all(|id| *id >= PLAYED), "{distinct:?}");
    });
    assert_eq!(thread_number(), real);
}

/// The orders in which two threads came by.
fn orders(seed: u64) -> Vec<Vec<usize>> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let seen = all.clone();
    explore(seed, 40, move || {
        let order = Mutex::new(Vec::new());
        two(|| (0..3).for_each(|_| order.lock().push(thread_number())));
        let order = std::mem::take(&mut *order.lock());
        seen.lock().push(order);
    });
    std::mem::take(&mut *all.lock())
}

#[test]
fn one_seed_gives_one_set_of_schedules() {
    let first = orders(1);
    assert_eq!(first.len(), 40);
    assert!(first.iter().collect::<BTreeSet<_>>().len() > 5, "hardly any variety: {first:?}");
    assert_eq!(first, orders(1));
    assert_ne!(first, orders(2));
}
