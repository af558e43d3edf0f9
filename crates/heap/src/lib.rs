//! Objects in a pool, updated in place under transactions.
//!
//! One kind of heap, one lock map, one allocator; what differs is how an unfinished transaction is rolled back, the heap's [`Policy`]: not at all, from
//! old bytes in a log (*undo*), by new bytes that wait in a log (*eaw*), or from a backup that follows the main copy (*in place*; Kamino-Tx, EuroSys 2017, §3, here with one
//! barrier where the paper has three), of all of it or of the objects written lately (*partial*; §4).
//!
//! # The way of a transaction
//!
//! | module | what it does with it |
//! |---|---|
//! | `heap`, `options` | [`Heap::create`], [`Heap::open`]; `begin` claims a slot |
//! | `assemble` | what a heap is put together from; a change of policy |
//! | `core`, `ground` | what is open: slots, logs, locks; below them the pool, main and its second copy |
//! | `locking`, `transaction`, `state` | resolves pointers, takes locks, hands references out, notes what is written |
//! | `lock`, `queue` | the lock word of a block; in which order transactions that met a conflict get it |
//! | `zones` | in place: marks the zone dirty before the first write into it |
//! | `cover`, `copies`, `partial` | in place with a partial backup: makes copies before the first write; where they are; opening |
//! | `intents` | in place, if it is to be so: says in the log what is about to be written |
//! | `stage`, `staged` | what is overwritten unseen, until the commit |
//! | `undo` | undo: keeps the old bytes before a write |
//! | `nested` | eaw: savepoints, and nested top actions |
//! | `entries`, `redo` | eaw: what is written waits in entries; the commit logs them and then stores them |
//! | `own` | blocks for logs |
//! | `commit`, `ending`, `record` | makes it durable by a record in the slot's ring, or takes it back |
//! | `log` | what is committed and not yet applied; applying |
//! | `pending` | the objects of that, and what their slot owes before it writes one again |
//! | `coordinator` | applies slots that have gone idle |
//! | `growth`, `follower` | more room; what grows with main |
//! | `recovery` | finishes or undoes what a crash left, by policy |
//! | `backup` | a copy beside running transactions |
//! | `handover` | takes over the objects of another engine |
//! | `scrub`, `stats` | repairs what went bad at rest; counts |
//! | `failpoints` | for tests that must be seen to fail |
//! | `regions`, `cell` | the heap's regions in its pool; where cells that say what the heap is have their slots |
//! | `space`, `hash`, `counted`, `raw` | main and backup as lines of bytes; maps by address; what tests count; the unsafe code |
//!
//! # What it costs in memory
//!
//! DRAM: a heap with 64 slots that was just made or opened 416 KiB; in use 768 KiB, for each MiB of main 8 KiB, and for each object of 64 bytes 5, most
//! of it a lock that the place keeps when the object is freed. A partial backup adds up to 48 for each copy. Objects that were not looked at since opening cost nothing. Transactions add nothing that
//! stays, but for up to 32 KiB in each slot that overwrites by [`put_bytes`](tx::Transaction::put_bytes), or writes under policy `eaw`, 64 there. The pool: main; in place as much again for the backup, and 1 KiB for each MiB; with a partial one `alpha` of it; 64 KiB of log per slot. What DRAM it takes is asserted in
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
//!
//! # One transaction in place
//!
//! `heap.transact(Isolation::Serializable, |tx| { tx.write(account)?.balance -= 10; Ok(()) })`
//!
//! 1. `engine`: `transact` begins, calls, commits; after a conflict it is rolled back, waits as
//!    `backoff` says, and starts again. From the 17th conflict on it waits in the heap's queue
//!    (`queue`): it marks the objects that it met conflicts at, and gets them before all that come
//!    later.
//! 2. `locking` `Tx::begin` claims a slot (`slots`): its state, its log. The thread gets the
//!    slot it had.
//! 3. `write`: the allocator resolves the pointer to one live block; the block's lock word
//!    (`lock`) lies beside it in the chunk table. Free: it is ours. Pending in another slot: that
//!    slot is applied first. In use: a conflict, at once.
//! 4. `zones` `enter`: the zone is marked dirty; only the first write into a clean zone pays a
//!    barrier. With a partial backup `cover` instead: a writer that finds no copy of the object
//!    makes one, one barrier.
//! 5. The caller changes main itself, through `&mut`. `put_bytes` overwrites without looking: the
//!    bytes wait beside (`staged`), and go to main before anything else is done with their object,
//!    or with the commit.
//! 6. `commit` `commit_in_place`: one record, the ranges written and the intents, goes into the
//!    slot's ring. Of short ranges (up to 32 bytes) it carries what they hold now; over what the
//!    long ones hold it has a checksum. Locks of what was only read go; then long ranges and record
//!    are flushed, what is staged is stored past the cache; **the one barrier**. The locks become
//!    pending: readers may enter, and the same slot may write again what its records carry; what
//!    it owes first for anything else, `pending` tells.
//! 7. `log` applies: every sixteenth commit of a slot, or after 16 KiB, first copies what is pending to
//!    the backup, short ranges as they were then, staged ones from their image. Its own barrier
//!    makes that stable, its record and the next retire it, and then the locks are free: applying
//!    has no barrier of its own unless a thread cannot wait.
//!
//! # One recovery of a heap
//!
//! `recovery`, after the rings are open
//!
//! 1. Every whole, unretired record whose data checksum verifies over main goes forward: main, and
//!    what it carries, to backup, intents into the bitmaps. One that does not verify did not
//!    arrive, or was applied before its slot went on; either way the backup is right. Barrier.
//! 2. All rings are retired. Before anything else is changed: a second recovery must not decide
//!    anew.
//! 3. In every zone that is marked dirty main becomes what the backup is, where they differ.
//!    Barrier. The marks go. Barrier.
//!
//! Partial instead: `copies` `find` takes the copies whose tag and proof verify, and makes them
//! sure, a barrier if any was not; what is durable goes forward into the copies, or into main
//! where there is none; rings retired; `restore` makes main what the copies are, barrier;
//! `begin_copies` begins another epoch, which voids them.
//!
//! Undo instead: old bytes behind a ring's last END go back, last first; barrier; retired.
//!
//! # One backup of a heap
//!
//! `heap.backup("monday", |copied, all| ..)`, beside its transactions
//!
//! 1. `image` `Pool::image`: from now on `Mapping::flush`, `copy_nt` and `join_nt` set a bit for
//!    each 4 KiB that they write out. `pass` reads the file by its descriptor and writes a
//!    temporary one; further passes are about what was flushed meanwhile. Should writers be
//!    faster, `hold_back` lets them wait for the copier (`written`).
//! 2. `backup` `cut`, in the order in which others take these locks: the gate of the copies, the
//!    zones, every slot's log, growth; `Image::cut_into_memory` adds the pool's header, and reads
//!    the rest, a mebibyte at most, into memory. What the file held then is what a crash could
//!    have left.
//! 3. `verify` opens the copy, which recovers it, counts its blocks, compares main with backup,
//!    and closes it. `publish`: one sync, the name, the directory.

#![deny(unsafe_code)]

mod assemble;
mod backup;
mod cell;
mod commit;
mod coordinator;
mod copies;
mod core;
mod counted;
mod cover;
mod ending;
mod entries;
mod failpoints;
mod follower;
mod ground;
mod growth;
mod handover;
mod hash;
mod heap;
mod intents;
mod lock;
mod locking;
mod log;
mod nested;
mod options;
mod own;
mod partial;
mod pending;
mod queue;
#[allow(unsafe_code)]
mod raw;
mod record;
mod recovery;
mod redo;
mod regions;
mod scrub;
mod space;
mod stage;
mod staged;
mod state;
mod stats;
mod transaction;
mod undo;
mod zones;

pub use backup::Backup;
#[cfg(feature = "failpoints")]
pub use failpoints::Step;
pub use heap::Heap;
#[cfg(feature = "failpoints")]
pub use lock::{lock_words_changed, marks_lost};
pub use locking::Tx;
pub use options::{Intents, Options, Policy};
pub use recovery::Recovery;
pub use scrub::Scrubbed;
pub use stats::Stats;
