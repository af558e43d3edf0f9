//! The reference engine has all that is asked for.

use conformance::{Concurrency, Subject};
use tx::{Engine, Error, Isolation, Reference, Result, Transaction, Typed};

struct Plain;

impl Subject for Plain {
    type Engine = Reference;

    fn fresh(&self) -> Reference {
        Reference::with_capacity(2 * conformance::ROOM)
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency::Versions
    }

    fn schedules(&self) -> usize {
        2000
    }
}

conformance::engine!(suite, Plain);
conformance::parts!(parts, Plain);

#[test]
fn a_forgotten_transaction_shows() -> Result<()> {
    let engine = Reference::new();
    let number = engine.transact(Isolation::Strict, |tx| tx.alloc(&1u64))?;
    let mut tx = engine.begin(Isolation::Strict)?;
    *tx.write(number)? = 2;
    assert_eq!(engine.active(), 1);
    std::mem::forget(tx);
    assert_eq!(engine.active(), 1);
    assert_eq!(engine.transact(Isolation::Strict, |tx| tx.read(number).copied())?, 1);
    assert_eq!(engine.active(), 1);
    Ok(())
}

#[test]
fn space_is_kept_as_long_as_somebody_sees_it() -> Result<()> {
    let engine = Reference::new();
    let object = engine.transact(Isolation::Strict, |tx| tx.alloc_slice(&[7; 100]))?;
    assert_eq!(engine.used(), 112);
    let reader = engine.begin(Isolation::Snapshot)?;
    engine.transact(Isolation::Strict, |tx| tx.free(object))?;
    let later = engine.begin(Isolation::Snapshot)?;
    assert_eq!(reader.bytes(object, 100)?, [7; 100]);
    assert!(later.bytes(object, 100).is_err());
    assert_eq!(engine.used(), 112);
    drop(reader);
    assert_eq!(engine.used(), 0);
    Ok(())
}

#[test]
fn capacity_is_a_limit() -> Result<()> {
    let engine = Reference::with_capacity(1008);
    let first = engine.transact(Isolation::Strict, |tx| tx.alloc_bytes(900, 8))?;
    let full = engine.transact(Isolation::Strict, |tx| tx.alloc_bytes(200, 8));
    assert!(matches!(full, Err(Error::Pool(pmem::Error::HeapFull { bytes: 200 }))), "{full:?}");
    engine.transact(Isolation::Strict, |tx| tx.free(first))?;
    engine.transact(Isolation::Strict, |tx| tx.alloc_bytes(1000, 8))?;
    Ok(())
}

/// An old snapshot sees neither objects nor changes that came later, and cannot change what was changed since.
#[test]
fn a_snapshot_is_of_one_moment() -> Result<()> {
    let engine = Reference::new();
    let [first, second] =
        engine.transact(Isolation::Strict, |tx| -> Result<_> { Ok([tx.alloc(&1u64)?, tx.alloc(&2u64)?]) })?;
    let old = engine.begin(Isolation::Snapshot)?;
    let mut writer = engine.begin(Isolation::Snapshot)?;
    let newer = std::thread::scope(|scope| {
        let change = || {
            engine.transact(Isolation::Strict, |tx| -> Result<_> {
                *tx.write(first)? = 10;
                *tx.write(second)? = 20;
                tx.alloc(&3u64)
            })
        };
        scope.spawn(change).join().expect("no panic")
    })?;
    assert_eq!((*old.read(first)?, *old.read(second)?), (1, 2));
    assert!(matches!(old.read(newer), Err(Error::Conflict { .. })));
    *writer.write(first)? = 100;
    assert!(matches!(writer.commit(), Err(Error::Conflict { .. })));
    assert_eq!(engine.transact(Isolation::Strict, |tx| tx.read(first).copied())?, 10);
    Ok(())
}
