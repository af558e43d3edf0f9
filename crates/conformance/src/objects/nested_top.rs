//! Parts of a transaction that are committed alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tx::{Error, NestedTop, Result, Savepoints, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::{Concurrency, Subject};
use super::support::{TxOf, assert_bad, assert_doomed, begin, err, get, numbers, ok, put, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>() -> Vec<Check<S>>
where
    for<'e> TxOf<'e, S>: Savepoints + NestedTop,
{
    plain_checks!(
        "nested_top",
        any it_stays,
        any the_rest_stays_apart,
        any what_is_written_around_is_out_of_bounds,
        any what_is_read_around_may_be_written,
        any what_fails_has_not_happened,
        any its_objects_are_there,
        any one_in_another,
        any savepoints_inside_and_around,
        any a_panic_dooms,
        any others_see_it_at_once,
        any another_transaction_of_the_thread,
    )
}

fn it_stays<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    ok(tx.nested_top(|tx| put(tx, b, 2)));
    ok(tx.abort());
    assert_eq!(values(&engine, &[a, b]), [0, 2]);
}

fn the_rest_stays_apart<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b, c] = numbers(&engine, 3)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    for n in 2..20 {
        assert_eq!(ok(tx.nested_top(|tx| put(tx, b, n).map(|()| n))), n);
    }
    assert_eq!((get(&tx, a), get(&tx, b)), (1, 19));
    ok(put(&mut tx, a, 3));
    ok(put(&mut tx, c, 4));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b, c]), [3, 19, 4]);
}

fn what_is_written_around_is_out_of_bounds<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let new = ok(tx.alloc(&7u64));
    let refused = [
        err(tx.nested_top(|tx| put(tx, a, 2))),
        err(tx.nested_top(|tx| tx.read(a).map(|_| ()))),
        err(tx.nested_top(|tx| tx.free(a))),
        err(tx.nested_top(|tx| tx.read(new).map(|_| ()))),
        err(tx.nested_top(|tx| tx.nested_top(|tx| put(tx, a, 2)))),
        err(tx.nested_top(|tx| put(tx, b, 1).and_then(|()| put(tx, a, 2)))),
    ];
    for e in refused {
        assert!(matches!(e, Error::OuterWrites { .. }), "{e}");
    }
    // It goes on.
    ok(put(&mut tx, a, 5));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b, new]), [5, 0, 7]);
}

fn what_is_read_around_may_be_written<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    assert_eq!((get(&tx, a), get(&tx, b)), (0, 0));
    ok(tx.nested_top(|tx| put(tx, a, 1)));
    // Read inside, too, before it is written there.
    ok(tx.nested_top(|tx| {
        let now = get(tx, a);
        put(tx, a, now + 1)
    }));
    err(tx.nested_top(|tx| {
        put(tx, a, 9)?;
        Err::<(), _>(tx.refuse("no"))
    }));
    ok(tx.nested_top(|tx| tx.nested_top(|tx| put(tx, a, 3))));
    assert_eq!(get(&tx, a), 3);
    let next = get(&tx, a) + 1;
    ok(put(&mut tx, b, next));
    ok(put(&mut tx, a, 5));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b]), [5, 4]);
    // No lock is held any longer.
    std::thread::scope(|scope| {
        let other = || {
            let mut tx = begin(&engine);
            put(&mut tx, a, 6).and_then(|()| put(&mut tx, b, 6)).and_then(|()| tx.commit())
        };
        assert!(matches!(scope.spawn(other).join(), Ok(Ok(()))));
    });
}

fn what_fails_has_not_happened<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let refused = err(tx.nested_top(|tx| {
        put(tx, b, 2)?;
        tx.alloc(&3u64)?;
        Err::<(), _>(tx.refuse("no"))
    }));
    assert!(matches!(refused, Error::Aborted { .. }), "{refused}");
    // An error that is ignored inside.
    let doomed = err(tx.nested_top(|tx| {
        put(tx, b, 2)?;
        let _ = tx.refuse("no");
        Ok(())
    }));
    assert!(matches!(doomed, Error::Doomed { .. }), "{doomed}");
    assert_eq!(get(&tx, b), 0);
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b]), [1, 0]);
}

fn its_objects_are_there<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let a = numbers(&engine, 1)[0];
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let new = ok(tx.nested_top(|tx| tx.alloc(&7u64)));
    assert_eq!(get(&tx, new), 7);
    ok(put(&mut tx, new, 8));
    ok(tx.abort());
    assert_eq!(values(&engine, &[a, new]), [0, 7]);
    let mut tx = begin(&engine);
    ok(tx.nested_top(|tx| tx.free(new)));
    drop(tx);
    assert_bad(begin(&engine).read(new));
}

fn one_in_another<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b, c] = numbers(&engine, 3)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    err(tx.nested_top(|tx| {
        put(tx, b, 1)?;
        tx.nested_top(|tx| put(tx, c, 1))?;
        assert_eq!(get(tx, b), 1);
        Err::<(), _>(tx.refuse("no"))
    }));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b, c]), [1, 0, 1]);
}

fn savepoints_inside_and_around<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop + Savepoints,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let around = ok(tx.savepoint());
    ok(put(&mut tx, a, 2));
    ok(tx.nested_top(|tx| {
        put(tx, b, 1)?;
        let inside = tx.savepoint()?;
        put(tx, b, 2)?;
        tx.rollback_to(inside)
    }));
    let gone = err(tx.nested_top(|tx| tx.rollback_to(around)));
    assert!(matches!(gone, Error::NoSavepoint), "{gone}");
    ok(tx.rollback_to(around));
    assert_eq!((get(&tx, a), get(&tx, b)), (1, 1));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b]), [1, 1]);
}

fn a_panic_dooms<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        tx.nested_top(|tx| -> Result<()> {
            put(tx, b, 1)?;
            std::panic::resume_unwind(Box::new("on purpose"))
        })
    }));
    assert!(panicked.is_err());
    assert_doomed(tx);
    assert_eq!(values(&engine, &[a, b]), [0, 0]);
}

/// Waiting for what is held around would be for ever.
fn another_transaction_of_the_thread<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    if s.concurrency() != Concurrency::Locks {
        return; // it meets none
    }
    let engine = s.fresh();
    let [a, b, c] = numbers(&engine, 3)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    assert_eq!(get(&tx, a), 0);
    ok(put(&mut tx, b, 1));
    ok(tx.nested_top(|tx| {
        assert_eq!(get(tx, c), 0);
        for number in [a, b, c] {
            let own = err(put(&mut begin(&engine), number, 5));
            assert!(matches!(own, Error::OwnConflict { .. }), "{own}");
        }
        Ok(())
    }));
    ok(tx.commit());
}

fn others_see_it_at_once<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: NestedTop,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    std::thread::scope(|scope| {
        let mut tx = begin(&engine);
        ok(put(&mut tx, a, 1));
        ok(tx.nested_top(|tx| put(tx, b, 2)));
        assert!(matches!(scope.spawn(|| begin(&engine).read(b).copied().ok()).join(), Ok(Some(2))));
        let other = || {
            let mut tx = begin(&engine);
            put(&mut tx, b, 3).and_then(|()| tx.commit())
        };
        assert!(matches!(scope.spawn(other).join(), Ok(Ok(()))));
        ok(tx.abort());
    });
    assert_eq!(values(&engine, &[a, b]), [0, 3]);
}
