//! Which transactions see which changes, and when.

use pmem::PPtr;
use tx::{Error, Transaction, Typed};

use super::plain::plain_checks;
use super::stage::join;
use super::subject::Subject;
use super::support::{begin, numbers, ok, run, set, value, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(
        group,
        any own_changes,
        any after_the_commit,
        any not_before_the_commit,
        any parts_of_objects,
        any what_was_handed_out_stays,
    )
}

fn own_changes<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 2);
    let mut tx = begin(&engine);
    *ok(tx.write(numbers[0])) = 5;
    assert_eq!(*ok(tx.read(numbers[0])), 5);
    *ok(tx.write(numbers[0])) += 1;
    ok(tx.bytes_mut(numbers[1].cast(), 1))[0] = 9;
    assert_eq!((*ok(tx.read(numbers[0])), *ok(tx.read(numbers[1]))), (6, 9));
    let new = ok(tx.alloc(&7u64));
    assert_eq!(*ok(tx.read(new)), 7);
    ok(tx.commit());
    assert_eq!(values(&engine, &[numbers[0], numbers[1], new]), [6, 9, 7]);
}

fn after_the_commit<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    for round in 1..20 {
        set(&engine, &[number], round);
        assert_eq!(value(&engine, number), round, "the next transaction of the thread");
        let seen = std::thread::scope(|scope| join(scope.spawn(|| value(&engine, number))));
        assert_eq!(seen, round, "another thread's");
    }
}

fn not_before_the_commit<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    set(&engine, &[number], 1);
    let mut tx = begin(&engine);
    *ok(tx.write(number)) = 2;
    *ok(tx.write(number)) = 3;
    let seen = std::thread::scope(|scope| {
        join(scope.spawn(|| {
            let tx = begin(&engine);
            tx.read(number).copied()
        }))
    });
    assert!(matches!(seen, Ok(1) | Err(Error::Conflict { .. })), "seen before the commit: {seen:?}");
    ok(tx.commit());
    assert_eq!(value(&engine, number), 3);
}

/// A change of some bytes is a change of these bytes.
fn parts_of_objects<S: Subject>(s: &S) {
    const LEN: u64 = 1000;
    let engine = s.fresh();
    let object = run(&engine, |tx| tx.alloc_slice(&[0xee; LEN as usize]));
    let mut model = vec![0xee; LEN as usize];
    for (round, (at, len)) in
        [(0, 1), (999, 1), (3, 5), (60, 10), (128, 64), (0, 1000), (500, 0)].into_iter().enumerate()
    {
        let part = PPtr::<u8>::new(object.tag(), object.offset() + at);
        run(&engine, |tx| tx.bytes_mut(part, len).map(|bytes| bytes.fill(round as u8)));
        model[at as usize..][..len as usize].fill(round as u8);
        run(&engine, |tx| {
            assert_eq!(tx.bytes(object, LEN)?, model);
            assert_eq!(tx.bytes(part, len)?, &model[at as usize..][..len as usize]);
            Ok(())
        });
    }
}

/// References stay valid and their bytes the same, whatever else is read or committed by others.
fn what_was_handed_out_stays<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 300);
    set(&engine, &numbers, 1);
    let tx = begin(&engine);
    let handed: Vec<&u64> = numbers.iter().map(|&number| ok(tx.read(number))).collect();
    std::thread::scope(|scope| {
        join(scope.spawn(|| {
            for &number in &numbers {
                let mut tx = begin(&engine);
                if tx.write(number).map(|value| *value = 2).is_ok() {
                    // Refused or not: the reader must not notice.
                    let _ = tx.commit();
                }
            }
        }));
    });
    assert!(handed.iter().all(|&&value| value == 1), "bytes changed under a reference");
}
