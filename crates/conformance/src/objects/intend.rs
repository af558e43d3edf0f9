//! An intent changes nothing but costs.

use pmem::PPtr;
use tx::{Range, ToRange, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{assert_bad, assert_doomed, begin, numbers, ok, run, set, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(group, any then_written, any then_not, rollback then_aborted, any checked)
}

fn then_written<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 3);
    let object = run(&engine, |tx| tx.alloc_slice(&[7; 200]));
    let at = |from: u64, len| Range::new(PPtr::new(object.tag(), object.offset() + from), len);
    run(&engine, |tx| {
        // Several ranges of one object, one twice, and objects that are not written in the end.
        tx.intend(&[numbers[0].range(), at(10, 20), numbers[1].range(), at(100, 1), at(10, 20), numbers[2].range()])?;
        tx.intend(&[])?;
        *tx.write(numbers[0])? = 1;
        tx.bytes_mut(at(10, 20).at, 20)?.fill(2);
        tx.bytes_mut(at(150, 50).at, 50)?.fill(3); // not declared
        *tx.write(numbers[1])? = 4;
        tx.intend(&[numbers[0].range()])?; // later than the write
        *tx.write(numbers[0])? += 4;
        Ok(())
    });
    assert_eq!(values(&engine, &numbers), [5, 4, 0]);
    let expected = [vec![7; 10], vec![2; 20], vec![7; 120], vec![3; 50]].concat();
    assert_eq!(run(&engine, |tx| tx.bytes(object, 200).map(<[u8]>::to_vec)), expected);
}

fn then_not<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 2);
    set(&engine, &numbers, 7);
    run(&engine, |tx| tx.intend(&numbers.iter().map(|number| number.range()).collect::<Vec<_>>()));
    assert_eq!(values(&engine, &numbers), [7, 7]);
    set(&engine, &numbers, 8);
    assert_eq!(values(&engine, &numbers), [8, 8]);
}

fn then_aborted<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 2);
    set(&engine, &numbers, 7);
    let mut tx = begin(&engine);
    ok(tx.intend(&[numbers[0].range(), numbers[1].range()]));
    *ok(tx.write(numbers[0])) = 1;
    ok(tx.abort());
    assert_eq!(values(&engine, &numbers), [7, 7]);
    set(&engine, &numbers, 8);
}

fn checked<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    let room = run(&engine, |tx| tx.room(number.cast()));
    for bad in [Range::new(PPtr::NULL, 8), Range::new(number.cast(), room + 1)] {
        let mut tx = begin(&engine);
        assert_bad(tx.intend(&[number.range(), bad]));
        assert_doomed(tx);
    }
}
