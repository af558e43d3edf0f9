//! Conflicts are run again, up to the caller's policy.

use std::time::Duration;

use pmem::PPtr;
use tx::{Doom, Engine, Error, Isolation, Procedure, Result, RetryPolicy, Transaction, Typed};

use super::plain::plain_checks;
use super::stage::join;
use super::subject::Subject;
use super::support::{numbers, ok, set, value};
use crate::check::Check;
use crate::rng::Rng;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(group, any attempts, any deadline, rollback counter, rollback transfers, rollback calls)
}

/// As if another one were always faster.
fn beaten<X: Transaction>(tx: &X) -> Result<()> {
    let e = Error::Conflict { offset: 4711 };
    tx.set_doom(Doom::from(&e));
    Err(e)
}

fn attempts<S: Subject>(s: &S) {
    let engine = s.fresh();
    for most in [1, 2, 9] {
        let mut runs = 0;
        let policy = RetryPolicy::default().attempts(most);
        let result = engine.transact_with(engine.strongest(), policy, |tx| {
            runs += 1;
            beaten(tx)
        });
        match result {
            Err(Error::GaveUp { attempts, offset }) => assert_eq!((attempts, runs, offset), (most, most, 4711)),
            other => panic!("should have given up after {most}: {other:?}"),
        }
    }
}

fn deadline<S: Subject>(s: &S) {
    let engine = s.fresh();
    let policy = RetryPolicy::default().attempts(u32::MAX).deadline(Duration::from_millis(5));
    let result = engine.transact_with(engine.strongest(), policy, |tx| beaten(tx));
    assert!(matches!(result, Err(Error::GaveUp { .. })), "{result:?}");
}

/// No increment is lost, and all threads get on.
fn counter<S: Subject>(s: &S) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 150;
    let engine = s.fresh();
    for &level in s.levels() {
        let number = numbers(&engine, 1)[0];
        std::thread::scope(|scope| {
            let threads = (0..THREADS).map(|_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        ok(engine.transact(level, |tx| {
                            let before = *tx.read(number)?;
                            std::thread::yield_now();
                            tx.write(number).map(|value| *value = before + 1)
                        }));
                    }
                })
            });
            threads.collect::<Vec<_>>().into_iter().for_each(join);
        });
        assert_eq!(value(&engine, number), THREADS * ROUNDS, "at {level}");
    }
}

/// The sum stays, for every transaction at any time.
fn transfers<S: Subject>(s: &S) {
    const ACCOUNTS: usize = 6;
    const ROUNDS: u64 = 150;
    let engine = s.fresh();
    for &level in s.levels() {
        let accounts = numbers(&engine, ACCOUNTS);
        set(&engine, &accounts, 100);
        let sums = std::thread::scope(|scope| {
            let threads = (0..3).map(|seed| {
                let (engine, accounts) = (&engine, &accounts);
                scope.spawn(move || {
                    let mut rng = Rng::seeded(seed);
                    let mut sums = Vec::new();
                    for _ in 0..ROUNDS {
                        let [from, to] = [(); 2].map(|()| accounts[rng.below(ACCOUNTS as u64) as usize]);
                        ok(engine.transact(level, |tx| -> Result<()> {
                            let moved = (*tx.read(from)?).min(10);
                            *tx.write(from)? -= moved;
                            std::thread::yield_now();
                            *tx.write(to)? += moved;
                            Ok(())
                        }));
                        sums.push(ok(engine.transact(level, |tx| -> Result<u64> {
                            accounts.iter().map(|&account| tx.read(account).copied()).sum()
                        })));
                    }
                    sums
                })
            });
            threads.collect::<Vec<_>>().into_iter().flat_map(join).collect::<Vec<u64>>()
        });
        assert!(sums.iter().all(|&sum| sum == 100 * ACCOUNTS as u64), "at {level}: money came or went: {sums:?}");
    }
}

/// Adds a number, and refuses even results.
struct Add;

impl Procedure for Add {
    const NAME: &'static str = "add";
    const ISOLATION: Isolation = Isolation::Strict;
    type Args = (PPtr<u64>, u64);
    type Output = u64;

    fn run<X: Transaction>(tx: &mut X, &(number, more): &Self::Args) -> Result<u64> {
        let before = *tx.read(number)?;
        std::thread::yield_now();
        *tx.write(number)? = before + more;
        if before.is_multiple_of(2) == more.is_multiple_of(2) { Err(tx.refuse("even")) } else { Ok(before + more) }
    }
}

/// A procedure is run again after a conflict, and rolled back if it fails.
fn calls<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    assert_eq!(ok(engine.call::<Add>(&(number, 1))), 1);
    assert!(matches!(engine.call::<Add>(&(number, 1)), Err(Error::Aborted { .. })));
    assert_eq!(value(&engine, number), 1);
    std::thread::scope(|scope| {
        let add = || (0..100).for_each(|_| assert_ne!(ok(engine.call::<Add>(&(number, 2))), 0));
        [(); 3].map(|()| scope.spawn(add)).into_iter().for_each(join);
    });
    assert_eq!(value(&engine, number), 601);
}
