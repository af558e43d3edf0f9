//! Objects in a pool, updated in place under transactions.
//!
//! One kind of heap, one lock map, one allocator; what differs is how an unfinished transaction is rolled back, the heap's [`Policy`]: not at all, from
//! old bytes in a log (*undo*), or from a backup that follows the main copy (*in place*; Kamino-Tx, EuroSys 2017, §3, here with one
//! barrier where the paper has three), of all of it or of the objects written lately (*partial*; §4).
//!
//! # The way of a transaction
//!
//! | module | what it does with it |
//! |---|---|
//! | `heap`, `options` | [`Heap::create`], [`Heap::open`]; `begin` claims a slot |
//! | `assemble` | what a heap is put together from; a change of policy |
//! | `transaction`, `state` | resolves pointers, takes locks, hands references out, notes what is written |
//! | `lock`, `queue` | the lock word of a block; in which order those get it who met a conflict |
//! | `zones` | in place: marks the zone dirty before the first write into it |
//! | `copies`, `arena`, `partial` | in place with a partial backup: makes copies before the first write; where they are; opening and recovery |
//! | `intents` | in place, if it is to be so: says in the log what is about to be written |
//! | `staged` | what is overwritten unseen, until the commit |
//! | `undo` | undo: keeps the old bytes before a write |
//! | `own` | blocks for logs |
//! | `commit`, `record` | makes it durable by a record in the slot's ring, or takes it back |
//! | `log` | what is committed and not yet settled; settling |
//! | `pending` | the objects of that, and what their slot owes before it writes one again |
//! | `coordinator` | settles slots that have gone idle |
//! | `recovery` | finishes or undoes what a crash left |
//! | `backup` | a copy beside running transactions |
//! | `scrub`, `stats` | repairs what went bad at rest; counts |
//! | `sabotage` | for tests that must be seen to fail |
//! | `cell` | where cells that say what the heap is have their slots |
//! | `core`, `space`, `raw` | what they share; main and backup as lines of bytes; the unsafe code |
//!
//! # What it costs in memory
//!
//! DRAM: a heap with 64 slots that was just made or opened 400 KiB; in use 768 KiB, for each MiB of main 8 KiB, and for each object of 64 bytes 5, most
//! of it a lock that the place keeps when the object is freed. A partial backup adds up to 48 for each copy. Objects that nobody has looked at since opening cost nothing. Transactions add nothing that
//! stays, but for up to 32 KiB in each slot that overwrites by [`put_bytes`](tx::Transaction::put_bytes). The pool: main; in place as much again for the backup, and 1 KiB for each MiB; with a partial one `alpha` of it; 64 KiB of log per slot. What DRAM it takes is asserted in
//! `tests/memory`.
//!
//! ```
//! # fn main() -> tx::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! use heap::{Heap, Options, Policy};
//! use tx::{Engine, Isolation, Typed};
//!
//! let heap = Heap::create(dir.path().join("counter"), &Options::new().bytes(1 << 20).policy(Policy::InPlace))?;
//! let counter = heap.transact(Isolation::Strict, |tx| tx.alloc(&0u64))?;
//! let before = heap.pool().stats();
//! heap.transact(Isolation::Strict, |tx| -> tx::Result<()> { *tx.write(counter)? += 1; Ok(()) })?;
//! # let _ = before;
//! assert_eq!(heap.transact(Isolation::Strict, |tx| tx.read(counter).copied())?, 1);
//! # Ok(()) }
//! ```

#![deny(unsafe_code)]

mod arena;
mod assemble;
mod backup;
mod cell;
mod commit;
mod coordinator;
mod copies;
mod core;
mod heap;
mod intents;
mod lock;
mod log;
mod options;
mod own;
mod partial;
mod pending;
mod queue;
#[allow(unsafe_code)]
mod raw;
mod record;
mod recovery;
mod sabotage;
mod scrub;
mod space;
mod staged;
mod state;
mod stats;
mod transaction;
mod undo;
mod zones;

pub use backup::Backup;
pub use heap::Heap;
#[cfg(feature = "sabotage")]
pub use lock::{lock_words_changed, marks_lost};
pub use options::{Intents, Options, Policy};
pub use recovery::Recovery;
#[cfg(feature = "sabotage")]
pub use sabotage::Step;
pub use scrub::Scrubbed;
pub use stats::Stats;
pub use transaction::Tx;
