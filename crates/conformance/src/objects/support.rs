//! What the checks have in common.

use pmem::PPtr;
use tx::{Engine, Error, Result, Transaction, Typed};

use super::subject::Subject;

/// A transaction of the subject's engine.
pub(super) type TxOf<'e, S> = <<S as Subject>::Engine as Engine>::Tx<'e>;

/// What must not fail.
#[track_caller]
pub(super) fn ok<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("should have worked: {e}"),
    }
}

/// What must fail.
#[track_caller]
pub(super) fn err<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("should have failed"),
        Err(e) => e,
    }
}

/// A pointer that means no live object.
#[track_caller]
pub(super) fn assert_bad<T>(result: Result<T>) {
    let e = err(result);
    let bad = matches!(e, Error::Pool(pmem::Error::BadPointer { .. }));
    assert!(bad, "should have been a bad pointer: {e}");
}

/// A transaction in which an error was ignored: it says so, and does not commit.
#[track_caller]
pub(super) fn assert_doomed<X: Typed>(tx: X) {
    assert!(tx.doom().is_some(), "an error does not show as doom");
    let e = err(tx.commit());
    assert!(matches!(e, Error::Doomed { .. }), "should have been doomed: {e}");
}

/// A new transaction at the engine's strongest level.
#[track_caller]
pub(super) fn begin<E: Engine>(engine: &E) -> E::Tx<'_> {
    ok(engine.begin(engine.strongest()))
}

/// Runs it at the strongest level.
#[track_caller]
pub(super) fn run<'e, E: Engine, R>(engine: &'e E, f: impl FnMut(&mut E::Tx<'e>) -> Result<R>) -> R {
    ok(try_run(engine, f))
}

/// Runs it at the strongest level, and may fail.
pub(super) fn try_run<'e, E: Engine, R>(engine: &'e E, mut f: impl FnMut(&mut E::Tx<'e>) -> Result<R>) -> Result<R> {
    let mut tx = engine.begin(engine.strongest())?;
    let result = f(&mut tx);
    match (&result, tx.doom()) {
        (Ok(_), None) => tx.commit()?,
        _ => drop(tx),
    }
    result
}

/// `count` numbers, each an object of its own: 0, 0, ...
#[track_caller]
pub(super) fn numbers<E: Engine>(engine: &E, count: usize) -> Vec<PPtr<u64>> {
    run(engine, |tx| (0..count).map(|_| tx.alloc(&0u64)).collect())
}

/// The number, as a transaction of its own sees it.
#[track_caller]
pub(super) fn value<E: Engine>(engine: &E, number: PPtr<u64>) -> u64 {
    run(engine, |tx| tx.read(number).copied())
}

/// All of them.
#[track_caller]
pub(super) fn values<E: Engine>(engine: &E, numbers: &[PPtr<u64>]) -> Vec<u64> {
    run(engine, |tx| numbers.iter().map(|&n| tx.read(n).copied()).collect())
}

/// Sets each to the same value.
#[track_caller]
pub(super) fn set<E: Engine>(engine: &E, numbers: &[PPtr<u64>], to: u64) {
    run(engine, |tx| numbers.iter().try_for_each(|&n| tx.write(n).map(|value| *value = to)));
}

/// Writes it.
pub(super) fn put<X: Typed>(tx: &mut X, number: PPtr<u64>, to: u64) -> Result<()> {
    tx.write(number).map(|value| *value = to)
}

/// As the transaction sees it.
pub(super) fn get<X: Typed>(tx: &X, number: PPtr<u64>) -> u64 {
    ok(tx.read(number).copied())
}
