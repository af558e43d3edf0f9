//! The six procedures.

use tx::Error;

use super::{Name, name};

/// One of them, with what it is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Procedure {
    /// Reads both accounts.
    Balance { of: u64 },
    /// Puts into checking.
    DepositChecking { of: u64, amount: i64 },
    /// Puts into savings, or takes out of it if that leaves no less than nothing.
    TransactSavings { of: u64, amount: i64 },
    /// Moves all that the first has to the second's checking.
    Amalgamate { between: [u64; 2] },
    /// Takes out of checking; one more if both together have too little.
    WriteCheck { of: u64, amount: i64 },
    /// Moves from the first's checking, which has it, to the second's.
    SendPayment { between: [u64; 2], amount: i64 },
}

/// An account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Savings,
    Checking,
}

/// What a transaction sees of the bank.
pub(crate) trait Accounts {
    /// Leads to an account.
    type At: Copy;

    /// The number of the customer of that name.
    fn find(&self, name: &Name) -> tx::Result<u64>;

    /// The customer's account.
    fn account(&self, table: Table, customer: u64) -> tx::Result<Self::At>;

    /// What is in it.
    fn read(&self, at: Self::At) -> tx::Result<i64>;

    /// Changes all of these, declared together.
    fn write(&mut self, changes: &[(Self::At, i64)]) -> tx::Result<()>;
}

/// The fee for a check that is not covered.
pub(super) const PENALTY: i64 = 1;

/// Runs it. Returns what there is more than before.
///
/// # Errors
/// [`Error::Aborted`] if it is refused; those of the transaction.
pub(super) fn run<A: Accounts>(accounts: &mut A, procedure: &Procedure) -> tx::Result<i64> {
    use Table::{Checking, Savings};
    match *procedure {
        Procedure::Balance { of } => {
            let customer = accounts.find(&name(of))?;
            let both = [Savings, Checking].map(|table| look(accounts, table, customer));
            let [(_, savings), (_, checking)] = pair(both)?;
            std::hint::black_box(savings + checking);
            Ok(0)
        }
        Procedure::DepositChecking { of, amount } => {
            let (at, checking) = look(accounts, Checking, accounts.find(&name(of))?)?;
            accounts.write(&[(at, checking + amount)])?;
            Ok(amount)
        }
        Procedure::TransactSavings { of, amount } => {
            let (at, savings) = look(accounts, Savings, accounts.find(&name(of))?)?;
            if savings + amount < 0 {
                return Err(refused());
            }
            accounts.write(&[(at, savings + amount)])?;
            Ok(amount)
        }
        Procedure::Amalgamate { between: [from, to] } => {
            let (from, to) = (accounts.find(&name(from))?, accounts.find(&name(to))?);
            let both = [Savings, Checking].map(|table| look(accounts, table, from));
            let [(savings_at, savings), (checking_at, checking)] = pair(both)?;
            let (to_at, to) = look(accounts, Checking, to)?;
            accounts.write(&[(savings_at, 0), (checking_at, 0), (to_at, to + savings + checking)])?;
            Ok(0)
        }
        Procedure::WriteCheck { of, amount } => {
            let customer = accounts.find(&name(of))?;
            let both = [Savings, Checking].map(|table| look(accounts, table, customer));
            let [(_, savings), (at, checking)] = pair(both)?;
            let taken = if savings + checking < amount { amount + PENALTY } else { amount };
            accounts.write(&[(at, checking - taken)])?;
            Ok(-taken)
        }
        Procedure::SendPayment { between: [from, to], amount } => {
            let (from, to) = (accounts.find(&name(from))?, accounts.find(&name(to))?);
            let (from_at, from) = look(accounts, Checking, from)?;
            let (to_at, to) = look(accounts, Checking, to)?;
            if from < amount {
                return Err(refused());
            }
            accounts.write(&[(from_at, from - amount), (to_at, to + amount)])?;
            Ok(0)
        }
    }
}

/// Where an account is, and what is in it.
fn look<A: Accounts>(accounts: &A, table: Table, customer: u64) -> tx::Result<(A::At, i64)> {
    let at = accounts.account(table, customer)?;
    Ok((at, accounts.read(at)?))
}

fn pair<T>([first, second]: [tx::Result<T>; 2]) -> tx::Result<[T; 2]> {
    Ok([first?, second?])
}

fn refused() -> Error {
    Error::Aborted { reason: "not enough money".into() }
}

/// What there must be is not there.
#[cold]
pub(super) fn missing(what: &'static str) -> Error {
    Error::Damaged { what: "SmallBank", offset: 0, why: format!("there is no such {what}") }
}
