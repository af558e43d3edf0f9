//! Transactions with a name.

use crate::{Error, Isolation, Result, Transaction};

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

    /// Appends the arguments to `out`, as [`replay`](Self::replay) reads them, and says true. By default false: an engine logs what a call changes then, and not the call.
    fn encode(args: &Self::Args, out: &mut Vec<u8>) -> bool {
        let _ = (args, out);
        false
    }

    /// Runs it with arguments that were encoded. It has to do what it did then: recovery compares, and refuses to go on if it does something else.
    ///
    /// # Errors
    /// Those of [`run`](Self::run); [`Error::Aborted`] if they are no arguments.
    fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
        let _ = (tx, args);
        Err(Error::Aborted { reason: "the procedure encodes its arguments, and has no `replay`".into() })
    }
}
