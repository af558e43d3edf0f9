//! Two transactions of one thread that want one object: an error at once, since waiting or running again would never end.

use pmem::PPtr;
use tx::{Engine, Error, Result, RetryPolicy, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{begin, numbers, ok, set, try_run, value, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(
        group,
        rollback write_write,
        any write_read,
        any read_write,
        rollback free_write,
        rollback transact_in_transact,
        any apart,
    )
}

#[track_caller]
fn assert_own<T>(result: &Result<T>) {
    if let Err(e) = result {
        assert!(matches!(e, Error::OwnConflict { .. }), "should have been an own conflict: {e}");
    }
}

fn put<X: Typed>(tx: &mut X, number: PPtr<u64>, to: u64) -> Result<()> {
    tx.write(number).map(|value| *value = to)
}

fn write_write<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    let (mut first, mut second) = (begin(&engine), begin(&engine));
    ok(put(&mut first, number, 1));
    let second = put(&mut second, number, 2).and_then(|()| second.commit());
    let first = first.commit();
    assert_own(&first);
    assert_own(&second);
    assert!(first.is_ok() != second.is_ok(), "the first: {first:?}, the second: {second:?}");
    assert_eq!(value(&engine, number), if first.is_ok() { 1 } else { 2 });
}

fn write_read<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    let (mut writer, reader) = (begin(&engine), begin(&engine));
    ok(put(&mut writer, number, 1));
    ok(put(&mut writer, number, 2));
    let seen = reader.read(number).copied();
    assert_own(&seen);
    assert_eq!(seen.unwrap_or(0), 0, "seen before the commit");
    drop(reader);
    ok(writer.commit());
}

fn read_write<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    let (reader, mut writer) = (begin(&engine), begin(&engine));
    let handed = ok(reader.read(number));
    let written = put(&mut writer, number, 1).and_then(|()| writer.commit());
    assert_own(&written);
    assert_eq!(*handed, 0, "bytes changed under a reference");
    assert_own(&reader.commit());
    assert_eq!(value(&engine, number), u64::from(written.is_ok()));
}

fn free_write<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    let (mut first, mut second) = (begin(&engine), begin(&engine));
    ok(first.free(number));
    let second = put(&mut second, number, 2).and_then(|()| second.commit());
    let first = first.commit();
    assert_own(&first);
    assert_own(&second);
    assert!(first.is_ok() != second.is_ok(), "freed: {first:?}, written: {second:?}");
}

/// As a program does it by mistake. The outer one must not be run again: it would do the same again.
fn transact_in_transact<S: Subject>(s: &S) {
    for inner_writes in [true, false] {
        let engine = s.fresh();
        let number = numbers(&engine, 1)[0];
        let policy = RetryPolicy::default().attempts(20);
        let mut runs = 0;
        let result = engine.transact_with(engine.strongest(), policy, |tx| -> Result<()> {
            runs += 1;
            put(tx, number, 1)?;
            engine.transact_with(engine.strongest(), policy, |tx| {
                if inner_writes { put(tx, number, 2) } else { tx.read(number).map(drop) }
            })
        });
        assert_own(&result);
        assert_eq!(runs, 1, "run again and again: {result:?}");
        assert!(!inner_writes || result.is_err(), "two writers of one object both committed");
        set(&engine, &[number], 5); // nothing stays locked
    }
}

fn apart<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 2);
    let (mut first, mut second) = (begin(&engine), begin(&engine));
    ok(put(&mut first, numbers[0], 1));
    ok(put(&mut second, numbers[1], 2));
    ok(try_run(&engine, |tx| tx.alloc(&3u64)));
    ok(first.commit());
    ok(second.commit());
    assert_eq!(values(&engine, &numbers), [1, 2]);
}
