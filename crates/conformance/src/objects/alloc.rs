//! Objects come and go with the transactions that make and free them.

use std::ops::Range;

use pmem::PPtr;
use tx::{Error, ErrorKind, Result, Transaction, Typed};

use super::plain::plain_checks;
use super::stage::join;
use super::subject::{ROOM, Subject};
use super::support::{TxOf, assert_bad, assert_doomed, begin, err, numbers, ok, run, set, try_run, value};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(
        group,
        any zeroed,
        any aligned,
        any apart,
        any freed_in_this_transaction,
        any freed_by_an_earlier_one,
        rollback alloc_then_abort,
        rollback free_then_abort,
        any alloc_and_free_together,
        rollback free_against_write,
        any free_against_read,
        any space_comes_back,
        rollback space_comes_back_after_aborts,
        any too_much,
    )
}

fn zeroed<S: Subject>(s: &S) {
    let engine = s.fresh();
    for len in [1, 8, 100, 4096, 70_000] {
        for _ in 0..3 {
            let object = run(&engine, |tx| {
                let object = tx.alloc_bytes(len, 8)?;
                assert!(tx.bytes(object, len)?.iter().all(|&byte| byte == 0), "{len} bytes: not zero");
                Ok(object)
            });
            run(&engine, |tx| tx.bytes_mut(object, len).map(|bytes| bytes.fill(0xff)));
            run(&engine, |tx| tx.free(object));
        }
    }
}

fn aligned<S: Subject>(s: &S) {
    let engine = s.fresh();
    for align in [1, 8, 16, 64, 4096] {
        for len in [1, 24, 500] {
            let object = run(&engine, |tx| {
                let object = tx.alloc_bytes(len, align)?;
                let at = tx.bytes(object, len)?.as_ptr().addr() as u64;
                assert!(at.is_multiple_of(align), "address {at:#x} at alignment {align}");
                Ok(object)
            });
            assert!(object.offset().is_multiple_of(align), "{object:?} at alignment {align}");
        }
    }
    let wide = run(&engine, |tx| tx.alloc(&[1u128; 3]));
    assert_eq!(run(&engine, |tx| tx.read(wide).copied()), [1u128; 3]);
    for align in [0, 3, 1 << 40] {
        let mut tx = begin(&engine);
        let made = tx.alloc_bytes(8, align);
        assert!(matches!(made, Err(Error::Pool(pmem::Error::Limit { .. }))), "alignment {align}: {made:?}");
        assert_doomed(tx);
    }
}

/// Objects do not overlap, and each has the room it says.
fn apart<S: Subject>(s: &S) {
    let engine = s.fresh();
    let mut places: Vec<Range<u64>> = Vec::new();
    for len in (1..400).chain([0, 4095, 4096, 4097, 65_536]) {
        let (object, room) = run(&engine, |tx| {
            let object = tx.alloc_bytes(len, 8)?;
            let room = tx.room(object)?;
            assert!(room >= len, "{len} bytes asked for, room for {room}");
            tx.bytes_mut(object, room)?.fill(len as u8);
            if room > 1 {
                assert_eq!(tx.room(PPtr::new(object.tag(), object.offset() + 1))?, room - 1);
            }
            Ok((object, room))
        });
        places.push(object.offset()..object.offset() + room.max(1));
    }
    places.sort_by_key(|place| place.start);
    for [left, right] in places.array_windows() {
        assert!(left.end <= right.start, "{left:?} and {right:?} overlap");
    }
}

/// A name, and a way to use an object.
type Use<S> = (&'static str, for<'e> fn(&mut TxOf<'e, S>, PPtr<u8>) -> Result<()>);

fn uses<S: Subject>() -> [Use<S>; 7] {
    [
        ("read", |tx, ptr| tx.bytes(ptr, 1).map(drop)),
        ("write", |tx, ptr| tx.bytes_mut(ptr, 1).map(drop)),
        ("put", |tx, ptr| tx.put_bytes(ptr, &[1])),
        ("write_many", |tx, ptr| tx.bytes_mut_many(&[tx::Range::new(ptr, 1)]).map(drop)),
        ("intend", |tx, ptr| tx.intend(&[tx::Range::new(ptr, 1)])),
        ("free", |tx, ptr| tx.free(ptr)),
        ("room", |tx, ptr| tx.room(ptr).map(drop)),
    ]
}

fn freed_in_this_transaction<S: Subject>(s: &S) {
    let engine = s.fresh();
    for (name, attempt) in uses::<S>() {
        let number = numbers(&engine, 1)[0];
        let mut tx = begin(&engine);
        if s.atomic() {
            *ok(tx.write(number)) = 1;
        }
        ok(tx.free(number));
        let e = err(attempt(&mut tx, number.cast()));
        assert!(matches!(e, Error::Freed { .. }), "{name}: should have been freed: {e}");
        assert_doomed(tx);
    }
}

fn freed_by_an_earlier_one<S: Subject>(s: &S) {
    let engine = s.fresh();
    for (_, attempt) in uses::<S>() {
        let number = numbers(&engine, 1)[0];
        run(&engine, |tx| tx.free(number));
        let mut tx = begin(&engine);
        assert_bad(attempt(&mut tx, number.cast()));
        assert_doomed(tx);
    }
}

fn alloc_then_abort<S: Subject>(s: &S) {
    let engine = s.fresh();
    let mut tx = begin(&engine);
    let objects: Vec<_> = (1..50).map(|i| ok(tx.alloc_slice(&vec![i; usize::from(i) * 10]))).collect();
    ok(tx.abort());
    for object in objects {
        assert_bad(try_run(&engine, |tx| tx.bytes(object, 1).map(drop)));
    }
}

fn free_then_abort<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    set(&engine, &[number], 7);
    let mut tx = begin(&engine);
    *ok(tx.write(number)) = 8;
    ok(tx.free(number));
    ok(tx.abort());
    assert_eq!(value(&engine, number), 7);
    run(&engine, |tx| tx.free(number));
}

fn alloc_and_free_together<S: Subject>(s: &S) {
    let engine = s.fresh();
    let (kept, gone) = run(&engine, |tx| {
        let (gone, kept) = (tx.alloc(&1u64)?, tx.alloc(&2u64)?);
        tx.free(gone)?;
        Ok((kept, gone))
    });
    assert_bad(try_run(&engine, |tx| tx.read(gone).copied()));
    assert_eq!(value(&engine, kept), 2);
}

/// One writes an object, another one frees it: not both.
fn free_against_write<S: Subject>(s: &S) {
    for free_first in [true, false] {
        let engine = s.fresh();
        let number = numbers(&engine, 1)[0];
        let mut tx = begin(&engine);
        if free_first {
            ok(tx.free(number))
        } else {
            *ok(tx.write(number)) = 1
        }
        let other = std::thread::scope(|scope| {
            join(scope.spawn(|| {
                try_run(&engine, |tx| if free_first { tx.write(number).map(|v| *v = 2) } else { tx.free(number) })
            }))
        });
        let this = tx.commit();
        assert!(this.is_ok() != other.is_ok(), "freeing: {free_first}; this: {this:?}, the other: {other:?}");
        if this.is_ok() == free_first {
            assert_bad(try_run(&engine, |tx| tx.read(number).copied()));
        } else {
            assert_eq!(value(&engine, number), if free_first { 2 } else { 1 });
        }
    }
}

/// What a transaction reads stays, even if another transaction frees the object and others want the space.
fn free_against_read<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    set(&engine, &[number], 7);
    let tx = begin(&engine);
    let handed = ok(tx.read(number));
    std::thread::scope(|scope| {
        join(scope.spawn(|| {
            let _ = try_run(&engine, |tx| tx.free(number)); // refused or not
            for _ in 0..200 {
                run(&engine, |tx| tx.alloc(&u64::MAX));
            }
        }));
    });
    assert_eq!(*handed, 7, "the object was reused under a reader");
}

/// Several times the space there is goes through.
fn space_comes_back<S: Subject>(s: &S) {
    const LEN: u64 = ROOM / 16;
    let engine = s.fresh();
    for _ in 0..96 {
        let object = run(&engine, |tx| tx.alloc_bytes(LEN, 8));
        run(&engine, |tx| tx.free(object));
    }
}

fn space_comes_back_after_aborts<S: Subject>(s: &S) {
    const LEN: u64 = ROOM / 16;
    let engine = s.fresh();
    for round in 0..96 {
        let mut tx = begin(&engine);
        ok(tx.alloc_bytes(LEN, 8));
        match round % 3 {
            0 => ok(tx.abort()),
            1 => drop(tx),
            _ => {
                tx.refuse("enough");
                err(tx.commit());
            }
        }
    }
    run(&engine, |tx| tx.alloc_bytes(LEN, 8));
}

/// More than there is: an error, and everything else goes on.
fn too_much<S: Subject>(s: &S) {
    let engine = s.fresh();
    for len in [1 << 45, u64::MAX, u64::MAX - 7] {
        let mut tx = begin(&engine);
        err(tx.alloc_bytes(len, 8));
        assert_doomed(tx);
    }
    let mut objects = Vec::new();
    for _ in 0..1024 {
        match try_run(&engine, |tx| tx.alloc_bytes(ROOM / 32, 8)) {
            Ok(object) => objects.push(object),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Full, "{e}");
                break;
            }
        }
    }
    assert!(objects.len() >= 16, "only {} objects fit", objects.len());
    for object in &objects {
        run(&engine, |tx| tx.free(*object));
    }
    run(&engine, |tx| tx.alloc_bytes(ROOM / 32, 8));
}
