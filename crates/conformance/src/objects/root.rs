//! The root: where everything else is found from.

use pmem::{PPtr, Persist};
use tx::{Error, Transaction, Typed};

use super::plain::plain_checks;
use super::subject::Subject;
use super::support::{assert_doomed, begin, err, ok, run};
use crate::check::Check;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    plain_checks!(group, any set_and_found, rollback unset_by_an_abort, any of_another_type)
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Directory {
    first: u64,
    second: u64,
}

fn set_and_found<S: Subject>(s: &S) {
    let engine = s.fresh();
    assert!(run(&engine, |tx| tx.root::<Directory>()).is_null(), "a fresh root is null");
    let mut last = PPtr::NULL;
    for first in 0..3 {
        let root = run(&engine, |tx| {
            let root = tx.alloc(&Directory { first, second: 9 })?;
            tx.set_root(root)?;
            assert_eq!(tx.root::<Directory>()?, root);
            if !last.is_null() {
                tx.free(last)?;
            }
            Ok(root)
        });
        let found = run(&engine, |tx| {
            let found = tx.root::<Directory>()?;
            assert_eq!(tx.read(found)?.first, first);
            Ok(found)
        });
        assert_eq!(found, root);
        last = root;
    }
    run(&engine, |tx| tx.set_root(PPtr::<Directory>::NULL));
    assert!(run(&engine, |tx| tx.root::<Directory>()).is_null());
    assert!(run(&engine, |tx| tx.room(tx.root_cell().cast())) >= 16);
}

fn unset_by_an_abort<S: Subject>(s: &S) {
    let engine = s.fresh();
    let old = run(&engine, |tx| {
        let old = tx.alloc(&1u64)?;
        tx.set_root(old)?;
        Ok(old)
    });
    let mut tx = begin(&engine);
    let new = ok(tx.alloc(&2u64));
    ok(tx.set_root(new));
    assert_eq!(ok(tx.root::<u64>()), new);
    ok(tx.abort());
    assert_eq!(run(&engine, |tx| tx.root::<u64>()), old);
}

fn of_another_type<S: Subject>(s: &S) {
    let engine = s.fresh();
    run(&engine, |tx| {
        let root = tx.alloc(&Directory { first: 1, second: 2 })?;
        tx.set_root(root)
    });
    let tx = begin(&engine);
    let e = err(tx.root::<[u64; 2]>());
    assert!(matches!(e, Error::Pool(pmem::Error::WrongLayout { .. })), "should have named the types: {e}");
    assert_doomed(tx);
    run(&engine, |tx| tx.root::<Directory>().map(drop));
}
