//! Durable transactions at memory speed: the library in one dependency.
//!
//! What a program needs is re-exported here, by layer; the first four are features, all on by default:
//!
//! * [`kv`]: a store of keys and values, with serializable transactions, typed tables, and one barrier for a commit.
//! * [`structures`]: maps of byte strings (hash map, B+tree, sorted list, search tree) and a directed graph, on any engine.
//! * [`heap`]: objects in persistent memory, changed in place under transactions.
//! * `mvcc`, a feature that is off by default: objects with several versions each, for many readers and long ones.
//! * [`log`]: a log of records that any number of threads append to at once, with one barrier for a force.
//! * [`tx`]: what transactions are, whatever engine runs them: `Engine`, `Transaction`, `Typed`, `Kv`.
//! * [`pmem`]: below all of them, pools in persistent memory (or in an ordinary file), flush and drain, records that are whole or
//!   not there, an allocator.
//!
//! The command `cairn`, of the package `cairn-cli`, creates, shows and checks pools, measures what this machine can do, explores crashes,
//! and kills itself to show that nothing is lost: `cairn help`.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("shop.cairn");
//! let store = cairn::Store::open(&path)?; // creates, opens or recovers; closes itself when it is dropped
//! store.put("apples", "17")?; // durable when it returns
//! store.transact(|tx| {
//!     let eaten = tx.get("apples")?.is_some_and(|left| left == b"17");
//!     tx.put("apples", if eaten { "16" } else { "17" })
//! })?; // serializable, run again after a conflict
//! for entry in store.prefix("app")? {
//!     let (key, value) = entry?;
//!     assert_eq!((&key[..], &value[..]), (&b"apples"[..], &b"16"[..]));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Objects, changed in place:
//!
//! ```
//! use cairn::heap::{Heap, Options};
//! use cairn::structures::{HashMap, HashMapOptions, Map};
//! use cairn::tx::{self, Engine, Isolation::Serializable, Typed};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("shop.cairn");
//! let heap = Heap::create(&path, &Options::new().bytes(1 << 20))?;
//! heap.transact(Serializable, |tx| -> tx::Result<()> {
//!     let stock = HashMap::create(tx, &HashMapOptions::new())?;
//!     stock.put(tx, b"apples", b"17")?;
//!     tx.set_root(stock.root()) // where the next open begins
//! })?; // durable when it returns
//! heap.close()?;
//!
//! let heap = Heap::open(&path, &Options::new())?; // after a crash too
//! heap.transact(Serializable, |tx| -> tx::Result<()> {
//!     let stock = HashMap::open(tx, tx.root()?)?;
//!     assert_eq!(stock.get(tx, b"apples")?, Some(&b"17"[..]));
//!     Ok(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A full disk is an error wherever something is made, opened, or grows, and nothing else: what is open can still be read, and freed. Under `ulimit -f` a process has to
//! ignore SIGXFSZ for that, or the kernel ends it: see [`pmem::Options`].
//!
//! Longer ones are in the folder `examples`: a bank, twice, a queue, an address book, opening after a crash, and going from one
//! version of persistent structs to the next.

#![forbid(unsafe_code)]

#[cfg(feature = "heap")]
pub use ::heap::{Heap, Options as HeapOptions};
#[cfg(feature = "kv")]
pub use ::kv::{Options as StoreOptions, Store};
#[cfg(feature = "log")]
pub use ::log::{Log, Options as LogOptions};

/// What programs have in scope: the traits of transactions and structures, and the types of stored objects.
///
/// ```
/// use cairn::prelude::*;
/// use cairn::{Heap, HeapOptions};
///
/// # let dir = tempfile::tempdir()?;
/// let heap = Heap::open_or_create(dir.path().join("counter.cairn"), &HeapOptions::new())?;
/// heap.transact(Serializable, |tx| {
///     let counter = tx.alloc(&17u64)?;
///     tx.set_root(counter)
/// })?;
/// let counter = heap.transact(Serializable, |tx| tx.read(tx.root::<u64>()?).copied())?;
/// assert_eq!(counter, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod prelude {
    pub use crate::pmem::{PPtr, Persist};
    #[cfg(feature = "structures")]
    pub use crate::structures::Map;
    pub use crate::tx::Isolation::{self, Serializable};
    pub use crate::tx::{self, Engine, NestedTop, Savepoints, ToRange, Transaction, Typed};
}

/// A store of keys and values, with serializable transactions, typed tables, and one barrier for a commit.
#[cfg(feature = "kv")]
pub mod kv {
    #[doc(inline)]
    pub use ::kv::*;
}

/// Objects in persistent memory, changed in place under transactions.
#[cfg(feature = "heap")]
pub mod heap {
    #[doc(inline)]
    pub use ::heap::*;
}

/// Maps of byte strings and a directed graph, on any engine.
#[cfg(feature = "structures")]
pub mod structures {
    #[doc(inline)]
    pub use ::structures::*;
}

/// A log of records that any number of threads append to at once, with one barrier for a force.
#[cfg(feature = "log")]
pub mod log {
    #[doc(inline)]
    pub use ::log::*;
}

/// Objects with several versions each: readers write nothing, and snapshots are held for minutes beside writers.
#[cfg(feature = "mvcc")]
pub mod mvcc {
    #[doc(inline)]
    pub use ::mvcc::*;
}

/// Files striped over pools, written atomically in any number of places.
#[cfg(feature = "array")]
pub mod array {
    #[doc(inline)]
    pub use ::eaw::{Error, Result, array::*};
}

/// Stores of records of any length, in tables, behind one trait.
#[cfg(feature = "array")]
pub mod records {
    #[doc(inline)]
    pub use ::eaw::records::*;
}

/// A store of records in an array: editable atomic writes of each.
#[cfg(feature = "array")]
pub mod mars {
    #[doc(inline)]
    pub use ::eaw::mars::*;
}

/// What transactions are, whatever engine runs them.
pub mod tx {
    #[doc(inline)]
    pub use ::tx::*;
}

/// Pools in persistent memory or in a file, and what may be stored there.
pub mod pmem {
    // Its paths lead through this crate.
    pub use ::pmem::PersistOfCairn as Persist;
    #[doc(inline)]
    pub use ::pmem::*;
}

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The same for the pages that have examples.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/kv.md")]
    struct KeyValue;
    #[doc = include_str!("../../../docs/log.md")]
    struct Log;
    #[cfg(feature = "mvcc")]
    #[doc = include_str!("../../../docs/mvcc.md")]
    struct Versions;
    #[cfg(feature = "array")]
    #[doc = include_str!("../../../docs/array.md")]
    struct Array;
    #[cfg(feature = "array")]
    #[doc = include_str!("../../../docs/records.md")]
    struct Records;
    #[doc = include_str!("../../../docs/heap.md")]
    struct Heap;
    #[doc = include_str!("../../../docs/evolution.md")]
    struct Evolution;
}
