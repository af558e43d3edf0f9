//! Against a map.

use std::collections::{BTreeMap, BTreeSet};

use eaw::Error;
use eaw::aries::Aries;
use eaw::mars::Mars;
use eaw::records::{RecordId, RecordTx, Savepoint, Table};
use proptest::prelude::*;

use super::Kind;

#[derive(Clone, Debug)]
enum Write {
    Insert(usize, usize, u8),
    Update(usize, usize, u8),
    Delete(usize),
}

#[derive(Clone, Debug)]
enum Op {
    Write(Write),
    Read(usize),
    Scan,
    Savepoint,
    Rollback(usize),
    /// Whether it succeeds.
    Nested(Vec<Write>, bool),
    Commit,
    Abort,
    /// After a clean close, or not.
    Reopen(bool),
}

fn write() -> impl Strategy<Value = Write> {
    let len = || prop_oneof![3 => 0..200_usize, 1 => 200..16_000_usize];
    prop_oneof![
        3 => (0..2_usize, len(), any::<u8>()).prop_map(|(table, len, byte)| Write::Insert(table, len, byte)),
        3 => (any::<usize>(), len(), any::<u8>()).prop_map(|(nth, len, byte)| Write::Update(nth, len, byte)),
        2 => any::<usize>().prop_map(Write::Delete),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => write().prop_map(Op::Write),
        2 => any::<usize>().prop_map(Op::Read),
        1 => Just(Op::Scan),
        2 => Just(Op::Savepoint),
        2 => (0..3_usize).prop_map(Op::Rollback),
        2 => (prop::collection::vec(write(), 0..4), any::<bool>()).prop_map(|(writes, ok)| Op::Nested(writes, ok)),
        4 => Just(Op::Commit),
        2 => Just(Op::Abort),
        1 => any::<bool>().prop_map(Op::Reopen),
    ]
}

/// Records by number, with their table.
type Map = BTreeMap<RecordId, (Table, Vec<u8>)>;

fn nth(map: &Map, nth: usize) -> Option<(RecordId, Table)> {
    map.iter().nth(nth % map.len().max(1)).map(|(id, (table, _))| (*id, *table))
}

/// What is to be after a write; its record.
fn apply<T: RecordTx>(tx: &mut T, tables: &[Table], map: &mut Map, write: &Write) -> eaw::Result<Option<RecordId>> {
    match *write {
        Write::Insert(table, len, byte) => {
            let bytes = vec![byte; len];
            let id = tx.insert(tables[table], &bytes)?;
            assert!(map.insert(id, (tables[table], bytes)).is_none(), "a number that is another's");
            Ok(Some(id))
        }
        Write::Update(which, len, byte) => {
            let Some((id, table)) = nth(map, which) else { return Ok(None) };
            let bytes = vec![byte; len];
            tx.update(table, id, &bytes)?;
            map.insert(id, (table, bytes));
            Ok(Some(id))
        }
        Write::Delete(which) => {
            let Some((id, table)) = nth(map, which) else { return Ok(None) };
            tx.delete(table, id)?;
            map.remove(&id);
            Ok(Some(id))
        }
    }
}

fn check<T: RecordTx>(tx: &mut T, tables: &[Table], map: &Map) {
    let mut found = Map::new();
    for table in tables {
        tx.scan(*table, &mut |id, bytes| drop(found.insert(id, (*table, bytes.to_vec())))).unwrap();
    }
    assert!(found == *map, "{} found, {} expected", found.len(), map.len());
}

fn run<S: Kind>(ops: &[Op]) {
    let dir = tempfile::tempdir().unwrap();
    let mut store = S::create(dir.path());
    let tables = ["one", "two"].map(|name| store.create_table(name).unwrap());
    let mut committed = Map::new();
    let mut ops = ops.iter();
    let mut more = true;
    while more {
        let mut tx = store.begin().unwrap();
        let mut current = committed.clone();
        // What was then, and how many of the writes.
        let mut savepoints: Vec<(Savepoint, Map, usize)> = Vec::new();
        let mut written: Vec<RecordId> = Vec::new();
        let mut reopen = None;
        let commits = loop {
            let Some(op) = ops.next() else {
                more = false;
                break true;
            };
            match op {
                Op::Write(write) => written.extend(apply(&mut tx, &tables, &mut current, write).unwrap()),
                Op::Read(which) => {
                    if let Some((id, table)) = nth(&current, *which) {
                        let mut bytes = Vec::new();
                        tx.read(table, id, &mut bytes).unwrap();
                        assert!(bytes == current[&id].1);
                    }
                }
                Op::Scan => check(&mut tx, &tables, &current),
                Op::Savepoint => savepoints.push((tx.savepoint(), current.clone(), written.len())),
                Op::Rollback(index) => {
                    if let Some((savepoint, then, count)) = savepoints.get(*index).cloned() {
                        tx.rollback_to(savepoint).unwrap();
                        current = then;
                        written.truncate(count);
                        savepoints.truncate(index + 1);
                    }
                }
                Op::Nested(writes, succeeds) => {
                    let before = current.clone();
                    let mut touched = BTreeSet::new();
                    let done = tx.nested_top(|tx| {
                        for write in writes {
                            let is_outer = match write {
                                Write::Update(which, ..) | Write::Delete(which) => {
                                    nth(&current, *which).is_some_and(|(id, _)| written.contains(&id))
                                }
                                Write::Insert(..) => false,
                            };
                            match apply(tx, &tables, &mut current, write) {
                                Err(Error::OuterRecord { .. }) => assert!(is_outer),
                                other => {
                                    assert!(!is_outer);
                                    touched.extend(other?);
                                }
                            }
                        }
                        if *succeeds { Ok(()) } else { Err(Error::NoTable { name: "made up".into() }) }
                    });
                    assert_eq!(done.is_ok(), *succeeds, "{done:?}");
                    if *succeeds {
                        let all = savepoints.iter_mut().map(|(_, map, _)| map).chain([&mut committed]);
                        for map in all {
                            for id in &touched {
                                match current.get(id) {
                                    Some(record) => drop(map.insert(*id, record.clone())),
                                    None => drop(map.remove(id)),
                                }
                            }
                        }
                    } else {
                        current = before;
                    }
                }
                Op::Commit => break true,
                Op::Abort => break false,
                Op::Reopen(closes) => {
                    reopen = Some(*closes);
                    break false;
                }
            }
        };
        if commits {
            tx.commit().unwrap();
            committed = current;
        } else {
            drop(tx);
        }
        if let Some(closes) = reopen {
            if closes {
                store.close().unwrap()
            } else {
                store.abandon()
            }
            store = S::open(dir.path());
        }
    }
    check(&mut store.begin().unwrap(), &tables, &committed);
    store.close().unwrap();
    let store = S::open(dir.path());
    check(&mut store.begin().unwrap(), &tables, &committed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mars_is_a_map(ops in prop::collection::vec(op(), 1..150)) {
        run::<Mars>(&ops);
    }

    #[test]
    fn aries_is_a_map(ops in prop::collection::vec(op(), 1..150)) {
        run::<Aries>(&ops);
    }
}
