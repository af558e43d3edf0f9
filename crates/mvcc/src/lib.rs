//! Objects with several versions: transactions whose readers write nothing, and snapshots that are held for minutes beside writers (TimeStone, ASPLOS 2020).
//!
//! An object's *master* lies in the pool. A transaction that changes it makes a copy in DRAM; the commit logs what has changed, with one barrier, and puts the copy in front of the
//! object's chain of versions. A reader takes the newest version that is no newer than its snapshot, or the master. Later, and once for many changes, the newest version is
//! written back to its master.
//!
//! # The way of a transaction
//!
//! | module | what it does with it |
//! |---|---|
//! | `mvcc`, `options`, `assemble` | [`Mvcc::create`], [`Mvcc::open`], `begin`; what a store is put together from |
//! | `tx_slot` | the clock; which transactions run since when, and which are about to commit |
//! | `transaction`, `set` | reads what its snapshot sees; locks what it writes, and copies it; what it knows of itself |
//! | `space` | blocks for new objects |
//! | `savepoints` | parts of a transaction that are undone alone |
//! | `header` | the lock of an object, and its chain, found through a word of the allocator |
//! | `commit`, `record` | makes it durable by one record, of values or of a call, and lets others see it |
//! | `calls`, `procedures` | what calls are of, and what the pool knows that by |
//! | `log`, `inbox` | what it leaves to the upkeep |
//! | `upkeep`, `pass`, `background` | writes back, and gives up what is no longer needed; how far that has come |
//! | `recovery`, `durable`, `replay` | carries out again what is durable and was not written back; runs calls again |
//! | `snapshot` | [`Snapshot`]: one state for minutes |
//! | `backup` | a copy beside running transactions |
//! | `handover` | takes over the objects of another engine |
//! | `stats` | counts |
//! | `failpoints` | for tests that must be seen to fail |
//! | `core`, `state` | what they share; what a store says about itself |
//! | `raw` | versions, chains, and the unsafe code |
//!
//! # What there is not, yet
//!
//! There are no nested top actions, and no repair of damaged objects. `docs/mvcc.md` tells.
//!
//! ```
//! # fn main() -> tx::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! use mvcc::{Mvcc, Options};
//! use tx::{Engine, Isolation, Typed};
//!
//! let store = Mvcc::create(dir.path().join("numbers"), &Options::new().bytes(1 << 20))?;
//! let number = store.transact(Isolation::Serializable, |tx| tx.alloc(&1u64))?;
//! let reader = store.begin(Isolation::Serializable)?;
//! store.transact(Isolation::Serializable, |tx| -> tx::Result<()> { *tx.write(number)? = 2; Ok(()) })?; // is not in the reader's way
//! assert_eq!(*reader.read(number)?, 1);
//! assert_eq!(*store.begin(Isolation::Serializable)?.read(number)?, 2);
//! # Ok(()) }
//! ```

#![deny(unsafe_code)]

mod assemble;
mod background;
mod backup;
mod calls;
mod commit;
mod core;
mod durable;
mod failpoints;
mod handover;
mod header;
mod inbox;
mod log;
mod mvcc;
mod options;
mod pass;
mod procedures;
#[allow(unsafe_code)]
mod raw;
mod record;
mod recovery;
mod replay;
mod savepoints;
mod set;
mod snapshot;
mod space;
mod state;
mod stats;
mod transaction;
mod tx_slot;
mod upkeep;

pub use backup::Backup;
#[cfg(feature = "failpoints")]
pub use failpoints::Step;
pub use mvcc::Mvcc;
pub use options::Options;
pub use recovery::Recovery;
pub use snapshot::Snapshot;
pub use stats::{Sizes, Stats};
pub use transaction::Tx;
