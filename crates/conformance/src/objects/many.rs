//! Several objects changed together.

use pmem::PPtr;
use tx::{Error, Range, Result, ToRange, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{assert_doomed, begin, err, numbers, ok, run, values};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(group, any each_its_own, any of_any_length, any overlap)
}

/// In the order asked for, not that of addresses.
fn each_its_own<S: Subject>(s: &S) {
    let engine = s.fresh();
    let numbers = numbers(&engine, 40);
    run(&engine, |tx| {
        let [c, a, b] = tx.write_many([numbers[2], numbers[0], numbers[1]])?;
        (*a, *b, *c) = (1, 2, 3);
        std::mem::swap(a, c);
        Ok(())
    });
    assert_eq!(values(&engine, &numbers[..3]), [3, 2, 1]);
    run(&engine, |tx| -> Result<()> {
        let ranges: Vec<Range> = numbers.iter().rev().map(|number| number.range()).collect();
        for (i, bytes) in tx.bytes_mut_many(&ranges)?.into_iter().enumerate() {
            bytes[0] = i as u8;
        }
        assert!(tx.bytes_mut_many(&[])?.is_empty());
        Ok(())
    });
    assert_eq!(values(&engine, &numbers), (0..40).rev().collect::<Vec<u64>>());
}

fn of_any_length<S: Subject>(s: &S) {
    let engine = s.fresh();
    let objects: Vec<PPtr<u8>> = run(&engine, |tx| [10, 5000, 100].iter().map(|&len| tx.alloc_bytes(len, 8)).collect());
    let at = |i: usize, from: u64, len| Range::new(PPtr::new(objects[i].tag(), objects[i].offset() + from), len);
    run(&engine, |tx| {
        let lens: Vec<usize> = tx
            .bytes_mut_many(&[at(1, 4000, 1000), at(2, 50, 50), at(0, 0, 10)])?
            .into_iter()
            .enumerate()
            .map(|(i, bytes)| {
                bytes.fill(i as u8 + 1);
                bytes.len()
            })
            .collect();
        assert_eq!(lens, [1000, 50, 10]);
        Ok(())
    });
    run(&engine, |tx| {
        assert_eq!(tx.bytes(objects[0], 10)?, [3; 10]);
        assert_eq!(tx.bytes(objects[1], 5000)?, [vec![0; 4000], vec![1; 1000]].concat());
        assert_eq!(tx.bytes(objects[2], 100)?, [vec![0; 50], vec![2; 50]].concat());
        Ok(())
    });
}

/// Two ranges of one object are refused, whether their bytes meet or not.
fn overlap<S: Subject>(s: &S) {
    let engine = s.fresh();
    let object = run(&engine, |tx| tx.alloc_slice(&[7; 100]));
    let number = numbers(&engine, 1)[0];
    let at = |from: u64, len| Range::new(PPtr::new(object.tag(), object.offset() + from), len);
    for (one, other) in
        [(at(0, 100), at(0, 100)), (at(0, 10), at(5, 10)), (at(0, 10), at(90, 10)), (at(50, 1), at(0, 0))]
    {
        let mut tx = begin(&engine);
        let e = err(tx.bytes_mut_many(&[one, number.range(), other]));
        assert!(matches!(e, Error::Overlap { .. }), "should have been an overlap: {e}");
        assert_doomed(tx);
    }
    let mut tx = begin(&engine);
    let e = err(tx.write_many([number, number]));
    assert!(matches!(e, Error::Overlap { .. }), "should have been an overlap: {e}");
    assert_doomed(tx);
    assert_eq!(run(&engine, |tx| tx.bytes(object, 100).map(<[u8]>::to_vec)), [7; 100]);
    // One after the other is another matter.
    let mut tx = begin(&engine);
    ok(tx.bytes_mut(at(0, 10).at, 10)).fill(1);
    ok(tx.bytes_mut(at(5, 10).at, 10)).fill(2);
    ok(tx.commit());
}
