//! Threads played by `shuttle`: every lock of [`pmem::sync`] and every switch point is a place where it may let another one run.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use pmem::sync::{PLAYED, Scheduler, set_scheduler};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler as Strategy};
use shuttle::sync::atomic::AtomicBool;
use shuttle::{Config, MaxSteps, Runner};

/// Preemptions that PCT places.
const DEPTH: usize = 3;
/// Enough for every run that ends.
const STEPS: usize = 200_000;
const STACK: usize = 512 << 10;

/// Runs `scenario` again and again, `schedules` times in all: under random schedules, and under such with few preemptions
/// (Burckhardt et al., *A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs*, ASPLOS 2010). The seed gives
/// the same schedules each time. A scenario starts threads with [`together`] and blocks only on locks of [`pmem::sync`].
///
/// # Panics
/// With the scenario; and if some run does not end.
pub fn explore(seed: u64, schedules: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    let random = schedules.div_ceil(2);
    run(RandomScheduler::new_from_seed(seed, random), scenario.clone());
    run(PctScheduler::new_from_seed(seed, DEPTH, schedules - random), scenario);
}

fn run(strategy: impl Strategy + 'static, scenario: Arc<impl Fn() + Send + Sync + 'static>) {
    let _out = Out; // even if the scenario panics
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    Runner::new(strategy, config).run(move || {
        set_scheduler(Some(Arc::new(Played { point: AtomicBool::new(false) })));
        let _out = Out;
        scenario();
    });
}

/// Takes the thread out from under the scheduler.
struct Out;

impl Drop for Out {
    fn drop(&mut self) {
        set_scheduler(None);
    }
}

/// Runs these as threads of the scenario, and gives their results in order.
///
/// # Panics
/// With the first thread that does.
pub fn together<'a, R: Send>(threads: Vec<Box<dyn FnOnce() -> R + Send + 'a>>) -> Vec<R> {
    shuttle::thread::scope(|scope| {
        let threads: Vec<_> = threads.into_iter().map(|thread| scope.spawn(thread)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

struct Played {
    point: AtomicBool,
}

impl Scheduler for Played {
    /// An access to something shared: a yield would tell PCT to prefer others.
    fn switch(&self) {
        if !std::thread::panicking() {
            self.point.load(SeqCst);
        }
    }

    fn blocked(&self) {
        shuttle::thread::yield_now();
    }

    fn thread(&self) -> Option<usize> {
        shuttle::current::try_get_current_task().map(|task| PLAYED + usize::from(task))
    }
}
