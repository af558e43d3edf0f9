//! An error dooms the transaction, even if the caller ignores it.

use pmem::PPtr;
use tx::{Doom, Engine, Error, Result, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{TxOf, assert_doomed, begin, err, numbers, ok, set, value};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(
        group,
        rollback every_error_dooms,
        rollback ignored_in_transact,
        any the_first_is_kept,
        rollback the_callers_own,
        rollback refusal,
        rollback conflict_in_disguise,
    )
}

/// What fails, and its name.
type Failing<S> = (&'static str, for<'e> fn(&mut TxOf<'e, S>, PPtr<u64>) -> Result<()>);

fn failing<S: Subject>() -> [Failing<S>; 8] {
    [
        ("read", |tx, _| tx.read(PPtr::<u64>::NULL).map(drop)),
        ("write", |tx, _| tx.write(PPtr::<u64>::NULL).map(drop)),
        ("many", |tx, number| tx.write_many([number, number]).map(drop)),
        ("intend", |tx, _| tx.intend(&[tx::Range::new(PPtr::NULL, 8)])),
        ("alloc", |tx, _| tx.alloc_bytes(u64::MAX, 8).map(drop)),
        ("free", |tx, _| tx.free(PPtr::<u64>::NULL)),
        ("room", |tx, _| tx.room(PPtr::NULL).map(drop)),
        ("root", |tx, number| {
            tx.set_root(number)?;
            tx.root::<[u8; 3]>().map(drop)
        }),
    ]
}

fn every_error_dooms<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    set(&engine, &[number], 7);
    for (name, fail) in failing::<S>() {
        let mut tx = begin(&engine);
        assert!(tx.doom().is_none());
        *ok(tx.write(number)) = 8;
        err(fail(&mut tx, number));
        assert_doomed(tx);
        assert_eq!(value(&engine, number), 7, "{name}: a doomed transaction left its change");
    }
}

fn ignored_in_transact<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    set(&engine, &[number], 7);
    for (name, fail) in failing::<S>() {
        let mut runs = 0;
        let result = engine.transact(engine.strongest(), |tx| {
            runs += 1;
            *tx.write(number)? = 8;
            let _ignored = fail(tx, number);
            Ok::<_, Error>(())
        });
        assert!(matches!(result, Err(Error::Doomed { .. })), "{name}: {result:?}");
        assert_eq!((runs, value(&engine, number)), (1, 7), "{name}");
    }
}

/// The first is the cause of the others.
fn the_first_is_kept<S: Subject>(s: &S) {
    let engine = s.fresh();
    let mut tx = begin(&engine);
    let first = err(tx.read(PPtr::<u64>::NULL)).to_string();
    let _second = tx.alloc_bytes(u64::MAX, 8);
    tx.refuse("third");
    assert_eq!(tx.doom().map(|doom| doom.first).as_ref(), Some(&first));
    match tx.commit() {
        Err(Error::Doomed { first: told }) => assert_eq!(told, first),
        other => panic!("should have been doomed: {other:?}"),
    }
}

/// An error type as a program has it.
#[derive(Debug)]
enum Mine {
    Broke(u32),
    Engine(Error),
}

impl From<Error> for Mine {
    fn from(e: Error) -> Self {
        Self::Engine(e)
    }
}

fn the_callers_own<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    set(&engine, &[number], 7);
    let mut runs = 0;
    let result = engine.transact(engine.strongest(), |tx| {
        runs += 1;
        *tx.write(number)? = 8;
        if *tx.read(number)? < 100 { Err(Mine::Broke(5)) } else { Ok(()) }
    });
    assert!(matches!(result, Err(Mine::Broke(5))), "{result:?}");
    assert_eq!((runs, value(&engine, number)), (1, 7));
    let result = engine.transact(engine.strongest(), |tx| {
        tx.read(PPtr::<u64>::NULL)?;
        Ok::<_, Mine>(())
    });
    assert!(matches!(result, Err(Mine::Engine(Error::Pool(pmem::Error::BadPointer { .. })))), "{result:?}");
}

fn refusal<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    set(&engine, &[number], 7);
    for ignored in [false, true] {
        let mut runs = 0;
        let result = engine.transact(engine.strongest(), |tx| -> Result<()> {
            runs += 1;
            *tx.write(number)? = 8;
            let refusal = tx.refuse("no funds");
            if ignored { Ok(()) } else { Err(refusal) }
        });
        match (ignored, &result) {
            (false, Err(Error::Aborted { reason })) => assert_eq!(reason, "no funds"),
            (true, Err(Error::Doomed { first })) => assert!(first.contains("no funds"), "{first}"),
            _ => panic!("ignored: {ignored}, {result:?}"),
        }
        assert_eq!((runs, value(&engine, number)), (1, 7));
    }
}

/// Whatever the caller makes of a conflict, or if nothing: the transaction is run again.
fn conflict_in_disguise<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    for ignored in [false, true] {
        set(&engine, &[number], 7);
        let mut runs = 0;
        let result = engine.transact(engine.strongest(), |tx| {
            runs += 1;
            *tx.write(number)? += 1;
            if runs < 4 {
                tx.set_doom(Doom::from(&Error::Conflict { offset: number.offset() }));
                return if ignored { Ok(0) } else { Err(Mine::Broke(1)) };
            }
            Ok(runs)
        });
        assert!(matches!(result, Ok(4)), "ignored: {ignored}, {result:?}");
        assert_eq!(value(&engine, number), 8);
    }
}
