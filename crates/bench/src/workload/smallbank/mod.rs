//! SmallBank (Alomar et al. 2008, with SendPayment of H-Store): customers with a savings and a checking account each, six procedures.
//!
//! | file | what is in it |
//! |---|---|
//! | `procedures` | the procedures, over whatever holds accounts |
//! | `objects` | accounts as objects, in maps on any engine |
//! | `keys` | accounts as keys and values |
//!
//! Every procedure finds its customers by name, reads, decides, and then changes all it changes at once, which an engine is told beforehand. What was put in
//! and taken out tells how much there must be in the end.

mod keys;
mod objects;
mod procedures;
#[cfg(test)]
mod tests;

pub(crate) use keys::InKeys;
pub(crate) use objects::InObjects;
pub(crate) use procedures::Procedure;

use crate::target::Aborts;
use crate::workload::Random;
use crate::{Error, Result};

/// How many customers the bank has, and how much they do.
///
/// ```
/// let bank = bench::workload::smallbank::Bank { customers: 1000, ..Default::default() };
/// assert_eq!((bank.hot, bank.hot_percent), (100, 25));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Customers.
    pub customers: u64,
    /// The first so many are the hotspot.
    pub hot: u64,
    /// Of 100 customers that are picked so many are of the hotspot.
    pub hot_percent: u64,
}

impl Default for Bank {
    /// 100,000 customers, of whom 100 are picked a quarter of the time.
    fn default() -> Self {
        Self { customers: 100_000, hot: 100, hot_percent: 25 }
    }
}

/// What is in an account at first, in cents.
pub(crate) const AT_FIRST: i64 = 10_000;

impl Bank {
    fn customer(&self, random: &mut Random) -> u64 {
        let hot = self.hot.min(self.customers);
        if hot == self.customers || random.below(100) < self.hot_percent {
            random.below(hot)
        } else {
            hot + random.below(self.customers - hot)
        }
    }

    /// Two different ones.
    fn pair(&self, random: &mut Random) -> [u64; 2] {
        let first = self.customer(random);
        loop {
            let second = self.customer(random);
            if second != first {
                return [first, second];
            }
        }
    }

    /// The next procedure: a quarter SendPayment, 15 % each of the others.
    pub(crate) fn next(&self, random: &mut Random) -> Procedure {
        let amount = 1 + random.below(5_000) as i64;
        match random.below(100) {
            ..25 => Procedure::SendPayment { between: self.pair(random), amount },
            25..40 => Procedure::Balance { of: self.customer(random) },
            40..55 => Procedure::DepositChecking { of: self.customer(random), amount },
            // As much is taken out as put in.
            55..70 => Procedure::TransactSavings { of: self.customer(random), amount: amount - 2_500 },
            70..85 => Procedure::WriteCheck { of: self.customer(random), amount },
            _ => Procedure::Amalgamate { between: self.pair(random) },
        }
    }
}

/// A customer's name.
pub(crate) type Name = [u8; 16];

/// The name of a customer.
fn name(customer: u64) -> Name {
    let mut name = *b"customer00000000";
    let mut rest = customer;
    for digit in name[8..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// What became of a procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// What there is more than before, 0 if it was refused.
    pub(crate) gained: i64,
    pub(crate) refused: bool,
    pub(crate) aborts: Aborts,
}

/// All money there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) accounts: u64,
    pub(crate) money: i64,
    /// The least that is in a savings account, which nothing overdraws.
    pub(crate) least_savings: i64,
}

/// A bank that is open: each thread has its own way in.
pub(crate) trait Open: Sync {
    /// Runs a procedure until it is committed or refused.
    fn run(&self, procedure: &Procedure) -> Result<Done>;

    /// Counts everything. No other thread may change anything meanwhile.
    fn books(&self) -> Result<Books>;
}

/// What an attempt gained, or that it was refused for good.
fn done(outcome: tx::Result<i64>, tries: u64) -> Result<Done> {
    let aborts = tries - 1;
    match outcome {
        Ok(gained) => Ok(Done { gained, refused: false, aborts }),
        Err(tx::Error::Aborted { .. }) => Ok(Done { gained: 0, refused: true, aborts }),
        Err(error) => Err(error.into()),
    }
}

/// Holds what is there against what was gained since the bank was opened.
///
/// # Errors
/// [`Error::Wrong`] if money was lost or came from nowhere, or a savings account is overdrawn.
pub(crate) fn audit(who: &str, bank: &Bank, books: &Books, gained: i64) -> Result<()> {
    let wrong = |what: String| Err(Error::Wrong { who: who.into(), what: format!("SmallBank: {what}") });
    let (accounts, money) = (2 * bank.customers, 2 * bank.customers as i64 * AT_FIRST + gained);
    if books.accounts != accounts {
        return wrong(format!("{} accounts, there were {accounts}", books.accounts));
    }
    if books.money != money {
        return wrong(format!("{} cents, expected {money}", books.money));
    }
    if books.least_savings < 0 {
        return wrong(format!("a savings account with {} cents", books.least_savings));
    }
    Ok(())
}
