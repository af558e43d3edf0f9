//! Schedules of a chain with everything that goes wrong on machines and between them: the code of the processes, over simulated media, network, membership service and time, all
//! from one seed.
//!
//! What a schedule checks: no request that was acknowledged is lost or carried out twice, on any object; replies to one request are the same; all could have run one after the other in the order of
//! numbers, and of real time; a read shows every request that was acknowledged before it began, whole, and nothing that is not there later; when all faults are over everything that was asked is done,
//! every machine is a member, and all heaps are the same, after a power cut, too.
//! Each append gives its object another block: on every replica, at every moment, what is known of blocks is what a look at all objects finds.

mod deep;
mod history;
mod machine;
mod medium;
mod process;
mod schedule;
pub(crate) mod service;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use self::schedule::run;
use self::world::Coverage;
use crate::failpoints::Step;

/// How many schedules: a thousand in the gate, a million by `make sim-long`.
fn schedules() -> u64 {
    std::env::var("CAIRN_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

fn first_seed() -> u64 {
    std::env::var("CAIRN_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Kinds of things that [`Coverage`] counts.
const WHAT_HAPPENS: usize = 24;

/// Runs schedules on all processors until one finds something.
fn run_all(seeds: std::ops::Range<u64>, without: Option<Step>) -> (Coverage, BTreeMap<u64, String>) {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new((Coverage::default(), BTreeMap::new()));
    let lock = || all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|threads| {
        for _ in 0..workers {
            threads.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !lock().1.is_empty() {
                        break;
                    }
                    let result = std::panic::catch_unwind(|| run(seed, without));
                    let mut all = lock();
                    match result {
                        Ok(Ok(coverage)) => {
                            coverage.0.iter().for_each(|(what, n)| *all.0.0.entry(what).or_default() += n)
                        }
                        Ok(Err(violation)) => drop(all.1.insert(seed, violation)),
                        Err(_) => drop(all.1.insert(seed, "a panic".into())),
                    }
                }
            });
        }
    });
    all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn schedules_lose_nothing() {
    let first = first_seed();
    let (coverage, violations) = run_all(first..first + schedules(), None);
    assert!(violations.is_empty(), "{violations:#?}\nagain: CAIRN_SEED=<seed> CAIRN_SCHEDULES=1");
    println!("{coverage:#?}");
    assert!(schedules() < 1000 || coverage.0.len() == WHAT_HAPPENS, "something never happened: {coverage:#?}");
}
