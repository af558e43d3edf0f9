//! One thing at a time.

use eaw::Error;
use eaw::aries::Aries;
use eaw::mars::{Mars, Options};
use eaw::records::{RecordId, RecordTx, Records, Table};

use super::{Kind, members, options};

fn read<S: Records>(store: &S, table: Table, id: RecordId) -> eaw::Result<Vec<u8>> {
    let (mut tx, mut bytes) = (store.begin()?, Vec::new());
    tx.read(table, id, &mut bytes)?;
    Ok(bytes)
}

fn one<S: Records>(store: &S, table: Table, bytes: &[u8]) -> RecordId {
    let mut tx = store.begin().unwrap();
    let id = tx.insert(table, bytes).unwrap();
    tx.commit().unwrap();
    id
}

fn with<S: Kind>(test: impl FnOnce(&S, Table)) {
    let dir = tempfile::tempdir().unwrap();
    let store = S::create(dir.path());
    let table = store.create_table("records").unwrap();
    test(&store, table);
    store.close().unwrap();
    S::open(dir.path()).close().unwrap();
}

fn rolled_back<S: Kind>() {
    with(|store: &S, table| {
        let first = one(store, table, b"first");
        let mut tx = store.begin().unwrap();
        tx.update(table, first, b"changed").unwrap();
        let savepoint = tx.savepoint();
        let second = tx.insert(table, b"second").unwrap();
        tx.update(table, first, &[7; 3000]).unwrap();
        tx.delete(table, first).unwrap();
        tx.rollback_to(savepoint).unwrap();
        tx.insert(table, b"third").unwrap();
        tx.rollback_to(savepoint).unwrap(); // it stays
        tx.commit().unwrap();
        assert_eq!(read(store, table, first).unwrap(), b"changed");
        assert!(matches!(read(store, table, second), Err(Error::NoRecord { .. })));
        let mut tx = store.begin().unwrap();
        assert!(matches!(tx.rollback_to(savepoint), Err(Error::Foreign { what: "savepoint" })));
    });
}

/// Locks that came behind a savepoint go with it; those before it stay.
fn locks_of_a_savepoint<S: Kind>() {
    with(|store: &S, table| {
        let [early, late] = [one(store, table, b"early"), one(store, table, b"late")];
        let mut tx = store.begin().unwrap();
        tx.update(table, early, b"mine").unwrap();
        let savepoint = tx.savepoint();
        tx.update(table, late, b"mine").unwrap();
        tx.rollback_to(savepoint).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut other = store.begin().unwrap();
                other.update(table, late, b"yours").unwrap();
                other.commit().unwrap();
            });
        });
        tx.update(table, late, b"mine too").unwrap();
        tx.commit().unwrap();
        assert_eq!(read(store, table, late).unwrap(), b"mine too");
    });
}

fn nested<S: Kind>() {
    with(|store: &S, table| {
        let [outer, inner] = [one(store, table, b"outer"), one(store, table, b"inner")];
        let mut tx = store.begin().unwrap();
        tx.update(table, outer, b"lost").unwrap();
        let savepoint = tx.savepoint();
        let mut made = None;
        tx.nested_top(|tx| {
            tx.update(table, inner, b"stays")?;
            made = Some(tx.insert(table, b"stays, too")?);
            assert!(matches!(tx.rollback_to(savepoint), Err(Error::Foreign { .. })), "that is the outer's");
            let refused = tx.update(table, outer, b"no");
            assert!(matches!(refused, Err(Error::OuterRecord { .. })), "{refused:?}");
            Ok(())
        })
        .unwrap();
        let failed = tx.nested_top(|tx| {
            tx.delete(table, inner)?;
            Err::<(), _>(Error::NoTable { name: "made up".into() })
        });
        assert!(matches!(failed, Err(Error::NoTable { .. })));
        tx.rollback_to(savepoint).unwrap();
        drop(tx); // aborts
        assert_eq!(read(store, table, outer).unwrap(), b"outer");
        assert_eq!(read(store, table, inner).unwrap(), b"stays");
        assert_eq!(read(store, table, made.unwrap()).unwrap(), b"stays, too");
    });
}

fn misuse<S: Kind>() {
    with(|store: &S, table| {
        let id = one(store, table, b"");
        assert_eq!(read(store, table, id).unwrap(), b"");
        let other = store.create_table("other").unwrap();
        assert!(matches!(store.create_table("other"), Err(Error::TableExists { .. })));
        assert!(matches!(store.create_table(""), Err(Error::BadTableName { .. })));
        assert!(matches!(store.create_table(&"n".repeat(49)), Err(Error::BadTableName { .. })));
        assert!(matches!(store.table("none"), Err(Error::NoTable { .. })));
        assert_eq!(store.table("other").unwrap(), other);
        let mut tx = store.begin().unwrap();
        let too_long = vec![0; store.record_max() + 1];
        assert!(matches!(tx.insert(table, &too_long), Err(Error::RecordTooLong { .. })));
        assert!(matches!(tx.update(table, id, &too_long), Err(Error::RecordTooLong { .. })));
        assert!(matches!(tx.insert(Table::from_number(77), b""), Err(Error::NoTable { .. })));
        let mut bytes = Vec::new();
        let missing = [0, id.number() + 1, u64::MAX].map(RecordId::from_number);
        for (table, id) in missing.map(|id| (table, id)).into_iter().chain([(other, id)]) {
            assert!(matches!(tx.read(table, id, &mut bytes), Err(Error::NoRecord { .. })), "{id:?}");
            assert!(matches!(tx.update(table, id, b"x"), Err(Error::NoRecord { .. })), "{id:?}");
            assert!(matches!(tx.delete(table, id), Err(Error::NoRecord { .. })), "{id:?}");
        }
        tx.update(table, id, &too_long[1..]).unwrap();
        tx.commit().unwrap();
        assert_eq!(read(store, table, id).unwrap().len(), store.record_max());
    });
}

/// What others have not committed is not seen: their records are waited for; that a record was deleted, too.
fn scans_wait<S: Kind>() {
    with(|store: &S, table| {
        let [stays, goes] = [one(store, table, b"stays"), one(store, table, b"goes")];
        let mut tx = store.begin().unwrap();
        tx.delete(table, goes).unwrap();
        let (began, begun) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            let scan = threads.spawn(move || {
                let mut found = Vec::new();
                began.send(()).unwrap();
                store.begin().unwrap().scan(table, &mut |id, bytes| found.push((id, bytes.to_vec()))).unwrap();
                found
            });
            begun.recv().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20)); // most often it waits by now
            drop(tx);
            assert_eq!(scan.join().unwrap(), [(stays, b"stays".to_vec()), (goes, b"goes".to_vec())]);
        });
    });
}

/// What was only read before a savepoint is shared again when what was written behind it is taken back.
fn upgrades<S: Kind>() {
    with(|store: &S, table| {
        let id = one(store, table, b"shared");
        let mut tx = store.begin().unwrap();
        tx.read(table, id, &mut Vec::new()).unwrap();
        let savepoint = tx.savepoint();
        tx.update(table, id, b"mine").unwrap();
        tx.rollback_to(savepoint).unwrap();
        assert_eq!(read(store, table, id).unwrap(), b"shared"); // does not wait
        tx.commit().unwrap();
    });
}

/// A savepoint is of one transaction of one store.
fn savepoints_of_others<S: Kind>() {
    with(|one: &S, of_one| {
        with(|other: &S, of_other| {
            let (mut first, mut second) = (one.begin().unwrap(), other.begin().unwrap());
            let (foreign, _own) = (first.savepoint(), second.savepoint());
            first.insert(of_one, b"one").unwrap();
            let id = second.insert(of_other, b"other").unwrap();
            assert!(matches!(second.rollback_to(foreign), Err(Error::Foreign { what: "savepoint" })));
            second.commit().unwrap();
            assert_eq!(read(other, of_other, id).unwrap(), b"other");
        });
    });
}

/// A nested action that panics has not ended: what it did is not committed.
fn panics_in_actions<S: Kind>() {
    with(|store: &S, table| {
        let id = one(store, table, b"before");
        let mut tx = store.begin().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            tx.nested_top(|tx| -> eaw::Result<()> {
                tx.update(table, id, b"half")?;
                std::panic::resume_unwind(Box::new("made up"))
            })
        }));
        assert!(panicked.is_err());
        assert!(matches!(tx.commit(), Err(Error::Unwound)));
        assert_eq!(read(store, table, id).unwrap(), b"before");
    });
}

/// All of it is the parent's.
fn children<S: Kind>() {
    with(|store: &S, table| {
        let id = one(store, table, b"parent");
        let mut tx = store.begin().unwrap();
        tx.update(table, id, b"changed").unwrap();
        // SAFETY: the child calls what is refused before it locks anything, and `_exit`; what it allocates, `malloc` is ready for after a fork.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let mut bytes = Vec::new();
            let savepoint = tx.savepoint();
            let refused = [
                tx.insert(table, b"x").map(drop),
                tx.read(table, id, &mut bytes),
                tx.update(table, id, b"x"),
                tx.delete(table, id),
                tx.scan(table, &mut |_, _| ()),
                tx.rollback_to(savepoint),
                tx.nested_top(|_| Ok(())),
                tx.commit(),
                store.begin().map(drop),
                store.create_table("x").map(drop),
                store.table("records").map(drop),
                store.checkpoint(),
            ];
            let forked = |result: &eaw::Result<()>| matches!(result, Err(Error::Pool(pmem::Error::Forked)));
            let wrong = refused.iter().position(|result| !forked(result)).map_or(0, |at| at as i32 + 1);
            // SAFETY: ends the child without running what the parent's threads had planned to.
            unsafe { libc::_exit(wrong) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 0, "number of the call that was not refused");
        tx.commit().unwrap();
        assert_eq!(read(store, table, id).unwrap(), b"changed");
    });
}

/// More numbers than slots: those of records that a nested action deleted are not free before the outer transaction ends, their slots are.
fn numbers_beyond_slots<S: Kind>() {
    let dir = tempfile::tempdir().unwrap();
    let store = S::create(dir.path());
    let table = store.create_table("records").unwrap();
    let bytes = vec![7; 6000];
    let (mut kept, mut outer) = (Vec::new(), store.begin().unwrap());
    for _ in 0..600 {
        // 20 at a time have room; each takes numbers of its own.
        outer
            .nested_top(|tx| {
                let ids: Vec<_> = (0..8).map(|_| tx.insert(table, &bytes)).collect::<eaw::Result<_>>()?;
                ids.into_iter().try_for_each(|id| tx.delete(table, id))
            })
            .unwrap();
    }
    let mut tx = store.begin().unwrap();
    (0..8).for_each(|_| kept.push(tx.insert(table, &bytes).unwrap()));
    tx.commit().unwrap();
    drop(outer);
    store.close().unwrap();
    let store = S::open(dir.path());
    let table = store.table("records").unwrap();
    let mut found = Vec::new();
    store.begin().unwrap().scan(table, &mut |id, _| found.push(id)).unwrap();
    assert_eq!(found, kept);
    let id = one(&store, table, b"next");
    assert!(!kept.contains(&id));
}

fn many_tables<S: Kind>() {
    let dir = tempfile::tempdir().unwrap();
    let store = S::create(dir.path());
    let name = |n| format!("table {n}");
    let ids: Vec<_> =
        (0..600).map(|n| one(&store, store.create_table(&name(n)).unwrap(), name(n).as_bytes())).collect();
    store.close().unwrap();
    let store = S::open(dir.path());
    for (n, id) in (0..).zip(ids) {
        assert_eq!(read(&store, store.table(&name(n)).unwrap(), id).unwrap(), name(n).as_bytes());
    }
}

/// Neither of two transactions that changed places while one was in a nested action does something that does not last.
fn swapped_in_actions<S: Kind>() {
    with(|store: &S, table| {
        let mut other = store.begin().unwrap();
        let mut tx = store.begin().unwrap();
        let done = tx.nested_top(|tx| {
            std::mem::swap(tx, &mut other);
            tx.insert(table, b"where")
        });
        assert!(matches!(done, Err(Error::Unwound)), "{done:?}");
        assert!(matches!(other.commit(), Err(Error::Unwound)));
        drop(tx);
        let mut found = 0;
        store.begin().unwrap().scan(table, &mut |_, _| found += 1).unwrap();
        assert_eq!(found, 0);
    });
}

macro_rules! conformance {
    ($($kind:ident: $store:ty),*) => {
        $(mod $kind {
            use super::*;

            #[test]
            fn what_is_rolled_back_is_nowhere() {
                rolled_back::<$store>();
            }

            #[test]
            fn locks_behind_a_savepoint_go_with_it() {
                locks_of_a_savepoint::<$store>();
            }

            #[test]
            fn nested_actions_stay() {
                nested::<$store>();
            }

            #[test]
            fn there_may_be_more_numbers_than_slots() {
                numbers_beyond_slots::<$store>();
            }

            #[test]
            fn there_may_be_many_tables() {
                many_tables::<$store>();
            }

            #[test]
            fn a_nested_action_does_not_change_places() {
                swapped_in_actions::<$store>();
            }

            #[test]
            fn misuse_is_an_error_and_changes_nothing() {
                misuse::<$store>();
            }

            #[test]
            fn what_is_written_behind_a_savepoint_is_shared_again() {
                upgrades::<$store>();
            }

            #[test]
            fn savepoints_of_others_are_refused() {
                savepoints_of_others::<$store>();
            }

            #[test]
            fn a_nested_action_that_panics_is_not_committed() {
                panics_in_actions::<$store>();
            }

            #[test]
            fn nothing_works_in_the_child_of_a_fork() {
                children::<$store>();
            }

            #[test]
            fn a_scan_waits_for_what_is_not_committed() {
                scans_wait::<$store>();
            }
        })*
    };
}

conformance!(mars: Mars, aries: Aries);

#[test]
fn an_array_has_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let array = options().create(&members(dir.path())).unwrap();
    assert!(matches!(Mars::open(array), Err(Error::NoStore)));
    let array = options().open(&members(dir.path())).unwrap();
    for wrong in [Options::new().block_bytes(100), Options::new().block_bytes(320 << 10).segment_bytes(1000)] {
        let elsewhere = tempfile::tempdir().unwrap();
        let array = options().create(&members(elsewhere.path())).unwrap();
        assert!(matches!(wrong.create(array), Err(Error::Limit { .. })));
    }
    Options::new().create(array).unwrap().close().unwrap();
    let array = options().open(&members(dir.path())).unwrap();
    assert!(matches!(Options::new().create(array), Err(Error::StoreExists)));
}

/// One barrier for whatever a transaction writes; none for what it reads, or gives up.
#[test]
fn what_a_transaction_costs() {
    with(|store: &Mars, table| {
        let id = one(store, table, &[1; 100]);
        one(store, table, &[1; 3000]); // slots of that size are there
        let cost = |work: &dyn Fn(&mut eaw::mars::MarsTx<'_>)| {
            store.checkpoint().unwrap();
            let before = store.array().stats();
            let mut tx = store.begin().unwrap();
            work(&mut tx);
            tx.commit().unwrap();
            (store.array().stats() - before).drains
        };
        let members = 1; // all of these bytes are in one stripe
        assert_eq!(cost(&|tx| tx.read(table, id, &mut Vec::new()).unwrap()), 0);
        assert_eq!(cost(&|tx| tx.update(table, id, &[2; 100]).unwrap()), members);
        assert_eq!(cost(&|tx| _ = tx.insert(table, &[3; 100]).unwrap()), members);
        assert_eq!(cost(&|tx| tx.delete(table, id).unwrap()), members);
        let before = store.array().stats();
        let mut tx = store.begin().unwrap();
        tx.insert(table, &[4; 100]).unwrap();
        drop(tx);
        assert_eq!((store.array().stats() - before).drains, 0);
    });
}

/// The same of a write-ahead log; pages and checkpoints in their own time.
#[test]
fn what_a_transaction_of_aries_costs() {
    let dir = tempfile::tempdir().unwrap();
    let options = super::small().cleaner(false).segment_bytes(64 << 10).log_bytes(1 << 20);
    let store = options.create(dir.path().join("aries")).unwrap();
    let table = store.create_table("records").unwrap();
    let id = one(&store, table, &[1; 100]);
    one(&store, table, &[1; 3000]); // a page has slots of that size
    let drains = |work: &dyn Fn()| {
        let before = store.stats().drains;
        work();
        store.stats().drains - before
    };
    let cost = |work: &dyn Fn(&mut eaw::aries::AriesTx<'_>)| {
        drains(&|| {
            let mut tx = store.begin().unwrap();
            work(&mut tx);
            tx.commit().unwrap();
        })
    };
    assert_eq!(cost(&|tx| tx.read(table, id, &mut Vec::new()).unwrap()), 0);
    assert_eq!(cost(&|tx| tx.update(table, id, &[2; 100]).unwrap()), 1);
    assert_eq!(cost(&|tx| _ = tx.insert(table, &[3; 3000]).unwrap()), 1);
    assert_eq!(cost(&|tx| tx.nested_top(|tx| tx.update(table, id, &[4; 100])).unwrap()), 2); // and the commit's
    let aborted = || {
        let mut tx = store.begin().unwrap();
        tx.update(table, id, &[5; 100]).unwrap();
        tx.abort().unwrap();
    };
    assert_eq!(drains(&aborted), 0);
    let tidied = |left| drains(&|| store.tidy(left).unwrap());
    let again = |byte, left| {
        cost(&|tx| tx.update(table, id, &[byte; 100]).unwrap());
        tidied(left)
    };
    // None that would leave the log as long as it is. Else one for the checkpoint's record, two for the master's, two for the head of the log; two for pages. The first finds what
    // was aborted, and not forced.
    let costs = [tidied(100), again(6, 0), tidied(0), again(7, 0), again(8, 0), again(9, 100)];
    assert_eq!(costs, [0, 8, 0, 7, 7, 0]);
}
