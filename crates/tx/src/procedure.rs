//! Transactions with a name.

use crate::{Isolation, Result, Transaction};

/// A transaction as a function with a name, of which nothing but its arguments and what it reads decides what it does. An engine may log the call in place of what it changed,
/// or send it to other machines, and run it again there.
///
/// ```
/// use pmem::PPtr;
/// use tx::{Engine, Procedure, Reference, Result, Transaction, Typed};
///
/// struct Deposit;
///
/// impl Procedure for Deposit {
///     const NAME: &'static str = "deposit";
///     type Args = (PPtr<u64>, u64);
///     type Output = u64;
///
///     fn run<X: Transaction>(tx: &mut X, &(account, sum): &Self::Args) -> Result<u64> {
///         let balance = tx.write(account)?;
///         *balance += sum;
///         Ok(*balance)
///     }
/// }
///
/// # let engine = Reference::new();
/// let account = engine.transact(tx::Isolation::Serializable, |tx| tx.alloc(&5u64))?;
/// assert_eq!(engine.call::<Deposit>(&(account, 7))?, 12);
/// # Ok::<(), tx::Error>(())
/// ```
pub trait Procedure {
    /// Its name, unique in a program.
    const NAME: &'static str;
    /// To be raised when the same call would do something else.
    const VERSION: u32 = 1;
    /// What its transactions may see of others.
    const ISOLATION: Isolation = Isolation::Serializable;
    /// What it is called with.
    type Args: ?Sized;
    /// What it returns.
    type Output;

    /// Does it.
    ///
    /// # Errors
    /// Those of the transaction, and its own.
    fn run<X: Transaction>(tx: &mut X, args: &Self::Args) -> Result<Self::Output>;
}
