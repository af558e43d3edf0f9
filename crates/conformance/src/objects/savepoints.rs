//! Parts of a transaction that are undone alone.

use pmem::PPtr;
use tx::{Error, Result, Savepoints, ToRange, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::{Concurrency, Subject};
use super::support::{TxOf, assert_bad, assert_doomed, begin, err, get, numbers, ok, put, run, value, values};
use crate::check::Check;
use crate::rng::Rng;

pub(super) fn checks<S: Subject>() -> Vec<Check<S>>
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    plain_checks!(
        "savepoints",
        any back_to_what_was_written,
        any back_to_what_was_there,
        any allocations_go,
        any frees_come_back,
        any new_objects_are_as_then,
        any a_savepoint_serves_again,
        any those_behind_are_gone,
        any of_another_transaction,
        any errors_are_lifted,
        any conflicts_are_lifted_a_few_times,
        any what_was_used_stays_locked,
        any what_was_seen_stays_seen,
        any parts_of_objects,
        any any_order,
    )
}

fn back_to_what_was_written<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let savepoint = ok(tx.savepoint());
    ok(put(&mut tx, a, 2));
    ok(put(&mut tx, b, 2));
    ok(put(&mut tx, a, 3));
    assert_eq!((get(&tx, a), get(&tx, b)), (3, 2));
    ok(tx.rollback_to(savepoint));
    assert_eq!((get(&tx, a), get(&tx, b)), (1, 0));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b]), [1, 0]);
}

fn back_to_what_was_there<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    let first = ok(tx.savepoint());
    ok(put(&mut tx, a, 1));
    ok(tx.rollback_to(first));
    assert_eq!(get(&tx, a), 0);
    ok(put(&mut tx, b, 5));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b]), [0, 5]);
    // All of it gone, it commits nothing.
    let mut tx = begin(&engine);
    let first = ok(tx.savepoint());
    ok(put(&mut tx, a, 1));
    ok(tx.rollback_to(first));
    ok(tx.commit());
    assert_eq!(values(&engine, &[a, b]), [0, 5]);
}

fn allocations_go<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    for commits in [true, false] {
        let mut tx = begin(&engine);
        let kept = ok(tx.alloc(&7u64));
        let savepoint = ok(tx.savepoint());
        let gone = ok(tx.alloc(&8u64));
        ok(put(&mut tx, kept, 9));
        ok(tx.free(kept));
        ok(tx.rollback_to(savepoint));
        assert_eq!(get(&tx, kept), 7);
        let another = ok(tx.alloc(&10u64));
        match commits {
            true => ok(tx.commit()),
            false => ok(tx.abort()),
        }
        let tx = begin(&engine);
        if commits {
            assert_eq!((get(&tx, kept), get(&tx, another)), (7, 10));
            assert_bad(tx.read(gone));
        } else {
            assert_bad(tx.read(kept));
        }
    }
    let mut tx = begin(&engine);
    let savepoint = ok(tx.savepoint());
    let gone = ok(tx.alloc(&8u64));
    ok(tx.rollback_to(savepoint));
    err(tx.read(gone));
    assert_doomed(tx);
}

fn frees_come_back<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let savepoint = ok(tx.savepoint());
    ok(tx.free(a));
    ok(tx.free(b));
    ok(tx.rollback_to(savepoint));
    assert_eq!((get(&tx, a), get(&tx, b)), (1, 0));
    ok(put(&mut tx, b, 2));
    ok(tx.free(a));
    ok(tx.commit());
    assert_eq!(value(&engine, b), 2);
    assert_bad(begin(&engine).read(a));
}

/// They were written where they are, before, and may not be behind it.
fn new_objects_are_as_then<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    for len in [8_u64, 100, 5000] {
        let mut tx = begin(&engine);
        let new = ok(tx.alloc_bytes(len, 8));
        ok(tx.bytes_mut(new, len)).fill(1);
        let savepoint = ok(tx.savepoint());
        ok(tx.bytes_mut(new, len)).fill(2);
        ok(tx.rollback_to(savepoint));
        assert!(ok(tx.bytes(new, len)).iter().all(|&byte| byte == 1));
        ok(tx.put_bytes(new, &vec![3; len as usize / 2]));
        ok(tx.commit());
        let tx = begin(&engine);
        let (first, rest) = ok(tx.bytes(new, len)).split_at(len as usize / 2);
        assert!(first.iter().all(|&byte| byte == 3) && rest.iter().all(|&byte| byte == 1), "{len} bytes");
    }
}

fn a_savepoint_serves_again<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let a = numbers(&engine, 1)[0];
    let mut tx = begin(&engine);
    let savepoint = ok(tx.savepoint());
    for n in 1..50 {
        ok(put(&mut tx, a, n));
        ok(tx.alloc(&n).map(|_| ()));
        ok(tx.rollback_to(savepoint));
        assert_eq!(get(&tx, a), 0);
    }
    ok(put(&mut tx, a, 50));
    ok(tx.commit());
    assert_eq!(value(&engine, a), 50);
}

fn those_behind_are_gone<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let a = numbers(&engine, 1)[0];
    let mut tx = begin(&engine);
    let first = ok(tx.savepoint());
    ok(put(&mut tx, a, 1));
    let second = ok(tx.savepoint());
    ok(put(&mut tx, a, 2));
    ok(tx.rollback_to(second));
    assert_eq!(get(&tx, a), 1);
    ok(tx.rollback_to(first));
    assert_eq!(get(&tx, a), 0);
    let gone = err(tx.rollback_to(second));
    assert!(matches!(gone, Error::NoSavepoint), "{gone}");
    assert_doomed(tx);
}

fn of_another_transaction<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let old = ok(begin(&engine).savepoint());
    let mut tx = begin(&engine);
    ok(tx.savepoint());
    let gone = err(tx.rollback_to(old));
    assert!(matches!(gone, Error::NoSavepoint), "{gone}");
    assert_doomed(tx);
}

fn errors_are_lifted<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let a = numbers(&engine, 1)[0];
    let mut tx = begin(&engine);
    ok(put(&mut tx, a, 1));
    let savepoint = ok(tx.savepoint());
    ok(put(&mut tx, a, 2));
    let _ = tx.refuse("not so");
    err(tx.savepoint());
    ok(tx.rollback_to(savepoint));
    assert_bad(tx.read(PPtr::<u64>::new(a.tag(), 1 << 30)));
    ok(tx.rollback_to(savepoint));
    assert_eq!(get(&tx, a), 1);
    ok(tx.commit());
    assert_eq!(value(&engine, a), 1);
}

/// Else two transactions could each hold what the other one tries to get, for ever.
fn conflicts_are_lifted_a_few_times<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    if s.concurrency() != Concurrency::Locks {
        return; // it meets none before its commit
    }
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    std::thread::scope(|scope| {
        let mut tx = begin(&engine);
        ok(put(&mut tx, a, 1));
        let other = || {
            let mut tx = begin(&engine);
            ok(put(&mut tx, b, 2));
            let savepoint = ok(tx.savepoint());
            let mut lifted = 0;
            loop {
                let conflict = err(put(&mut tx, a, 2));
                assert!(matches!(conflict, Error::Conflict { .. }), "{conflict}");
                match tx.rollback_to(savepoint) {
                    Ok(()) => {
                        lifted += 1;
                        assert!(lifted <= <TxOf<'_, S> as Savepoints>::LIFTED, "lifted for ever");
                    }
                    Err(e) => {
                        assert!(matches!(e, Error::Conflict { .. }), "{e}");
                        assert_eq!(lifted, <TxOf<'_, S> as Savepoints>::LIFTED);
                        break assert_doomed(tx);
                    }
                }
                assert_eq!(get(&tx, b), 2);
            }
        };
        assert!(scope.spawn(other).join().is_ok());
        ok(tx.commit());
    });
    assert_eq!(values(&engine, &[a, b]), [1, 0]);
}

fn what_was_used_stays_locked<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    if s.concurrency() != Concurrency::Locks {
        return;
    }
    let engine = s.fresh();
    let a = numbers(&engine, 1)[0];
    std::thread::scope(|scope| {
        let mut tx = begin(&engine);
        let savepoint = ok(tx.savepoint());
        ok(put(&mut tx, a, 1));
        ok(tx.rollback_to(savepoint));
        let other = || put(&mut begin(&engine), a, 2).map_err(|e| matches!(e, Error::Conflict { .. }));
        assert!(matches!(scope.spawn(other).join(), Ok(Err(true))));
        ok(tx.commit());
        let other = || put(&mut begin(&engine), a, 2).is_ok();
        assert!(matches!(scope.spawn(other).join(), Ok(true)), "locked for ever");
    });
}

/// What was seen of an object that was written and gone back from counts as read: two transactions that each go by what the other changes do not both commit.
fn what_was_seen_stays_seen<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let [a, b] = numbers(&engine, 2)[..] else { unreachable!() };
    for looks in [
        |tx: &mut TxOf<'_, S>, a: PPtr<u64>| tx.write(a).map(|value| *value),
        |tx: &mut TxOf<'_, S>, a: PPtr<u64>| tx.intend(&[a.range()]).and_then(|()| tx.read(a).copied()),
    ] {
        run(&engine, |tx| put(tx, a, 0).and_then(|()| put(tx, b, 0)));
        std::thread::scope(|scope| {
            let mut tx = begin(&engine);
            let savepoint = ok(tx.savepoint());
            assert_eq!(ok(looks(&mut tx, a)), 0);
            ok(tx.rollback_to(savepoint));
            let other = || {
                let mut tx = begin(&engine);
                tx.read(b).copied().and_then(|b| put(&mut tx, a, b + 1)).and_then(|()| tx.commit()).is_ok()
            };
            let is_changed = scope.spawn(other).join().unwrap_or(false);
            let is_committed = put(&mut tx, b, 1).and_then(|()| tx.commit()).is_ok();
            assert!(!(is_changed && is_committed), "neither has seen what the other did");
        });
    }
}

fn parts_of_objects<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    let engine = s.fresh();
    let object = run(&engine, |tx| tx.alloc_bytes(256, 64));
    let at = |offset: u64| PPtr::<u8>::new(object.tag(), object.offset() + offset);
    let mut tx = begin(&engine);
    ok(tx.bytes_mut(at(0), 64)).fill(1);
    ok(tx.bytes_mut(at(32), 64)).fill(2);
    let savepoint = ok(tx.savepoint());
    ok(tx.bytes_mut(at(16), 32)).fill(3);
    ok(tx.put_bytes(at(90), &[4; 20]));
    assert_eq!(ok(tx.bytes(at(15), 2)), [1, 3]);
    assert_eq!(ok(tx.rest(at(88)))[..24], [[2; 2].as_slice(), &[4; 20], &[0; 2]].concat());
    ok(tx.rollback_to(savepoint));
    let mut expected = vec![0; 256];
    expected[..32].fill(1);
    expected[32..96].fill(2);
    assert_eq!(ok(tx.bytes(object, 256)), expected);
    ok(tx.bytes_mut(at(0), 8)).fill(9);
    expected[..8].fill(9);
    ok(tx.commit());
    assert_eq!(ok(begin(&engine).bytes(object, 256)), expected);
}

/// What some objects hold, and whether they are there.
type Model = Vec<Option<Vec<u8>>>;

/// Drawn: writes, allocations, frees, savepoints and ways back, against a plain list.
fn any_order<S: Subject>(s: &S)
where
    for<'e> TxOf<'e, S>: Savepoints,
{
    const LEN: u64 = 96;
    let engine = s.fresh();
    let mut rng = Rng::seeded(71);
    let mut objects: Vec<PPtr<u8>> =
        run(&engine, |tx| (0..4).map(|_| tx.alloc_bytes(LEN, 8)).collect::<Result<Vec<_>>>());
    let mut committed: Model = vec![Some(vec![0; LEN as usize]); 4];
    for round in 0..60 {
        let mut tx = begin(&engine);
        let (mut model, mut saved) = (committed.clone(), Vec::new());
        for _ in 0..40 {
            let at = rng.below(objects.len() as u64) as usize;
            let (from, byte) = (rng.below(LEN), rng.below(256) as u8);
            let len = 1 + rng.below(LEN - from);
            let place = PPtr::<u8>::new(objects[at].tag(), objects[at].offset() + from);
            match (rng.below(12), &mut model[at]) {
                (0..=4, Some(bytes)) => {
                    ok(tx.bytes_mut(place, len)).fill(byte);
                    bytes[from as usize..(from + len) as usize].fill(byte);
                }
                (5, Some(bytes)) => {
                    ok(tx.put_bytes(place, &vec![byte; len as usize]));
                    bytes[from as usize..(from + len) as usize].fill(byte);
                }
                (6, Some(bytes)) => assert_eq!(ok(tx.bytes(place, len)), &bytes[from as usize..(from + len) as usize]),
                (7, there @ Some(_)) => {
                    ok(tx.free(objects[at]));
                    *there = None;
                }
                (8, _) if objects.len() < 40 => {
                    objects.push(ok(tx.alloc_bytes(LEN, 8)));
                    model.push(Some(vec![0; LEN as usize]));
                }
                (9, _) => saved.push((ok(tx.savepoint()), model.clone())),
                (10, _) if !saved.is_empty() => {
                    saved.truncate(1 + rng.below(saved.len() as u64) as usize);
                    let (savepoint, then) = &saved[saved.len() - 1];
                    ok(tx.rollback_to(*savepoint));
                    model.clone_from(then);
                    model.resize(objects.len(), None);
                }
                _ => {}
            }
        }
        if round % 4 == 3 {
            ok(tx.abort());
            committed.resize(objects.len(), None);
        } else {
            ok(tx.commit());
            committed = model;
        }
        let tx = begin(&engine);
        for (object, there) in objects.iter().zip(&committed) {
            if let Some(bytes) = there {
                assert_eq!(ok(tx.bytes(*object, LEN)), &bytes[..], "round {round}");
            }
        }
        drop(tx);
        // Those that are gone may have lent their place to others.
        let there: Vec<bool> = committed.iter().map(Option::is_some).collect();
        let mut keep = there.iter();
        objects.retain(|_| *keep.next().unwrap_or(&false));
        committed.retain(Option::is_some);
        if objects.is_empty() {
            objects = run(&engine, |tx| (0..4).map(|_| tx.alloc_bytes(LEN, 8)).collect::<Result<Vec<_>>>());
            committed = vec![Some(vec![0; LEN as usize]); 4];
        }
    }
}
