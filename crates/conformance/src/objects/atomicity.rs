//! All of a transaction happens, or nothing.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use pmem::PPtr;
use tx::{Engine, Error, Result, Transaction, Typed};

use super::plain::plain_checks;
use super::stage::join;
use super::subject::Subject;
use super::support::{assert_bad, begin, numbers, ok, run, set, try_run, value, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(group, any everything, rollback nothing, rollback nobody_sees_half, any no_rollback_is_said)
}

/// One change of each kind. Returns what was allocated.
fn change<X: Typed>(tx: &mut X, numbers: &[PPtr<u64>]) -> Result<PPtr<u64>> {
    let [first, second, freed] = numbers else { panic!("three numbers") };
    *tx.write(*first)? = 10;
    *tx.write(*second)? = 20;
    tx.free(*freed)?;
    let new = tx.alloc(&30u64)?;
    tx.set_root(new)?;
    Ok(new)
}

fn everything<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 3);
    let new = run(&engine, |tx| change(tx, &numbers));
    assert_eq!(values(&engine, &[numbers[0], numbers[1], new]), [10, 20, 30]);
    assert_bad(try_run(&engine, |tx| tx.read(numbers[2]).copied()));
    assert_eq!(run(&engine, |tx| tx.root::<u64>()), new);
}

fn nothing<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 3);
    set(&engine, &numbers, 7);
    let mut tx = begin(&engine);
    let new = ok(change(&mut tx, &numbers));
    ok(tx.abort());
    assert_eq!(values(&engine, &numbers), [7, 7, 7]);
    assert_bad(try_run(&engine, |tx| tx.read(new).copied()));
    assert!(run(&engine, |tx| tx.root::<u64>()).is_null(), "the root stayed set");
    // And what was touched can be changed again.
    run(&engine, |tx| change(tx, &numbers));
}

/// Two threads set both numbers to one value, a third compares them.
fn nobody_sees_half<S: Subject>(s: &S) {
    const ROUNDS: u64 = 300;
    let engine = s.fresh();
    let numbers = numbers(&engine, 2);
    let level = engine.strongest();
    let stop = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            let (engine, numbers) = (&engine, &numbers);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    ok(engine.transact(level, |tx| {
                        *tx.write(numbers[0])? = round * 2 + writer;
                        std::thread::yield_now();
                        tx.write(numbers[1]).map(|value| *value = round * 2 + writer)
                    }));
                }
            })
        });
        let reader = scope.spawn(|| {
            let mut seen = Vec::new();
            while !stop.load(SeqCst) {
                let pair = engine.transact(level, |tx| -> Result<_> {
                    let first = *tx.read(numbers[0])?;
                    std::thread::yield_now();
                    Ok((first, *tx.read(numbers[1])?))
                });
                seen.push(ok(pair));
            }
            seen
        });
        writers.into_iter().for_each(join);
        stop.store(true, SeqCst);
        join(reader)
    });
    for (first, second) in seen {
        assert_eq!(first, second, "half of a transaction was seen");
    }
}

/// An engine that cannot roll back says so, once something was changed.
fn no_rollback_is_said<S: Subject>(s: &S) {
    if s.atomic() {
        return;
    }
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    let tx = begin(&engine);
    ok(tx.read(number));
    ok(tx.abort());
    let mut tx = begin(&engine);
    *ok(tx.write(number)) = 1;
    let e = tx.abort();
    assert!(matches!(e, Err(Error::NoRollback)), "should have said that it cannot: {e:?}");
    set(&engine, &[number], 2); // it is free again
    assert_eq!(value(&engine, number), 2);
}
