//! `nested` is part of the transaction around it.

use tx::{Engine, Error, Result, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{assert_doomed, begin, numbers, ok, set, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(
        group,
        any joins,
        rollback ends_with_the_outer_one,
        rollback failure_dooms,
        any failure_dooms_a_reader,
        any doomed_runs_nothing,
    )
}

fn joins<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 3);
    let mut tx = begin(&engine);
    *ok(tx.write(numbers[0])) = 1;
    let sum = ok(tx.nested(|tx| {
        *tx.write(numbers[1])? = *tx.read(numbers[0])? + 1; // sees what is around it
        tx.nested(|tx| -> Result<u64> {
            let new = tx.read(numbers[0])? + tx.read(numbers[1])?;
            *tx.write(numbers[2])? = new;
            Ok(new)
        })
    }));
    assert_eq!((sum, *ok(tx.read(numbers[2]))), (3, 3));
    ok(tx.commit());
    assert_eq!(values(&engine, &numbers), [1, 2, 3]);
}

fn ends_with_the_outer_one<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 2);
    set(&engine, &numbers, 7);
    let mut tx = begin(&engine);
    *ok(tx.write(numbers[0])) = 1;
    ok(tx.nested(|tx| tx.write(numbers[1]).map(|value| *value = 2)));
    ok(tx.abort());
    assert_eq!(values(&engine, &numbers), [7, 7]);
}

fn failure_dooms<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 2);
    set(&engine, &numbers, 7);
    let mut tx = begin(&engine);
    *ok(tx.write(numbers[0])) = 1;
    let result = tx.nested(|tx| -> Result<()> {
        *tx.write(numbers[1])? = 2;
        Err(Error::Unordered)
    });
    assert!(matches!(result, Err(Error::Unordered)), "{result:?}");
    assert_doomed(tx);
    assert_eq!(values(&engine, &numbers), [7, 7]);

    let result = engine.transact(engine.strongest(), |tx| {
        *tx.write(numbers[0])? = 1;
        let _ignored = tx.nested(|_| Err::<(), _>(Error::Unordered));
        Ok::<_, Error>(())
    });
    assert!(matches!(result, Err(Error::Doomed { .. })), "{result:?}");
    assert_eq!(values(&engine, &numbers), [7, 7]);
}

fn failure_dooms_a_reader<S: Subject>(s: &S) {
    let engine = s.fresh();
    let mut tx = begin(&engine);
    let _ignored = tx.nested(|tx| tx.nested(|_| Err::<(), _>(Error::Unordered)).or(Ok::<_, Error>(())));
    assert_doomed(tx);
}

fn doomed_runs_nothing<S: Subject>(s: &S) {
    let engine = s.fresh();
    let mut tx = begin(&engine);
    tx.refuse("on purpose");
    let mut ran = false;
    let result = tx.nested(|_| -> Result<()> {
        ran = true;
        Ok(())
    });
    assert!(matches!(result, Err(Error::Doomed { .. })) && !ran, "ran: {ran}, {result:?}");
}
