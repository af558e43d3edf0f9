//! New-Order (clause 2.4).

use pmem::PPtr;
use structures::Map;
use tx::{Range, ToRange, Transaction, Typed, field};

use super::input::{NewOrder, Wanted};
use super::rows::{Customer, District, Level, Line, Lines, Order, Stock};
use super::tables::{Keyed, Part, Tables, key, value};
use super::{Forgets, Style};

/// A line whose item there is.
struct Picked<'i> {
    wanted: &'i Wanted,
    stock: PPtr<Stock>,
    price: i64,
    /// The item's part of being a brand.
    original: bool,
}

/// Everything is looked up, declared, and then changed; that an item is missing is acted upon last, so that there is something to roll back.
/// Returns the total.
pub(super) fn new_order<X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &mut X,
    order: &NewOrder,
    style: Style,
) -> tx::Result<i64> {
    let district_id = (order.warehouse, order.district);
    let part = tables.part(order.warehouse, order.district)?;
    let warehouse_tax = tx.read(tables.warehouse(tx, order.warehouse)?)?.tax;
    let district = tables.district(tx, district_id)?;
    let District { next_order: id, tax: district_tax, .. } = *tx.read(district)?;
    let discount = *tx.read(field!(Customer, discount).of(tables.customer(tx, district_id, order.customer)?))?;
    let picked = pick(tables, tx, order)?;
    let missing = picked.len() < order.count;
    if missing && !style.rolls_back {
        return Err(tx.refuse(UNUSED));
    }

    let next_order = field!(District, next_order).of(district);
    if style.together() {
        let mut ranges = Vec::with_capacity(32);
        ranges.push(next_order.range());
        ranges.extend(picked.iter().map(|line| field!(Stock, level).of(line.stock).range()));
        declare_inserts(part, tx, id, order, &mut ranges)?;
        tx.intend(&ranges)?;
    }

    if !style.forgets(Forgets::NextOrder) {
        *tx.write(next_order)? = id + 1;
    }
    let lines = Lines { at: tx.alloc_bytes(Lines::bytes(picked.len()), 8)?, count: picked.len() };
    let mut sum = 0;
    for (at, line) in picked.iter().enumerate() {
        sum += add_line(tx, order, lines, at, line, style)?;
    }
    insert(part, tx, id, order, lines, style)?;
    if missing {
        return Err(tx.refuse(UNUSED));
    }
    let rates = (10_000 - i64::from(discount)) * (10_000 + i64::from(warehouse_tax + district_tax));
    Ok(sum * rates / 100_000_000)
}

const UNUSED: &str = "no such item";

fn pick<'i, X: Transaction, M: Keyed>(tables: &Tables<M>, tx: &X, order: &'i NewOrder) -> tx::Result<Vec<Picked<'i>>> {
    let mut picked = Vec::with_capacity(order.count);
    for wanted in order.lines() {
        let Some(item) = tables.item(tx, wanted.item)? else { continue };
        let item = tx.read(item)?;
        let (price, original) = (item.price, is_original(&item.data));
        let stock = tables.stock(tx, wanted.supply.into(), wanted.item)?;
        picked.push(Picked { wanted, stock, price, original });
    }
    Ok(picked)
}

/// Takes from the stock, and writes the row of ORDER-LINE. Returns its amount; negative lines would be brands on a screen.
fn add_line<X: Transaction>(
    tx: &mut X,
    order: &NewOrder,
    lines: Lines,
    at: usize,
    line: &Picked<'_>,
    style: Style,
) -> tx::Result<i64> {
    let Wanted { item, supply, quantity } = *line.wanted;
    let stock = tx.read(line.stock)?;
    let district_info = stock.districts[order.district as usize - 1];
    let brand = line.original && is_original(&stock.data);
    std::hint::black_box(brand);

    let level = tx.write_field(line.stock, field!(Stock, level))?;
    let left = level.quantity - i32::from(quantity);
    *level = Level {
        quantity: if left >= 10 { left } else { left + 91 },
        ytd: level.ytd + u32::from(quantity),
        orders: level.orders + 1,
        remote: level.remote + u32::from(u32::from(supply) != order.warehouse),
    };
    let amount = line.price * i64::from(quantity);
    if at + 1 < lines.count || !style.forgets(Forgets::LastLine) {
        let (number, supply, quantity) = (at as u32 + 1, supply.into(), quantity.into());
        *tx.write(lines.line(at))? = Line { number, item, supply, quantity, amount, district_info };
    }
    Ok(amount)
}

/// What the rows of ORDER, NEW-ORDER and ORDER-LINE change of their trees.
fn declare_inserts<X: Transaction>(
    part: &Part,
    tx: &X,
    id: u32,
    order: &NewOrder,
    ranges: &mut Vec<Range>,
) -> tx::Result<()> {
    let number = id.to_be_bytes();
    part.orders.declare_put(tx, &number, 8, ranges)?;
    part.by_customer.declare_put(tx, &key(order.customer, id), 8, ranges)?;
    part.new_orders.declare_put(tx, &number, 0, ranges)?;
    part.lines.declare_put(tx, &number, 16, ranges)
}

fn insert<X: Transaction>(
    part: &Part,
    tx: &mut X,
    id: u32,
    order: &NewOrder,
    lines: Lines,
    style: Style,
) -> tx::Result<()> {
    let all_local = order.lines().iter().all(|line| u32::from(line.supply) == order.warehouse);
    let row = tx.alloc(&Order {
        carrier: 0,
        id,
        customer: order.customer,
        district: order.district,
        warehouse: order.warehouse,
        lines: lines.count as u32,
        all_local: all_local.into(),
        entry_date: order.date,
    })?;
    add_order(part, tx, (id, order.customer), row, lines, !style.forgets(Forgets::NewOrder))
}

/// An order and its lines into their trees.
pub(super) fn add_order<X: Transaction>(
    part: &Part,
    tx: &mut X,
    (id, customer): (u32, u32),
    row: PPtr<Order>,
    lines: Lines,
    new: bool,
) -> tx::Result<()> {
    let number = id.to_be_bytes();
    part.orders.put(tx, &number, &value(row))?;
    part.by_customer.put(tx, &key(customer, id), &value(row))?;
    if new {
        part.new_orders.put(tx, &number, &[])?;
    }
    part.lines.put(tx, &number, &lines.encode()).map(drop)
}

/// True if the data say so. All windows are looked at, without a branch for each.
fn is_original(data: &[u8; 50]) -> bool {
    const WORD: u64 = u64::from_le_bytes(*b"ORIGINAL");
    let words = data.windows(8).map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    words.fold(false, |found, word| found | (word == WORD))
}
