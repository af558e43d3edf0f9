//! The consistency conditions (clause 3.3.2) 1 to 10 and 12, each over all rows. Number 11 is about tables that nothing was delivered from.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use structures::Map;
use tx::{Engine, Transaction, Typed};

use super::DISTRICTS;
use super::rows::{Lines, Order};
use super::tables::{Keyed, Part, Tables, number, row};
use crate::target::ISOLATION;
use crate::{Error, Result};

/// Rows of the tables that grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) orders: u64,
    pub(crate) new_orders: u64,
    pub(crate) lines: u64,
    pub(crate) payments: u64,
}

/// Walks and checks everything. No other thread may change anything meanwhile.
///
/// # Errors
/// [`Error::Wrong`] names the first condition that does not hold.
pub(crate) fn check<E: Engine, M: Keyed>(engine: &E, tables: &Tables<M>) -> Result<Census> {
    let districts = (tables.scale.warehouses * DISTRICTS) as usize;
    let mut check = Check { who: engine.name(), tables, census: Census::default(), paid: vec![0; districts] };
    for warehouse in 1..=tables.scale.warehouses {
        for district in 1..=DISTRICTS {
            engine.transact(ISOLATION, |tx| check.district(tx, (warehouse, district)))?;
        }
    }
    // What was paid in a district is known when the customers of all have been seen.
    for warehouse in 1..=tables.scale.warehouses {
        engine.transact(ISOLATION, |tx| check.warehouse(tx, warehouse))?;
    }
    Ok(check.census)
}

struct Check<'t, M> {
    who: &'static str,
    tables: &'t Tables<M>,
    census: Census,
    /// Sum of HISTORY for each district of payment.
    paid: Vec<i64>,
}

/// What the orders of a district come to.
#[derive(Default)]
struct Orders {
    count: u64,
    lines: u64,
    /// Their sum according to ORDER.
    counts: u64,
    last: u32,
    /// Of each customer, what was delivered to him.
    delivered: Vec<i64>,
}

impl<M: Keyed> Check<'_, M> {
    fn hold<T: PartialEq + std::fmt::Display>(
        &self,
        condition: u32,
        district_id: impl std::fmt::Debug,
        (left, right): (T, T),
    ) -> Result<()> {
        if left == right {
            return Ok(());
        }
        let what = format!("TPC-C condition {condition} does not hold at {district_id:?}: {left} is not {right}");
        Err(Error::Wrong { who: self.who.into(), what })
    }

    fn district<X: Transaction>(&mut self, tx: &X, district_id: (u32, u32)) -> Result<()> {
        let part = self.tables.part(district_id.0, district_id.1)?;
        let trees = [&part.by_name, &part.orders, &part.by_customer, &part.new_orders, &part.lines];
        for tree in trees {
            tree.verify(tx)?;
        }
        let new_orders = numbers(part, tx)?;
        let orders = self.orders(tx, district_id, part, &new_orders)?;
        self.hold(4, district_id, (orders.counts, orders.lines))?;
        for index in [&part.by_customer, &part.lines] {
            self.hold(4, district_id, (index.len(tx)?, orders.count))?;
        }

        let next = tx.read(self.tables.district(tx, district_id)?)?.next_order;
        self.hold(2, district_id, (next - 1, orders.last))?;
        if let (Some(first), Some(last)) = (new_orders.first(), new_orders.last()) {
            self.hold(2, district_id, (next - 1, *last))?;
            self.hold(3, district_id, (u64::from(last - first) + 1, new_orders.len() as u64))?;
        }
        let paid = self.customers(tx, district_id, &orders)?;
        self.census.orders += orders.count;
        self.census.lines += orders.lines;
        self.census.new_orders += new_orders.len() as u64;
        self.census.payments += paid;
        Ok(())
    }

    /// Conditions 5 to 7 of each order.
    fn orders<X: Transaction>(
        &self,
        tx: &X,
        district_id: (u32, u32),
        part: &Part,
        new_orders: &BTreeSet<u32>,
    ) -> Result<Orders> {
        let mut rows = Vec::new();
        part.orders.for_each(tx, |_, value| {
            rows.push(row::<Order>(Some(value), "order"));
            ControlFlow::Continue(())
        })?;
        let delivered = vec![0; self.tables.scale.customers as usize];
        let mut orders = Orders { delivered, ..Orders::default() };
        for order in rows {
            let order = tx.read(order?)?;
            let here = (district_id, order.id);
            self.hold(5, here, (order.carrier == 0, new_orders.contains(&order.id)))?;
            let lines = part.lines(tx, order.id)?;
            let (count, undated, amount) = read_lines(tx, lines)?;
            self.hold(6, here, (order.lines.into(), count))?;
            self.hold(7, here, (if order.carrier == 0 { count } else { 0 }, undated))?;
            orders.count += 1;
            orders.lines += count;
            orders.counts += u64::from(order.lines);
            orders.last = orders.last.max(order.id);
            if order.carrier != 0 {
                orders.delivered[order.customer as usize - 1] += amount;
            }
        }
        for id in new_orders {
            part.order(tx, *id)?; // none without its order
        }
        Ok(orders)
    }

    /// Conditions 10 and 12 of each customer. Returns how many payments there were.
    fn customers<X: Transaction>(&mut self, tx: &X, district_id: (u32, u32), orders: &Orders) -> Result<u64> {
        let mut payments = 0;
        for id in 1..=self.tables.scale.customers {
            let account = tx.read(self.tables.customer(tx, district_id, id)?)?.account;
            let (mut paid, mut count, mut next) = (0, 0, account.history);
            while !next.is_null() {
                let history = tx.read(next)?;
                paid += history.amount;
                let at = (history.warehouse - 1) * DISTRICTS + history.district - 1;
                self.paid[at as usize] += history.amount;
                count += 1;
                next = history.before;
            }
            let delivered = orders.delivered[id as usize - 1];
            self.hold(10, (district_id, id), (account.balance, delivered - paid))?;
            self.hold(12, (district_id, id), (account.balance + account.ytd_payment, delivered))?;
            payments += count;
        }
        Ok(payments)
    }

    /// Conditions 1, 8 and 9.
    fn warehouse<X: Transaction>(&self, tx: &X, warehouse: u32) -> Result<()> {
        let ytd = tx.read(self.tables.warehouse(tx, warehouse)?)?.ytd;
        let (mut of_districts, mut paid) = (0, 0);
        let mut districts = Vec::new();
        for district in 1..=DISTRICTS {
            let ytd = tx.read(self.tables.district(tx, (warehouse, district))?)?.ytd;
            let here = self.paid[((warehouse - 1) * DISTRICTS + district - 1) as usize];
            of_districts += ytd;
            paid += here;
            districts.push((ytd, here));
        }
        self.hold(1, warehouse, (ytd, of_districts))?;
        self.hold(8, warehouse, (ytd, paid))?;
        districts.into_iter().zip(1..).try_for_each(|(both, district)| self.hold(9, (warehouse, district), both))
    }
}

/// The rows of NEW-ORDER.
fn numbers<X: Transaction>(part: &Part, tx: &X) -> Result<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    part.new_orders.for_each(tx, |key, _| {
        all.extend(number(key));
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

/// Lines that are there, those of them without a date, and what all cost.
fn read_lines<X: Transaction>(tx: &X, lines: Lines) -> Result<(u64, u64, i64)> {
    let (mut count, mut undated, mut amount) = (0, 0, 0);
    for at in 0..lines.count {
        let line = tx.read(lines.line(at))?;
        if line.number == at as u32 + 1 {
            count += 1;
            undated += u64::from(*tx.read(lines.delivered(at))? == 0);
            amount += line.amount;
        }
    }
    Ok((count, undated, amount))
}
