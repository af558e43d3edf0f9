//! What is in the tables at first (clause 4.3.3).

use pmem::{PPtr, Persist};
use tx::{Engine, Transaction, Typed, field};

use super::input::{C_LOAD, Skew, between, last_name};
use super::new_order::add_order;
use super::rows::{
    Account, Address, Customer, District, History, Item, LINES_MAX, Level, Line, Lines, Order, Stock, Warehouse,
};
use super::tables::{Keyed, Tables};
use super::{DISTRICTS, Scale};
use crate::Result;
use crate::target::ISOLATION;
use crate::workload::Random;

/// Rows that are made in one transaction.
const AT_ONCE: u32 = 64;
/// What every customer has paid at first.
const PAID: i64 = 1_000;

impl<M: Keyed> Tables<M> {
    /// Makes and fills tables. The same seed gives the same.
    pub(crate) fn populate<E: Engine>(engine: &E, scale: Scale, seed: u64) -> Result<Self> {
        let tables = Self::create(engine, scale)?;
        let random = &mut Random::new(seed);
        some(engine, scale.items, random, |tx, id, random| tables.add_item(tx, &item(id, random)))?;
        for w in 1..=scale.warehouses {
            engine.transact(ISOLATION, |tx| tables.add_warehouse(tx, &warehouse(w, scale, random)))?;
            some(engine, scale.items, random, |tx, id, random| tables.add_stock(tx, &stock(w, id, random)))?;
            for d in 1..=DISTRICTS {
                engine.transact(ISOLATION, |tx| tables.add_district(tx, &district(w, d, scale, random)))?;
                let skew = Skew::new(scale, C_LOAD);
                some(engine, scale.customers, random, |tx, id, random| {
                    let customer = customer((w, d), id, scale, &skew, random);
                    tables.add_customer(tx, &customer)?;
                    pay(&tables, tx, (w, d), id, random)
                })?;
                let customers = permutation(scale.customers, random);
                some(engine, scale.customers, random, |tx, id, random| {
                    order(&tables, tx, (w, d), (id, customers[id as usize - 1]), random)
                })?;
            }
        }
        Ok(tables)
    }
}

/// Rows 1 to `count`. A transaction that is tried again makes other rows, which is as good.
fn some<E: Engine>(
    engine: &E,
    count: u32,
    random: &mut Random,
    mut add: impl FnMut(&mut E::Tx<'_>, u32, &mut Random) -> tx::Result<()>,
) -> tx::Result<()> {
    let mut from = 1;
    while from <= count {
        let to = (from + AT_ONCE - 1).min(count);
        engine.transact(ISOLATION, |tx| (from..=to).try_for_each(|id| add(tx, id, random)))?;
        from = to + 1;
    }
    Ok(())
}

// ---- rows -----------------------------------------------------------------------------------------------------------

fn item(id: u32, random: &mut Random) -> Item {
    let (image, price) = (between(random, 1, 10_000) as u32, between(random, 100, 10_000) as i64);
    Item { price, id, image, name: text(random, 14), data: data(random), reserved: [0; 6] }
}

fn warehouse(id: u32, scale: Scale, random: &mut Random) -> Warehouse {
    let ytd = i64::from(DISTRICTS * scale.customers) * PAID;
    let tax = between(random, 0, 2_000) as u32;
    Warehouse { ytd, tax, id, name: text(random, 6), address: address(random), reserved: [0; 7] }
}

fn district(warehouse: u32, id: u32, scale: Scale, random: &mut Random) -> District {
    District {
        ytd: i64::from(scale.customers) * PAID,
        next_order: scale.customers + 1,
        tax: between(random, 0, 2_000) as u32,
        id,
        warehouse,
        name: text(random, 6),
        address: address(random),
        reserved: [0; 7],
    }
}

fn stock(warehouse: u32, item: u32, random: &mut Random) -> Stock {
    let level = Level { quantity: between(random, 10, 100) as i32, ytd: 0, orders: 0, remote: 0 };
    let districts = std::array::from_fn(|_| text(random, 24));
    Stock { level, item, warehouse, districts, data: data(random), reserved: [0; 6] }
}

fn customer((warehouse, district): (u32, u32), id: u32, scale: Scale, skew: &Skew, random: &mut Random) -> Customer {
    // Every name there is, then any.
    let name = if id <= scale.names() { id - 1 } else { skew.name(random, scale) };
    Customer {
        account: Account { balance: -PAID, ytd_payment: PAID, payments: 1, deliveries: 0, history: PPtr::NULL },
        since: 1,
        credit_limit: 5_000_000,
        discount: between(random, 0, 5_000) as u32,
        id,
        district,
        warehouse,
        credit: if random.below(10) == 0 { *b"BC" } else { *b"GC" },
        first: text(random, 8),
        middle: *b"OE",
        last: last_name(name),
        address: address(random),
        phone: std::array::from_fn(|_| digit(random)),
        data: text(random, 300),
        reserved: 0,
    }
}

fn address(random: &mut Random) -> Address {
    let mut zip = *b"000011111";
    zip[..4].fill_with(|| digit(random));
    let (street_1, street_2, city) = (text(random, 10), text(random, 10), text(random, 10));
    Address { street_1, street_2, city, state: text(random, 2), zip }
}

/// The customer's row of HISTORY.
fn pay<X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &mut X,
    district_id: (u32, u32),
    customer: u32,
    random: &mut Random,
) -> tx::Result<()> {
    let (warehouse, district) = district_id;
    let (before, data) = (PPtr::NULL, text(random, 12));
    let history = tx.alloc(&History { before, amount: PAID, date: 1, warehouse, district, data })?;
    let customer = tables.customer(tx, district_id, customer)?;
    tx.write_field(customer, field!(Customer, account))?.history = history;
    Ok(())
}

/// An order with its lines; of the last three in ten a row of NEW-ORDER too.
fn order<X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &mut X,
    (warehouse, district): (u32, u32),
    (id, customer): (u32, u32),
    random: &mut Random,
) -> tx::Result<()> {
    let delivered = id <= tables.scale.delivered();
    let count = between(random, 5, LINES_MAX as u64) as usize;
    let lines = Lines { at: tx.alloc_bytes(Lines::bytes(count), 8)?, count };
    for at in 0..count {
        let (number, item) = (at as u32 + 1, between(random, 1, tables.scale.items.into()) as u32);
        let amount = if delivered { 0 } else { between(random, 1, 999_999) as i64 };
        let district_info = text(random, 24);
        *tx.write(lines.line(at))? = Line { number, item, supply: warehouse, quantity: 5, amount, district_info };
        *tx.write(lines.delivered(at))? = delivered.into();
    }
    let carrier = if delivered { between(random, 1, 10) as u32 } else { 0 };
    let row = Order { carrier, id, customer, district, warehouse, lines: count as u32, all_local: 1, entry_date: 1 };
    let row = tx.alloc(&row)?;
    add_order(tables.part(warehouse, district)?, tx, (id, customer), row, lines, !delivered)
}

// ---- contents -------------------------------------------------------------------------------------------------------

/// Letters, at least so many, then zeros (an *a-string* of clause 4.3.2.2).
fn text<const N: usize>(random: &mut Random, least: usize) -> [u8; N]
where
    [u8; N]: Persist,
{
    let mut text = [0; N];
    let len = between(random, least as u64, N as u64) as usize;
    text[..len].fill_with(|| b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[random.below(52) as usize]);
    text
}

/// Letters, one time in ten with `ORIGINAL` somewhere in them (clause 4.3.3.1).
fn data(random: &mut Random) -> [u8; 50] {
    let mut data = text(random, 26);
    if random.below(10) == 0 {
        let at = random.below(26 - 8 + 1) as usize;
        data[at..at + 8].copy_from_slice(b"ORIGINAL");
    }
    data
}

fn digit(random: &mut Random) -> u8 {
    b'0' + random.below(10) as u8
}

/// The numbers 1 to `count`, in any order.
fn permutation(count: u32, random: &mut Random) -> Vec<u32> {
    let mut all: Vec<u32> = (1..=count).collect();
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at as u64 + 1) as usize);
    }
    all
}
