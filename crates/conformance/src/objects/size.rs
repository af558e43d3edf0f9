//! Large objects, and many of them.

use pmem::PPtr;
use tx::{Transaction, Typed};

use super::plain::plain_checks;
use super::subject::{ROOM, Subject};
use super::support::{begin, ok, run};
use crate::check::Check;
use crate::rng::Rng;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(group, any large_objects, rollback large_objects_roll_back, any many_objects, rollback many_objects_roll_back)
}

const MIB: usize = 1 << 20;

fn pattern(seed: u64) -> Vec<u8> {
    let mut rng = Rng::seeded(seed);
    (0..MIB / 8).flat_map(|_| rng.draw().to_le_bytes()).collect()
}

fn large_objects<S: Subject>(s: &S) {
    let engine = s.fresh();
    let patterns: Vec<_> = (0..3).map(pattern).collect();
    let objects: Vec<PPtr<u8>> = run(&engine, |tx| patterns.iter().map(|pattern| tx.alloc_slice(pattern)).collect());
    for round in 0..3 {
        run(&engine, |tx| {
            for (i, &object) in objects.iter().enumerate() {
                assert!(tx.bytes(object, MIB as u64)? == patterns[(i + round) % 3], "round {round}, object {i}");
            }
            for (i, &object) in objects.iter().enumerate() {
                tx.bytes_mut(object, MIB as u64)?.copy_from_slice(&patterns[(i + round + 1) % 3]);
            }
            Ok(())
        });
    }
    run(&engine, |tx| objects.iter().try_for_each(|&object| tx.free(object)));
}

fn large_objects_roll_back<S: Subject>(s: &S) {
    let engine = s.fresh();
    let (before, after) = (pattern(1), pattern(2));
    let object = run(&engine, |tx| tx.alloc_slice(&before));
    let mut tx = begin(&engine);
    ok(tx.bytes_mut(object, MIB as u64)).copy_from_slice(&after);
    let second = ok(tx.alloc_slice(&after));
    assert!(ok(tx.bytes(second, MIB as u64)) == after);
    ok(tx.abort());
    assert!(run(&engine, |tx| Ok(tx.bytes(object, MIB as u64)? == before)), "not rolled back");
}

const MANY: u64 = 10_000;
const _: () = assert!(MANY * 1024 < ROOM);

#[track_caller]
fn assert_all<S: Subject>(engine: &S::Engine, objects: &[PPtr<[u64; 3]>], expected: impl Fn(u64) -> [u64; 3]) {
    run(engine, |tx| {
        for (i, &object) in objects.iter().enumerate() {
            assert_eq!(*tx.read(object)?, expected(i as u64), "object {i}");
        }
        Ok(())
    });
}

fn many_objects<S: Subject>(s: &S) {
    let engine = s.fresh();
    let objects: Vec<_> = run(&engine, |tx| (0..MANY).map(|i| tx.alloc(&[i, 0, !i])).collect());
    assert_all::<S>(&engine, &objects, |i| [i, 0, !i]);
    run(&engine, |tx| objects.iter().try_for_each(|&object| tx.write(object).map(|value| value[1] = value[0] + 1)));
    assert_all::<S>(&engine, &objects, |i| [i, i + 1, !i]);
    run(&engine, |tx| objects.iter().try_for_each(|&object| tx.free(object)));
}

fn many_objects_roll_back<S: Subject>(s: &S) {
    let engine = s.fresh();
    let objects: Vec<_> = run(&engine, |tx| (0..MANY).map(|i| tx.alloc(&[i, 0, !i])).collect());
    let mut tx = begin(&engine);
    for (i, &object) in objects.iter().enumerate() {
        if i % 2 == 0 { ok(tx.write(object))[2] = 5 } else { ok(tx.free(object)) }
    }
    ok(tx.abort());
    assert_all::<S>(&engine, &objects, |i| [i, 0, !i]);
}
