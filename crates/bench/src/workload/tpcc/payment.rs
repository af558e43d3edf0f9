//! Payment (clause 2.5).

use std::io::Write as _;

use pmem::PPtr;
use tx::{ToRange, Transaction, Typed, field};

use super::input::Payment;
use super::rows::{Customer, District, History, Warehouse};
use super::tables::{Keyed, Tables};
use super::{Forgets, Style};

/// Returns the customer's balance.
pub(super) fn payment<X: Transaction, M: Keyed>(
    tables: &Tables<M>,
    tx: &mut X,
    payment: &Payment,
    style: Style,
) -> tx::Result<i64> {
    let warehouse = tables.warehouse(tx, payment.warehouse)?;
    let district = tables.district(tx, (payment.warehouse, payment.district))?;
    let customer = tables.who(tx, (payment.customer_warehouse, payment.customer_district), payment.customer)?;
    let bad_credit = *tx.read(field!(Customer, credit).of(customer))? == *b"BC";

    let (of_warehouse, of_district) = (field!(Warehouse, ytd).of(warehouse), field!(District, ytd).of(district));
    let (account, data) = (field!(Customer, account).of(customer), field!(Customer, data).of(customer));
    if style.together() {
        let all = [of_warehouse.range(), of_district.range(), account.range(), data.range()];
        tx.intend(if bad_credit { &all } else { &all[..3] })?;
    }

    *tx.write(of_warehouse)? += payment.amount;
    if !style.forgets(Forgets::DistrictYtd) {
        *tx.write(of_district)? += payment.amount;
    }
    let mut now = *tx.read(account)?;
    now.balance -= payment.amount;
    now.ytd_payment += payment.amount;
    now.payments += 1;
    if !style.forgets(Forgets::History) {
        let mut text = [b' '; 24];
        text[..10].copy_from_slice(tx.read(field!(Warehouse, name).of(warehouse))?);
        text[14..].copy_from_slice(tx.read(field!(District, name).of(district))?);
        let Payment { warehouse, district, amount, date, .. } = *payment;
        now.history = tx.alloc(&History { before: now.history, amount, date, warehouse, district, data: text })?;
    }
    *tx.write(account)? = now;
    if bad_credit {
        remark(tx, payment, customer)?;
    }
    Ok(now.balance)
}

/// A customer with bad credit has the payments noted in front of what was noted before (clause 2.5.2.2).
fn remark<X: Transaction>(tx: &mut X, payment: &Payment, customer: PPtr<Customer>) -> tx::Result<()> {
    let id = *tx.read(field!(Customer, id).of(customer))?;
    let mut remark = [0; 64];
    let mut rest = &mut remark[..];
    let [c, d] = [payment.customer_warehouse, payment.customer_district];
    // As much as fits, which all of it does.
    let _ = write!(rest, "{id} {d} {c} {} {} {}|", payment.district, payment.warehouse, payment.amount);
    let used = 64 - rest.len();
    let data = tx.write(field!(Customer, data).of(customer))?;
    data.copy_within(..500 - used, used);
    data[..used].copy_from_slice(&remark[..used]);
    Ok(())
}
