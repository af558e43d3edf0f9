//! Damage and order that only a list has.

use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Engine, Error, Isolation, Keys, Reference, Result, Typed};

use super::SortedList;
use crate::Map;
use crate::entry::follow;

fn with<R>(engine: &Reference, f: impl FnMut(&mut <Reference as Engine>::Tx<'_>) -> Result<R>) -> R {
    engine.transact(Isolation::Strict, f).unwrap()
}

/// Ten nodes, and where they are.
fn ten(engine: &Reference) -> (SortedList, Vec<PPtr<u64>>) {
    let list = with(engine, |tx| SortedList::create(tx));
    with(engine, |tx| [3, 7, 0, 9, 5, 1, 8, 2, 6, 4].iter().try_for_each(|&n| list.put(tx, &[n], &[n; 4]).map(drop)));
    let nodes = with(engine, |tx| {
        let mut slots = vec![list.first()];
        for n in 0..10 {
            slots.push(follow(tx, "node", slots[n])?.cast());
        }
        Ok(slots.split_off(1))
    });
    (list, nodes)
}

#[test]
fn a_link_that_leads_back_is_an_error() {
    let engine = Reference::new();
    let (list, nodes) = ten(&engine);
    for (from, to) in [(5, 2), (5, 5), (9, 0), (7, 6)] {
        let before = with(&engine, |tx| Ok(std::mem::replace(tx.write(nodes[from])?, nodes[to].offset())));
        let damaged =
            |result: Result<()>| assert!(matches!(result, Err(Error::Damaged { .. })), "{from} {to}: {result:?}");
        let begin = || engine.begin(Isolation::Strict).unwrap();
        damaged(list.verify(&begin()).map(drop));
        damaged(list.len(&begin()).map(drop));
        damaged(list.get(&begin(), &[10]).map(drop));
        damaged(list.put(&mut begin(), &[10], b"").map(drop));
        damaged(list.delete(&mut begin(), &[10]).map(drop));
        for keys in [Keys::all(), Keys::all().reverse()] {
            damaged(list.scan(&begin(), &keys, &mut |_, _| ControlFlow::Continue(())));
        }
        assert_eq!(list.get(&begin(), &[1]).unwrap(), Some(&[1; 4][..]), "before the damage");
        with(&engine, |tx| Ok(std::mem::replace(tx.write(nodes[from])?, before)));
    }
    with(&engine, |tx| list.verify(tx));
}

#[test]
fn a_scan_stops_where_it_is_told_to() {
    let engine = Reference::new();
    let (list, _) = ten(&engine);
    let mut seen = Vec::new();
    let mut keys = Keys::from(&[2]).until(&[8]);
    for _ in 0..2 {
        with(&engine, |tx| {
            list.scan(tx, &keys, &mut |key, _| {
                seen.push(key[0]);
                if seen.len() % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        keys = keys.reverse();
    }
    assert_eq!(seen, [2, 3, 4, 7, 6, 5]);
}
