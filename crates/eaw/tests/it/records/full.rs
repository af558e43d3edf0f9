//! A log that is as small as it can be, and always full: what is open can be undone and committed all the same, and the store closes, opens and restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use eaw::Error;
use eaw::aries::{Aries, AriesTx, Options};
use eaw::records::{RecordId, RecordTx, Records, Savepoint, Table};
use pmem::ErrorKind;
use proptest::prelude::*;

/// Transactions that are open at once, each with records of its own.
const OPEN: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    /// So many records of this length, in thousandths of the longest, are inserted by one of them.
    Insert(usize, usize, usize),
    /// All its records get this length, in thousandths of the longest.
    Update(usize, usize),
    Savepoint(usize),
    Rollback(usize),
    Nested(usize, usize),
    Commit(usize),
    Abort(usize),
    /// Writes pages until so few are left, so many times.
    Tidy(usize, usize),
    /// So many restarts, each of which is cut short when it is done, and what is open before is lost; or all is undone and the store closed.
    Reopen(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let len = || prop_oneof![2 => 0..60_usize, 1 => 0..=1000_usize];
    let one = || 0..OPEN;
    prop_oneof![
        6 => (one(), 1..60_usize, len()).prop_map(|(tx, count, len)| Op::Insert(tx, count, len)),
        3 => (one(), len()).prop_map(|(tx, len)| Op::Update(tx, len)),
        1 => one().prop_map(Op::Savepoint),
        1 => one().prop_map(Op::Rollback),
        1 => (one(), len()).prop_map(|(tx, len)| Op::Nested(tx, len)),
        2 => one().prop_map(Op::Commit),
        2 => one().prop_map(Op::Abort),
        2 => (0..90_usize, prop_oneof![4 => Just(1), 1 => Just(300)]).prop_map(|(left, times)| Op::Tidy(left, times)),
        1 => (0..4_usize).prop_map(Op::Reopen),
    ]
}

type Map = BTreeMap<RecordId, Vec<u8>>;

/// A transaction, and what its records are for it.
struct Open<'a> {
    tx: AriesTx<'a>,
    records: Map,
    savepoint: Option<(Savepoint, Map)>,
}

/// It, begun if it was not open.
fn of<'o, 's>(open: &'o mut Option<Open<'s>>, store: &'s Aries, committed: &Map) -> &'o mut Open<'s> {
    open.get_or_insert_with(|| Open { tx: store.begin().unwrap(), records: committed.clone(), savepoint: None })
}

/// What was done, if there was room.
fn has_room<T>(done: eaw::Result<T>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            assert!(matches!(error, Error::LogFull { .. }) && error.kind() == ErrorKind::Full, "{error:?}");
            None
        }
    }
}

fn insert(tx: &mut AriesTx<'_>, table: Table, records: &mut Map, len: usize) -> bool {
    let bytes = vec![records.len() as u8 | 1; len];
    let Some(id) = has_room(tx.insert(table, &bytes)) else { return false };
    assert_eq!(records.insert(id, bytes), None);
    true
}

fn run(options: &Options, ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut store = options.create(&path).unwrap();
    let table = store.create_table("records").unwrap();
    let longest = store.record_max();
    let mut committed: [Map; OPEN] = Default::default();
    let mut ops = ops.iter();
    loop {
        let mut open: [Option<Open<'_>>; OPEN] = Default::default();
        let restarts = loop {
            let Some(op) = ops.next() else { break None };
            match *op {
                Op::Insert(nth, count, len) => {
                    let Open { tx, records, .. } = of(&mut open[nth], &store, &committed[nth]);
                    _ = (0..count).all(|_| insert(tx, table, records, len * longest / 1000));
                }
                Op::Update(nth, len) => {
                    let Open { tx, records, .. } = of(&mut open[nth], &store, &committed[nth]);
                    for (id, record) in records {
                        let bytes = vec![record.first().map_or(1, |byte| byte.wrapping_add(2)); len * longest / 1000];
                        if has_room(tx.update(table, *id, &bytes)).is_none() {
                            break;
                        }
                        *record = bytes;
                    }
                }
                Op::Savepoint(nth) => {
                    let open = of(&mut open[nth], &store, &committed[nth]);
                    open.savepoint = Some((open.tx.savepoint(), open.records.clone()));
                }
                Op::Rollback(nth) => {
                    let Open { tx, records, savepoint } = of(&mut open[nth], &store, &committed[nth]);
                    if let Some((to, then)) = savepoint.take() {
                        tx.rollback_to(to).unwrap();
                        *records = then;
                    }
                }
                Op::Nested(nth, len) => {
                    let Open { tx, records, savepoint } = of(&mut open[nth], &store, &committed[nth]);
                    let bytes = vec![7; len * longest / 1000];
                    if let Some(id) = has_room(tx.nested_top(|tx| tx.insert(table, &bytes))) {
                        // It is there whatever becomes of the rest.
                        savepoint.iter_mut().for_each(|(_, then)| drop(then.insert(id, bytes.clone())));
                        records.insert(id, bytes.clone());
                        committed[nth].insert(id, bytes);
                    }
                }
                Op::Commit(nth) => {
                    if let Some(Open { tx, records, .. }) = open[nth].take() {
                        tx.commit().unwrap();
                        committed[nth] = records;
                    }
                }
                Op::Abort(nth) => open[nth].take().into_iter().for_each(|open| open.tx.abort().unwrap()),
                Op::Tidy(left, times) => (0..times).for_each(|_| store.tidy(left).unwrap()),
                Op::Reopen(restarts) => break Some(restarts),
            }
        };
        match restarts {
            Some(restarts @ 1..) => {
                open.into_iter().flatten().for_each(|open| std::mem::forget(open.tx));
                for _ in 0..restarts {
                    store.abandon();
                    store = options.open(&path).unwrap();
                }
            }
            Some(0) | None => {
                open.into_iter().flatten().for_each(|open| open.tx.abort().unwrap());
                store.close().unwrap();
                store = options.open(&path).unwrap();
                assert_eq!(store.restarted().losers, 0);
            }
        }
        assert!(store.restarted().damaged.is_empty());
        let (mut tx, mut found) = (store.begin().unwrap(), Map::new());
        tx.scan(table, &mut |id, bytes| drop(found.insert(id, bytes.to_vec()))).unwrap();
        drop(tx);
        let expected: Map = committed.iter().flatten().map(|(id, bytes)| (*id, bytes.clone())).collect();
        assert!(found == expected, "{} found, {} expected", found.len(), expected.len());
        if restarts.is_none() {
            return;
        }
    }
}

/// A log of 64 pages, or 64 KiB, and so many pages in memory.
fn smallest(page: u64, pages: usize) -> Options {
    let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
    Options::new()
        .page_bytes(page)
        .segment_bytes(16 * page)
        .log_bytes((64 * page).max(64 << 10))
        .buffer_pages(pages)
        .pool(pool)
        .timeout(Duration::ZERO)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_full_log(
        ops in prop::collection::vec(op(), 1..120),
        kib in prop_oneof![Just(1_u64), Just(3), Just(16)],
        pages in prop_oneof![Just(4_usize), Just(100)],
        cleans: bool,
    ) {
        run(&smallest(kib << 10, pages).cleaner(cleans), &ops);
    }
}

/// A transaction with nothing to undo does not keep the log.
#[test]
fn nested_actions_alone_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = smallest(1 << 10, 8).create(dir.path().join("store")).unwrap();
    let table = store.create_table("records").unwrap();
    let mut outer = store.begin().unwrap();
    let id = outer.nested_top(|tx| tx.insert(table, b"0")).unwrap();
    for n in 1..3000 {
        outer.nested_top(|tx| tx.update(table, id, n.to_string().as_bytes())).unwrap();
    }
    drop(outer);
    let mut bytes = Vec::new();
    store.begin().unwrap().read(table, id, &mut bytes).unwrap();
    assert_eq!(bytes, b"2999");
}

#[test]
fn a_log_that_is_too_small_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (page, log) in [(1 << 10, 63 << 10), (1 << 20, 63 << 20)] {
        let options = Options::new().page_bytes(page).segment_bytes(page).log_bytes(log);
        let refused = options.create(dir.path().join("store"));
        assert!(matches!(refused, Err(Error::Limit { what: "bytes of log", .. })), "{refused:?}");
    }
}
