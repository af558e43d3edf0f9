//! Every way a transaction ends without a commit leaves nothing behind.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pmem::PPtr;
use tx::{Engine, Error, Result, Transaction, Typed};

use super::plain::plain_checks;
use super::stage::join;
use super::subject::Subject;
use super::support::{begin, err, numbers, ok, run, set, value, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(
        group,
        rollback abort,
        rollback dropped,
        rollback error_in_transact,
        rollback panic_in_transact,
        rollback panic_with_a_transaction,
        rollback panic_in_nested,
        any readers_end_anyhow,
        rollback forgotten,
        rollback ending_often,
    )
}

/// Numbers that hold 7.
fn sevens<E: Engine>(engine: &E) -> Vec<PPtr<u64>> {
    let numbers = numbers(engine, 2);
    set(engine, &numbers, 7);
    numbers
}

/// Everything is as before, and free for all.
#[track_caller]
fn assert_untouched<E: Engine + Sync>(engine: &E, numbers: &[PPtr<u64>]) {
    assert_eq!(values(engine, numbers), [7, 7]);
    std::thread::scope(|scope| join(scope.spawn(|| set(engine, numbers, 1))));
    set(engine, numbers, 2);
    assert_eq!(values(engine, numbers), [2, 2]);
}

/// Writes the first whole, the second in part.
fn write<X: Typed>(tx: &mut X, numbers: &[PPtr<u64>]) -> Result<()> {
    *tx.write(numbers[0])? = 8;
    tx.bytes_mut(numbers[1].cast(), 3)?.fill(1);
    Ok(())
}

fn abort<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    let mut tx = begin(&engine);
    ok(write(&mut tx, &numbers));
    ok(tx.abort());
    assert_untouched(&engine, &numbers);
}

fn dropped<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    let mut tx = begin(&engine);
    ok(write(&mut tx, &numbers));
    drop(tx);
    assert_untouched(&engine, &numbers);
}

fn error_in_transact<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    let result = engine.transact(engine.strongest(), |tx| {
        write(tx, &numbers)?;
        Err::<(), _>(Error::Unordered)
    });
    assert!(matches!(result, Err(Error::Unordered)), "{result:?}");
    assert_untouched(&engine, &numbers);
}

/// Runs it and gives the panic's message.
#[track_caller]
fn panics<R>(f: impl FnOnce() -> R) -> &'static str {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("the panic was swallowed"),
        Err(payload) => payload.downcast_ref::<&str>().copied().unwrap_or("another panic"),
    }
}

fn panic_in_transact<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    let message = panics(|| {
        engine.transact(engine.strongest(), |tx| -> Result<()> {
            write(tx, &numbers)?;
            panic!("on purpose")
        })
    });
    assert_eq!(message, "on purpose");
    assert_untouched(&engine, &numbers);
}

fn panic_with_a_transaction<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    let mut tx = begin(&engine);
    ok(write(&mut tx, &numbers));
    let message = panics(move || {
        let _tx = tx;
        panic!("on purpose")
    });
    assert_eq!(message, "on purpose");
    assert_untouched(&engine, &numbers);
}

/// Caught inside: the transaction goes on, but not to a commit.
fn panic_in_nested<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    let result = engine.transact(engine.strongest(), |tx| {
        panics(|| {
            tx.nested(|tx| -> Result<()> {
                write(tx, &numbers)?;
                panic!("on purpose")
            })
        });
        Ok::<_, Error>(())
    });
    assert!(matches!(result, Err(Error::Doomed { .. })), "{result:?}");
    assert_untouched(&engine, &numbers);
}

fn readers_end_anyhow<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    for round in 0..200 {
        let tx = begin(&engine);
        assert_eq!(*ok(tx.read(numbers[0])), 7);
        match round % 4 {
            0 => ok(tx.commit()),
            1 => ok(tx.abort()),
            2 => drop(tx),
            _ => {
                tx.set_doom(tx::Doom { first: "on purpose".into(), conflict: None });
                err(tx.commit());
            }
        }
    }
    assert_untouched(&engine, &numbers);
}

/// It never commits, and keeps no transaction from other objects.
fn forgotten<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    let mut tx = begin(&engine);
    *ok(tx.write(numbers[0])) = 8;
    *ok(tx.write(numbers[0])) = 9;
    std::mem::forget(tx);
    let seen = std::thread::scope(|scope| {
        join(scope.spawn(|| {
            set(&engine, &numbers[1..], 1);
            let tx = begin(&engine);
            tx.read(numbers[0]).copied()
        }))
    });
    assert!(matches!(seen, Ok(7) | Err(Error::Conflict { .. })), "seen of a forgotten transaction: {seen:?}");
    assert_eq!(value(&engine, numbers[1]), 1);
}

/// Slots, locks and the like come back each time.
fn ending_often<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = sevens(&engine);
    for round in 0..400 {
        let mut tx = begin(&engine);
        ok(write(&mut tx, &numbers));
        match round % 3 {
            0 => ok(tx.abort()),
            1 => drop(tx),
            _ => {
                tx.refuse("on purpose");
                err(tx.commit());
            }
        }
    }
    run(&engine, |tx| tx.read(numbers[0]).copied());
    assert_untouched(&engine, &numbers);
}
