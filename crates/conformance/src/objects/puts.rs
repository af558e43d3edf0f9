//! Bytes that are overwritten unseen: whatever else is done with their object in the same transaction meets them.

use pmem::PPtr;
use tx::{Error, Range, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{assert_bad, assert_doomed, begin, err, numbers, ok, run, try_run};
use crate::check::Check;
use crate::rng::Rng;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(group, any among_others, rollback then_aborted, any checked)
}

const LENGTHS: [u64; 3] = [200, 1000, 6000];

fn inside(object: PPtr<u8>, from: u64) -> PPtr<u8> {
    PPtr::new(object.tag(), object.offset() + from)
}

/// All ways to use an object, in any order, around puts of any length and place.
fn among_others<S: Subject>(s: &S) {
    let engine = s.fresh();
    let mut rng = Rng::seeded(19);
    let objects =
        run(&engine, |tx| LENGTHS.map(|len| tx.alloc_bytes(len, 64)).into_iter().collect::<Result<Vec<_>, _>>());
    let mut contents = LENGTHS.map(|len| vec![0; len as usize]);
    for round in 0..60 {
        let mut after = contents.clone();
        let mut attempt_rng = Rng::seeded(round);
        let mut tx = begin(&engine);
        for step in 0..1 + rng.below(12) {
            let which = attempt_rng.below(3) as usize;
            let (object, now, fill) = (objects[which], &mut after[which], (round + 16 * step + 1) as u8);
            // Whole lines, or any bytes; often the same ones again.
            let unit = [1, 64][attempt_rng.below(2) as usize];
            let units = LENGTHS[which] / unit;
            let from = if attempt_rng.below(2) == 0 { 0 } else { attempt_rng.below(units) };
            let count = 1 + attempt_rng.below(units - from);
            let (at, len) = (inside(object, from * unit), count * unit);
            let range = (from * unit) as usize..(from * unit + len) as usize;
            match attempt_rng.below(10) {
                0..=4 => {
                    let data: Vec<u8> = (0..len).map(|n| fill ^ n as u8).collect();
                    ok(tx.put_bytes(at, &data));
                    now[range].copy_from_slice(&data);
                }
                5 => assert_eq!(ok(tx.bytes(at, len)), &now[range], "round {round}, step {step}"),
                6 => assert_eq!(ok(tx.rest(object))[..now.len()], now[..], "round {round}, step {step}"),
                7 => {
                    let bytes = ok(tx.bytes_mut(at, len));
                    assert_eq!(bytes, &now[range.clone()], "round {round}, step {step}");
                    bytes.fill(fill);
                    now[range].fill(fill);
                }
                8 => ok(tx.intend(&[Range::new(at, len)])),
                _ => {
                    let many = ok(tx.bytes_mut_many(&[Range::new(at, len)]));
                    many.into_iter().for_each(|bytes| bytes.fill(fill));
                    now[range].fill(fill);
                }
            }
        }
        ok(tx.commit());
        contents = after;
        for (object, now) in objects.iter().zip(&contents) {
            let found = run(&engine, |tx| tx.bytes(*object, now.len() as u64).map(<[u8]>::to_vec));
            assert_eq!(found, *now, "round {round}");
        }
    }
}

fn then_aborted<S: Subject>(s: &S) {
    let engine = s.fresh();
    let objects = run(&engine, |tx| Ok([tx.alloc_slice(&[7; 1000])?, tx.alloc_slice(&[7; 1000])?]));
    for looks in [false, true] {
        let mut tx = begin(&engine);
        for object in objects {
            ok(tx.put_bytes(object, &[8; 1000]));
            if looks {
                assert_eq!(ok(tx.bytes(object, 1000)), [8; 1000]);
            }
            ok(tx.put_bytes(inside(object, 100), &[9; 500]));
        }
        ok(tx.abort());
        for object in objects {
            assert_eq!(run(&engine, |tx| tx.bytes(object, 1000).map(<[u8]>::to_vec)), [7; 1000]);
        }
    }
}

fn checked<S: Subject>(s: &S) {
    let engine = s.fresh();
    let number = numbers(&engine, 1)[0];
    let room = run(&engine, |tx| tx.room(number.cast()));
    assert_bad(try_run(&engine, |tx| tx.put_bytes(number.cast(), &vec![1; room as usize + 1])));
    let object = run(&engine, |tx| tx.alloc_slice(&[7; 1024]));
    assert_bad(try_run(&engine, |tx| tx.put_bytes(inside(object, 64), &vec![1; 1 << 12])));
    let mut tx = begin(&engine);
    if s.atomic() {
        ok(tx.put_bytes(object, &[8; 1024]));
    }
    ok(tx.free(object));
    let e = err(tx.put_bytes(object, &[9; 1024]));
    assert!(matches!(e, Error::Freed { .. }), "should have been freed: {e}");
    assert_doomed(tx);
}
