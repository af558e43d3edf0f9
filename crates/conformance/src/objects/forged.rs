//! Pointers that mean nothing: an error, never bytes of another object.

use pmem::{OFFSET_MAX, PPtr};
use tx::{Engine, Error, Range, ToRange, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{assert_bad, assert_doomed, begin, err, numbers, ok, run, try_run};
use crate::check::Check;
use crate::rng::Rng;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(
        group,
        any null,
        any of_another_pool,
        any inside_an_object,
        any over_the_end,
        any metadata,
        any at_random,
        any unaligned,
        any frees_of_what_is_none,
    )
}

/// No way to use these bytes.
#[track_caller]
fn assert_refused<E: Engine>(engine: &E, ptr: PPtr<u8>, len: u64) {
    let tx = begin(engine);
    assert_bad(tx.bytes(ptr, len));
    assert_doomed(tx);
    let mut tx = begin(engine);
    assert_bad(tx.bytes_mut(ptr, len));
    assert_doomed(tx);
    let mut tx = begin(engine);
    assert_bad(tx.put_bytes(ptr, &vec![0; len.min(1 << 21) as usize]));
    assert_doomed(tx);
    let mut tx = begin(engine);
    assert_bad(tx.bytes_mut_many(&[Range::new(ptr, len)]));
    assert_doomed(tx);
    let mut tx = begin(engine);
    assert_bad(tx.intend(&[Range::new(ptr, len)]));
    assert_doomed(tx);
}

/// No object there at all.
#[track_caller]
fn assert_nothing<E: Engine>(engine: &E, ptr: PPtr<u8>) {
    assert_refused(engine, ptr, 1);
    assert_refused(engine, ptr, 0);
    let tx = begin(engine);
    assert_bad(tx.room(ptr));
    assert_doomed(tx);
    let mut tx = begin(engine);
    assert_bad(tx.free(ptr));
    assert_doomed(tx);
}

fn null<S: Subject>(s: &S) {
    assert_nothing(&s.fresh(), PPtr::NULL);
}

fn of_another_pool<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    for flip in [1, 0x8000, number.tag()] {
        assert_nothing(&engine, PPtr::new(number.tag() ^ flip, number.offset()));
    }
    let other = s.fresh();
    let foreign = numbers(&other, 1)[0];
    if foreign.tag() != number.tag() {
        assert_nothing(&engine, foreign.cast());
    }
}

/// Any byte of an object may be pointed at.
fn inside_an_object<S: Subject>(s: &S) {
    let engine = s.fresh();
    let bytes: Vec<u8> = (0..100).collect();
    let object = run(&engine, |tx| tx.alloc_slice(&bytes));
    run(&engine, |tx| {
        for at in 0..100 {
            let inner = PPtr::<u8>::new(object.tag(), object.offset() + at);
            assert_eq!(tx.bytes(inner, 100 - at)?, &bytes[at as usize..]);
            assert_eq!(tx.bytes(inner, 0)?, []);
            assert_eq!(tx.room(inner)?, tx.room(object)? - at);
        }
        Ok(())
    });
}

fn over_the_end<S: Subject>(s: &S) {
    let engine = s.fresh();
    for len in [1, 64, 4096, 1 << 20] {
        let (object, room) = run(&engine, |tx| {
            let object = tx.alloc_bytes(len, 8)?;
            Ok((object, tx.room(object)?))
        });
        run(&engine, |tx| tx.bytes(object, room).map(drop));
        for (at, len) in [
            (0, room + 1),
            (room - 1, 2),
            (1, room),
            (0, 1 << 40),
            (0, OFFSET_MAX),
            (0, u64::MAX),
            (room - 1, u64::MAX),
            (0, u64::MAX - object.offset() + 1),
        ] {
            assert_refused(&engine, PPtr::new(object.tag(), object.offset() + at), len);
        }
    }
}

/// True for the bytes of the root cell's object, which every transaction may see.
fn is_root<E: Engine>(engine: &E, ptr: PPtr<u8>) -> bool {
    run(engine, |tx| {
        let root = tx.root_cell().cast::<u8>();
        // The cell may lie inside of an object: its first byte is the one from which most of it is seen.
        Ok((root.offset().saturating_sub(4096)..root.offset() + tx.room(root)?).contains(&ptr.offset()))
    })
}

/// Nothing of the pool's own can be come by.
fn metadata<S: Subject>(s: &S) {
    let engine = s.fresh();
    let tag = run(&engine, |tx| Ok(tx.root_cell().tag()));
    let steps = (0..64).map(|i| i * 8).chain((0..256).map(|i| i * 512)).chain((0..64).map(|i| i * 65_536));
    for offset in steps.chain([OFFSET_MAX, OFFSET_MAX - 7, OFFSET_MAX / 2]) {
        let ptr = PPtr::new(tag, offset);
        if !is_root(&engine, ptr) {
            assert_bad(try_run(&engine, |tx| tx.bytes(ptr, 1).map(drop)));
            assert_bad(try_run(&engine, |tx| tx.bytes_mut(ptr, 8).map(drop)));
        }
    }
}

/// Live objects and nothing else.
fn at_random<S: Subject>(s: &S) {
    let engine = s.fresh();
    let objects: Vec<_> = (1..40).map(|i| run(&engine, |tx| tx.alloc_bytes(i * 40, 8))).collect();
    let places = run(&engine, |tx| {
        objects.iter().map(|&o| Ok(o.offset()..o.offset() + tx.room(o)?)).collect::<tx::Result<Vec<_>>>()
    });
    let end = places.iter().map(|place| place.end).max().unwrap_or(0) + 4096;
    let mut rng = Rng::seeded(7);
    for round in 0..2000 {
        let ptr = PPtr::new(objects[0].tag(), rng.below(if round % 4 == 0 { OFFSET_MAX } else { end }));
        let inside = places.iter().any(|place| place.contains(&ptr.offset()));
        let seen = try_run(&engine, |tx| tx.bytes(ptr, 1).map(drop));
        if inside {
            ok(seen);
        } else if !is_root(&engine, ptr) {
            assert_bad(seen);
        }
    }
}

fn unaligned<S: Subject>(s: &S) {
    let engine = s.fresh();
    let object = run(&engine, |tx| tx.alloc_bytes(64, 16));
    #[track_caller]
    fn assert_unaligned<T>(result: tx::Result<T>) {
        let e = err(result);
        assert!(matches!(e, Error::Pool(pmem::Error::Unaligned { .. })), "should have been unaligned: {e}");
    }
    for at in [1, 4, 7] {
        let crooked = PPtr::<u64>::new(object.tag(), object.offset() + at);
        let tx = begin(&engine);
        assert_unaligned(tx.read(crooked));
        assert_doomed(tx);
        let mut tx = begin(&engine);
        assert_unaligned(tx.write(crooked));
        assert_doomed(tx);
        let mut tx = begin(&engine);
        assert_unaligned(tx.write_many([crooked]));
        assert_doomed(tx);
        // As bytes it is as good as any.
        let range = crooked.range();
        run(&engine, |tx| tx.bytes(range.at, range.len).map(drop));
    }
    let tx = begin(&engine);
    assert_unaligned(tx.read(PPtr::<u128>::new(object.tag(), object.offset() + 8)));
    assert_doomed(tx);
}

/// An object is freed by its first byte, and the root cell not at all.
fn frees_of_what_is_none<S: Subject>(s: &S) {
    let engine = s.fresh();
    let object = run(&engine, |tx| tx.alloc_slice(&[1; 100]));
    for at in [1, 8, 64, 99] {
        let mut tx = begin(&engine);
        assert_bad(tx.free(PPtr::<u8>::new(object.tag(), object.offset() + at)));
        assert_doomed(tx);
    }
    let mut tx = begin(&engine);
    let root = tx.root_cell();
    err(tx.free(root));
    assert_doomed(tx);
    assert_eq!(run(&engine, |tx| tx.bytes(object, 100).map(<[u8]>::to_vec)), [1; 100]);
    assert!(run(&engine, |tx| tx.root::<u64>()).is_null());
}
