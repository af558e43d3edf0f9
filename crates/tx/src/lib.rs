//! Transactions on persistent objects: what every engine of Cairn has in common.
//!
//! | module | what it says |
//! |---|---|
//! | `isolation` | what a transaction may see of others |
//! | `engine` | [`Engine::begin`], and [`Engine::transact`], which retries conflicts with the pauses of `backoff` |
//! | `transaction` | [`Transaction`]: read, change, allocate and free objects, commit or abort; [`Typed`] on top of it |
//! | `savepoints` | [`Savepoints`], [`NestedTop`]: parts of a transaction that are undone, or committed, alone |
//! | `procedure` | [`Procedure`]: a transaction with a name, for [`Engine::call`] |
//! | `error` | what can go wrong, and what to do about it |
//! | `kv` | [`Kv`], [`KvTx`]: the same for keys and values |
//! | `slots`, `clock`, `backup` | parts that engines share |
//! | `handover` | [`Handover`]: objects on their way from one engine to another |
//! | `reference` | [`Reference`]: an engine in DRAM that is obviously right, for tests |
//!
//! Crate `cairn-conformance` is the suite that every engine must pass.
//!
//! ```
//! use pmem::{PPtr, Persist};
//! use tx::{Engine, Isolation, Reference, Typed};
//!
//! #[derive(Clone, Copy, Persist)]
//! #[repr(C)]
//! struct Account { balance: i64 }
//!
//! fn transfer<E: Engine>(bank: &E, from: PPtr<Account>, to: PPtr<Account>, sum: i64) -> tx::Result<()> {
//!     bank.transact(Isolation::Serializable, |tx| {
//!         if tx.read(from)?.balance < sum {
//!             return Err(tx.refuse("not enough money"));
//!         }
//!         tx.write(from)?.balance -= sum;
//!         tx.write(to)?.balance += sum;
//!         Ok(())
//!     })
//! }
//!
//! let bank = Reference::new();
//! let (a, b) = bank.transact(Isolation::Serializable, |tx| -> tx::Result<_> {
//!     Ok((tx.alloc(&Account { balance: 100 })?, tx.alloc(&Account { balance: 0 })?))
//! })?;
//! transfer(&bank, a, b, 30)?;
//! assert!(transfer(&bank, a, b, 80).is_err());
//! # Ok::<(), tx::Error>(())
//! ```

#![forbid(unsafe_code)]

mod backoff;
mod backup;
mod clock;
mod engine;
mod error;
mod evolve;
mod handover;
mod isolation;
mod kv;
mod procedure;
mod reference;
mod savepoints;
mod slots;
mod transaction;

pub use backoff::{Backoff, RetryPolicy};
#[doc(hidden)]
pub use backoff::{Queue, Waited};
pub use backup::Backup;
pub use clock::{Clock, CounterClock, Timestamp};
pub use engine::{Attempt, Engine};
pub use error::{Error, Result};
pub use evolve::{Batch, Evolving, evolve};
pub use handover::Handover;
#[doc(hidden)]
pub use handover::pass_over;
pub use isolation::Isolation;
pub use kv::{Keys, Kv, KvTx, Visit};
pub use pmem::ErrorKind;
pub use procedure::Procedure;
#[doc(hidden)]
pub use reference::Buffer;
#[doc(hidden)]
pub use reference::Bug;
pub use reference::{Reference, ReferenceTx};
pub use savepoints::{NestedTop, Savepoint, Savepoints};
pub use slots::Slots;
pub use transaction::{Doom, Field, Range, ToRange, Transaction, Typed};
