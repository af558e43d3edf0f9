//! Order-Status (clause 2.6), Delivery (2.7) and Stock-Level (2.8).

use std::ops::{Bound, ControlFlow};

use pmem::PPtr;
use structures::Map;
use tx::{Error, Keys, Range, ToRange, Transaction, Typed, field};

use super::input::Who;
use super::rows::{Customer, District, Level, Lines, Order, Stock};
use super::tables::{Keyed, Part, Tables};
use super::{DISTRICTS, Forgets, Style};

/// Returns what the customer's last order costs and he owes.
pub(super) fn order_status<X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &X,
    district_id: (u32, u32),
    who: Who,
) -> tx::Result<i64> {
    let part = tables.part(district_id.0, district_id.1)?;
    let customer = tx.read(tables.who(tx, district_id, who)?)?;
    let order = tx.read(part.last_order(tx, customer.id)?)?;
    let lines = part.lines(tx, order.id)?;
    let mut cost = customer.account.balance;
    for line in 0..lines.count {
        cost += tx.read(lines.line(line))?.amount;
        std::hint::black_box(*tx.read(lines.delivered(line))?);
    }
    Ok(cost)
}

/// An order that is delivered.
struct Parcel<'t> {
    part: &'t Part,
    id: u32,
    order: PPtr<Order>,
    lines: Lines,
    customer: PPtr<Customer>,
    amount: i64,
}

/// The oldest order of each district, where there is one. Returns how many.
pub(super) fn delivery<X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &mut X,
    warehouse: u32,
    (carrier, date): (u32, u64),
    style: Style,
) -> tx::Result<i64> {
    let mut parcels = Vec::with_capacity(DISTRICTS as usize);
    for district in 1..=DISTRICTS {
        let part = tables.part(warehouse, district)?;
        if let Some(id) = part.oldest(tx)? {
            parcels.push(pack(tables, tx, (warehouse, district), part, id)?);
        }
    }
    if style.together() {
        let mut ranges = Vec::with_capacity(64);
        for parcel in &parcels {
            parcel.part.declare_delivery(tx, parcel, &mut ranges)?;
        }
        tx.intend(&ranges)?;
    }
    for parcel in &parcels {
        if !style.forgets(Forgets::Deletion) {
            parcel.part.new_orders.delete(tx, &parcel.id.to_be_bytes())?;
        }
        *tx.write(field!(Order, carrier).of(parcel.order))? = carrier;
        if !style.forgets(Forgets::Dates) {
            let Range { at, len } = dates(parcel.lines);
            tx.bytes_mut(at, len)?.chunks_exact_mut(8).for_each(|to| to.copy_from_slice(&date.to_le_bytes()));
        }
        let account = tx.write_field(parcel.customer, field!(Customer, account))?;
        account.deliveries += 1;
        if !style.forgets(Forgets::Balance) {
            account.balance += parcel.amount;
        }
    }
    Ok(parcels.len() as i64)
}

fn pack<'t, X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &X,
    district_id: (u32, u32),
    part: &'t Part,
    id: u32,
) -> tx::Result<Parcel<'t>> {
    let order = part.order(tx, id)?;
    let customer = tables.customer(tx, district_id, tx.read(order)?.customer)?;
    let lines = part.lines(tx, id)?;
    let mut amount = 0;
    for line in 0..lines.count {
        amount += tx.read(lines.line(line))?.amount;
    }
    Ok(Parcel { part, id, order, lines, customer, amount })
}

impl Part {
    /// In the order in which it is changed.
    fn declare_delivery<X: Transaction>(&self, tx: &X, parcel: &Parcel<'_>, ranges: &mut Vec<Range>) -> tx::Result<()> {
        self.new_orders.declare_delete(tx, &parcel.id.to_be_bytes(), ranges)?;
        ranges.push(field!(Order, carrier).of(parcel.order).range());
        ranges.push(dates(parcel.lines));
        ranges.push(field!(Customer, account).of(parcel.customer).range());
        Ok(())
    }
}

/// The delivery dates of an order's lines.
fn dates(lines: Lines) -> Range {
    Range::new(lines.at, 8 * lines.count as u64)
}

/// Orders that Stock-Level looks at.
const RECENT: u32 = 20;

/// Returns how many items of the last orders are short.
pub(super) fn stock_level<X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &X,
    district_id: (u32, u32),
    threshold: i32,
) -> tx::Result<i64> {
    let next = *tx.read(field!(District, next_order).of(tables.district(tx, district_id)?))?;
    let from = Bound::Included(next.saturating_sub(RECENT).to_be_bytes().to_vec());
    let keys = Keys { from, to: Bound::Excluded(next.to_be_bytes().to_vec()), reverse: false };
    let mut recent = Vec::with_capacity(RECENT as usize);
    tables.part(district_id.0, district_id.1)?.lines.scan(tx, &keys, &mut |_, value| {
        recent.push(Lines::decode(value));
        ControlFlow::Continue(())
    })?;

    let mut items = Vec::with_capacity(300);
    for lines in recent {
        let lines = lines.ok_or_else(damaged)?;
        for line in 0..lines.count {
            items.push(tx.read(lines.line(line))?.item);
        }
    }
    items.sort_unstable();
    items.dedup();
    let mut short = 0;
    for item in items {
        let stock = tables.stock(tx, district_id.0, item)?;
        let Level { quantity, .. } = *tx.read(field!(Stock, level).of(stock))?;
        short += i64::from(quantity < threshold);
    }
    Ok(short)
}

#[cold]
fn damaged() -> Error {
    Error::Damaged { what: "TPC-C", offset: 0, why: "lines of an order are not where they should be".into() }
}
