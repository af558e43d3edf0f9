//! The transactions on every engine, and the check on transactions that are wrong.

use std::collections::BTreeMap;
use std::path::Path;

use heap::{Heap, Options, Policy};
use pmem::PPtr;
use structures::{BTree, HashMap, Map};
use tx::{Engine, Reference, Typed, field};

use super::rows::{Customer, District, Order, Warehouse};
use super::*;

const SMALL: Scale = Scale { warehouses: 2, customers: 30, items: 100 };

/// With so little room for the copies of a partial backup that they are given up.
fn heap(dir: &Path, policy: Policy) -> Heap {
    let options = Options::new().policy(policy).coordinator(false).bytes(16 << 20).alpha(0.02);
    Heap::create(dir.join("tpcc"), &options).unwrap()
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in(crate::contest::memory()).unwrap()
}

fn style(policy: Policy, declare: Declare) -> Style {
    Style { rolls_back: policy != Policy::None, ..Style::new(declare) }
}

/// What one terminal has done.
#[derive(Default, Debug, PartialEq, Eq)]
struct Told {
    new_orders: u64,
    rolled_back: u64,
    payments: u64,
    deliveries: u64,
}

fn work<E: Engine, M: Keyed>(
    engine: &E,
    tables: &Tables<M>,
    terminal: &mut Terminal,
    count: usize,
    style: Style,
) -> Told {
    let mut told = Told::default();
    for _ in 0..count {
        let input = terminal.input();
        let done = run(engine, tables, &input, style).unwrap();
        match input {
            Input::NewOrder(_) if done.committed => told.new_orders += 1,
            Input::NewOrder(_) => told.rolled_back += 1,
            Input::Payment(_) => told.payments += 1,
            Input::Delivery { .. } => told.deliveries += 1,
            _ => {}
        }
    }
    told
}

fn terminals(mix: Mix, count: usize) -> Vec<Terminal> {
    (0..count).map(|terminal| Terminal::new(SMALL, mix, terminal, 11)).collect()
}

/// The same work leaves the same rows on every engine, however changes are declared; orders that are rolled back leave none.
#[test]
fn every_engine_ends_alike() {
    let engine = Reference::with_capacity(64 << 20);
    let tables = Tables::<HashMap>::populate(&engine, SMALL, 3).unwrap();
    let told = work(&engine, &tables, &mut terminals(Mix::Standard, 1)[0], 1500, Style::new(Declare::Each));
    let reference = (check(&engine, &tables).unwrap(), told);
    assert!(reference.1.rolled_back > 0 && reference.1.deliveries > 20, "{reference:?}");
    let at_first = 2 * u64::from(DISTRICTS * SMALL.customers);
    assert_eq!(reference.0.orders, at_first + reference.1.new_orders);
    assert_eq!(reference.0.payments, at_first + reference.1.payments);
    for (policy, declare) in Policy::ALL.into_iter().flat_map(|policy| Declare::ALL.map(|declare| (policy, declare))) {
        let dir = memory();
        let engine = heap(dir.path(), policy);
        let tables = Tables::<HashMap>::populate(&engine, SMALL, 3).unwrap();
        let told = work(&engine, &tables, &mut terminals(Mix::Standard, 1)[0], 1500, style(policy, declare));
        assert_eq!((check(&engine, &tables).unwrap(), told), reference, "{policy} {declare}");
        assert_eq!(engine.stats().evictions > 0, policy == Policy::InPlacePartial, "{policy} {declare}");
    }
    let dir = memory();
    let engine = heap(dir.path(), Policy::InPlace);
    let tables = Tables::<BTree>::populate(&engine, SMALL, 3).unwrap();
    let told = work(&engine, &tables, &mut terminals(Mix::Standard, 1)[0], 1500, Style::new(Declare::Together));
    assert_eq!((check(&engine, &tables).unwrap(), told), reference, "trees alone");
}

/// Two terminals for each warehouse fight for it.
#[test]
fn four_threads() {
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::None) {
        let dir = memory();
        let engine = heap(dir.path(), policy);
        let tables = Tables::<HashMap>::populate(&engine, SMALL, 3).unwrap();
        let before = check(&engine, &tables).unwrap();
        let told: Vec<Told> = std::thread::scope(|scope| {
            let work = |mut terminal| {
                let (engine, tables) = (&engine, &tables);
                scope.spawn(move || work(engine, tables, &mut terminal, 400, style(policy, Declare::Together)))
            };
            let all: Vec<_> = terminals(Mix::Standard, 4).into_iter().map(work).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let after = check(&engine, &tables).unwrap();
        assert_eq!(after.orders - before.orders, told.iter().map(|told| told.new_orders).sum::<u64>(), "{policy}");
        assert_eq!(after.payments - before.payments, told.iter().map(|told| told.payments).sum::<u64>(), "{policy}");
    }
}

/// Each bug breaks the condition that is about it.
#[test]
fn the_check_notices() {
    for (forgets, condition) in [
        (Forgets::DistrictYtd, 1),
        (Forgets::History, 10),
        (Forgets::NewOrder, 5),
        (Forgets::LastLine, 6),
        (Forgets::Deletion, 5),
        (Forgets::Balance, 10),
        (Forgets::Dates, 7),
        (Forgets::NextOrder, 4),
    ] {
        let engine = Reference::with_capacity(64 << 20);
        let tables = Tables::<HashMap>::populate(&engine, SMALL, 3).unwrap();
        check(&engine, &tables).unwrap();
        let wrong = Style { forgets: Some(forgets), ..Style::new(Declare::Each) };
        let mut terminal = terminals(Mix::Standard, 1).remove(0);
        // Two orders of one number end the run by themselves.
        let _ = (0..100).try_for_each(|_| run(&engine, &tables, &terminal.input(), wrong).map(drop));
        let error = check(&engine, &tables).unwrap_err().to_string();
        assert!(error.contains(&format!("TPC-C condition {condition} ")), "{forgets:?}: {error}");
    }
}

/// What no transaction breaks alone: rows changed behind its back.
#[test]
fn the_check_notices_rows_that_were_changed() {
    type Tamper = fn(&Tables<HashMap>, &mut <Reference as Engine>::Tx<'_>) -> tx::Result<()>;
    let cases: [(u32, Tamper); 7] = [
        (1, |tables, tx| add(tx, field!(Warehouse, ytd).of(tables.warehouse(tx, 2)?))),
        (2, |tables, tx| {
            tables.part(1, 4)?.new_orders.delete(tx, &SMALL.customers.to_be_bytes()).and_then(|_| taken(tables, tx))
        }),
        (3, |tables, tx| {
            tables.part(1, 4)?.new_orders.delete(tx, &25u32.to_be_bytes()).and_then(|_| taken(tables, tx))
        }),
        (4, |tables, tx| {
            let order = *tx.read(tables.part(2, 10)?.order(tx, 7)?)?;
            tables.part(2, 10)?.by_customer.delete(tx, &tables::key(order.customer, 7)).map(drop)
        }),
        (8, |tables, tx| {
            add(tx, field!(Warehouse, ytd).of(tables.warehouse(tx, 2)?))?;
            add(tx, field!(District, ytd).of(tables.district(tx, (2, 3))?))
        }),
        (9, |tables, tx| {
            add(tx, field!(District, ytd).of(tables.district(tx, (2, 3))?))?;
            let ytd = field!(District, ytd).of(tables.district(tx, (2, 4))?);
            *tx.write(ytd)? -= 1;
            Ok(())
        }),
        (12, |tables, tx| {
            let account = field!(Customer, account).of(tables.customer(tx, (2, 3), 30)?);
            tx.write(account)?.ytd_payment += 1;
            Ok(())
        }),
    ];
    for (condition, tamper) in cases {
        let engine = Reference::with_capacity(64 << 20);
        let tables = Tables::<HashMap>::populate(&engine, SMALL, 3).unwrap();
        engine.transact(ISOLATION, |tx| tamper(&tables, tx)).unwrap();
        let error = check(&engine, &tables).unwrap_err().to_string();
        assert!(error.contains(&format!("TPC-C condition {condition} ")), "{condition}: {error}");
    }
}

fn add<X: Transaction>(tx: &mut X, to: PPtr<i64>) -> tx::Result<()> {
    *tx.write(to)? += 1;
    Ok(())
}

/// Orders of that district without a row of NEW-ORDER are as if they had been delivered.
fn taken<X: Transaction, M: Keyed>(tables: &Tables<M>, tx: &mut X) -> tx::Result<()> {
    let part = tables.part(1, 4)?;
    for id in 1..=SMALL.customers {
        if !part.new_orders.contains(tx, &id.to_be_bytes())? {
            *tx.write(field!(Order, carrier).of(part.order(tx, id)?))? = 1;
            let lines = part.lines(tx, id)?;
            (0..lines.count).try_for_each(|line| tx.write(lines.delivered(line)).map(|date| *date = 1))?;
        }
    }
    Ok(())
}

/// In place one barrier, whatever is changed (as long as all of it is checksummed), undone or not; eaw the same, and none to undo. Undo has three if all is declared together, one more for
/// each node that is split: few of so many transactions.
#[test]
fn barriers_are_counted() {
    let rolled_back = |policy| u64::from(!matches!(policy, Policy::None | Policy::Eaw));
    for (policy, declare) in Policy::ALL.into_iter().flat_map(|policy| Declare::ALL.map(|declare| (policy, declare))) {
        for mix in [Mix::Payment, Mix::NewOrder] {
            let (committed, undone) = barriers(policy, declare, mix);
            let what = format!("{policy} {declare} {mix}: {committed:?}, rolled back {undone:?}");
            assert_eq!(undone.is_empty(), mix == Mix::Payment, "{what}");
            let least = committed.keys().next().copied();
            match (policy, declare) {
                (Policy::Undo, Declare::Together) => {
                    assert_eq!(least, Some(3), "{what}");
                    assert!(committed[&3] >= if mix == Mix::Payment { RUNS } else { RUNS * 8 / 10 }, "{what}");
                }
                (Policy::Undo, Declare::Each) => {
                    // Number, five stocks, four trees and two for the commit; an item may come twice.
                    let fewest = if mix == Mix::Payment { 3 + 2 } else { 1 + 4 + 4 + 2 };
                    assert!(least >= Some(fewest), "{what}");
                }
                _ => {
                    assert!(committed.keys().eq(&[1]), "{what}");
                    assert!(undone.keys().all(|drains| *drains == rolled_back(policy)), "{what}");
                }
            }
        }
    }
}

const RUNS: u64 = 300;

/// How many transactions had how many barriers, those that were committed and the others.
fn barriers(policy: Policy, declare: Declare, mix: Mix) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
    let dir = memory();
    let options = Options::new().policy(policy).coordinator(false).bytes(16 << 20).checksum_max(1 << 20);
    let engine = Heap::create(dir.path().join("tpcc"), &options).unwrap();
    let tables = Tables::<HashMap>::populate(&engine, SMALL, 3).unwrap();
    let mut terminal = terminals(mix, 1).remove(0);
    let (mut committed, mut undone) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..RUNS {
        let input = terminal.input();
        engine.apply_pending().unwrap();
        let counts = || engine.pool().stats().drains - engine.stats().misses; // copies apart that a partial backup did not have
        let before = counts();
        let done = run(&engine, &tables, &input, style(policy, declare)).unwrap();
        let drains = counts() - before;
        *if done.committed { &mut committed } else { &mut undone }.entry(drains).or_insert(0) += 1;
    }
    (committed, undone)
}
