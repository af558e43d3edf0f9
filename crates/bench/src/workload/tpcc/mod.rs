//! TPC-C (revision 5.11): the nine tables on the structures, the five transactions, the consistency conditions.
//!
//! | file | what is in it |
//! |---|---|
//! | `rows` | rows, as fixed-layout structs |
//! | `tables` | where rows are found: hash maps by key, B+trees by order |
//! | `populate` | what is in them at first (clause 4.3) |
//! | `input` | what terminals ask for |
//! | `new_order`, `payment`, `others` | the transactions (clause 2), each one of the engine |
//! | `check` | the consistency conditions (clause 3.3.2) |
//!
//! What the standard says of screens, thinking and prices is left out: a terminal is a thread that never waits, for a warehouse of its own, and a
//! Delivery is not deferred. Only ratios of such figures mean anything.

mod check;
mod input;
#[cfg(test)]
mod kill;
mod new_order;
mod others;
mod payment;
mod populate;
mod rows;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

pub(crate) use check::check;
pub(crate) use input::{Input, Terminal};
use tx::{Engine, Transaction};

pub(crate) use tables::{Keyed, Tables};

use crate::target::{Aborts, ISOLATION};
use crate::{Error, Result};

/// Districts of a warehouse.
pub(crate) const DISTRICTS: u32 = 10;

/// How many rows there are.
///
/// ```
/// let scale = bench::workload::tpcc::Scale { warehouses: 8, ..Default::default() };
/// assert_eq!((scale.customers, scale.items), (3000, 100_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses, each with ten districts.
    pub warehouses: u32,
    /// Customers of a district, and its orders at first.
    pub customers: u32,
    /// Items, and stocks of a warehouse.
    pub items: u32,
}

impl Default for Scale {
    /// One warehouse of the standard's size.
    fn default() -> Self {
        Self { warehouses: 1, customers: 3000, items: 100_000 }
    }
}

impl Scale {
    /// Last names that occur.
    fn names(self) -> u32 {
        self.customers.min(1000)
    }

    /// Orders that are delivered at first: all but 900 of 3000.
    fn delivered(self) -> u32 {
        self.customers - self.customers * 3 / 10
    }

    /// Bytes and blocks of all rows, with `orders` more, about.
    pub(crate) fn room(self, orders: u64) -> (u64, u64) {
        let (warehouses, items) = (u64::from(self.warehouses), u64::from(self.items));
        let customers = warehouses * u64::from(DISTRICTS * self.customers);
        let orders = customers + orders;
        // Rows; then what leads to them, in hash maps and B+trees.
        let rows = items * 96 + warehouses * items * 320 + customers * 704 + orders * (48 + 580 + 56);
        let ways = items * 64 + warehouses * items * 64 + customers * (64 + 90) + orders * 150;
        (rows + ways, items * (2 + 2 * warehouses) + customers * 2 + orders * 3)
    }
}

/// Which transactions.
///
/// ```
/// use bench::workload::tpcc::Mix;
/// assert_eq!("new-order".parse(), Ok(Mix::NewOrder));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All five: 45 % New-Order, 43 % Payment, 4 % each of the others.
    Standard,
    /// New-Order alone.
    NewOrder,
    /// Payment alone.
    Payment,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Standard, Self::NewOrder, Self::Payment];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::NewOrder => "new-order",
            Self::Payment => "payment",
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mix| mix.name() == name);
        found.ok_or_else(|| format!("{name:?} is no mix: standard, new-order or payment"))
    }
}

/// How changes are declared.
///
/// ```
/// use bench::workload::tpcc::Declare;
/// assert_eq!("each".parse(), Ok(Declare::Each));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declare {
    /// All of a transaction's at once: an engine that must do something persistent before a change does it once.
    Together,
    /// Each object's and each index's when it is changed: what a program does that was not written for such an engine.
    Each,
}

impl Declare {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Together, Self::Each];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::Each => "each",
        }
    }
}

impl fmt::Display for Declare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Declare {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|declare| declare.name() == name);
        found.ok_or_else(|| format!("{name:?} is neither together nor each"))
    }
}

/// How transactions are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) declare: Declare,
    /// The engine can take back what it has changed. Else all is locked and looked up before anything is changed.
    pub(crate) rolls_back: bool,
    /// What a transaction forgets, to see that the check notices.
    pub(crate) forgets: Option<Forgets>,
}

impl Style {
    pub(crate) fn new(declare: Declare) -> Self {
        Self { declare, rolls_back: true, forgets: None }
    }

    fn together(self) -> bool {
        self.declare == Declare::Together || !self.rolls_back
    }

    fn forgets(self, what: Forgets) -> bool {
        self.forgets == Some(what)
    }
}

/// A bug of a transaction. Only tests have some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgets {
    /// Payment: the district's share.
    DistrictYtd,
    /// Payment: the row of HISTORY.
    History,
    /// New-Order: the row of NEW-ORDER.
    NewOrder,
    /// New-Order: the last row of ORDER-LINE.
    LastLine,
    /// New-Order: the district's next number.
    NextOrder,
    /// Delivery: to take the row of NEW-ORDER away.
    Deletion,
    /// Delivery: what the customer owes.
    Balance,
    /// Delivery: the dates of the lines.
    Dates,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// False if it was rolled back because it asked for an item that there is not.
    pub(crate) committed: bool,
    pub(crate) aborts: Aborts,
}

/// Runs a transaction until it is committed, or rolled back for good.
pub(crate) fn run<E: Engine, M: Keyed>(engine: &E, tables: &Tables<M>, input: &Input, style: Style) -> Result<Done> {
    let mut tries = 0;
    let outcome = engine.transact(ISOLATION, |tx| {
        tries += 1;
        one(tables, tx, input, style)
    });
    let committed = match (outcome, input) {
        (Ok(_), _) => true,
        (Err(tx::Error::Aborted { .. }), Input::NewOrder(_)) => false,
        (Err(error), _) => return Err(Error::from(error)),
    };
    Ok(Done { committed, aborts: tries - 1 })
}

/// The transaction itself. Returns something of what the terminal would show, so that it is really looked up.
fn one<X: Transaction, M: Keyed>(tables: &Tables<M>, tx: &mut X, input: &Input, style: Style) -> tx::Result<i64> {
    match input {
        Input::NewOrder(order) => new_order::new_order(tables, tx, order, style),
        Input::Payment(payment) => payment::payment(tables, tx, payment, style),
        Input::OrderStatus { warehouse, district, customer } => {
            others::order_status(tables, tx, (*warehouse, *district), *customer)
        }
        Input::Delivery { warehouse, carrier, date } => {
            others::delivery(tables, tx, *warehouse, (*carrier, *date), style)
        }
        Input::StockLevel { warehouse, district, threshold } => {
            others::stock_level(tables, tx, (*warehouse, *district), *threshold)
        }
    }
}
