//! Maps and a graph in persistent memory, written against [`tx::Transaction`]: they run on every engine.
//!
//! | module | what is in it |
//! |---|---|
//! | `map` | [`Map`]: what the maps have in common; [`Report`] of `verify` |
//! | `hash` | [`HashMap`]: grows in small steps; nothing that all transactions touch |
//! | `btree` | [`BTree`]: sorted, scans both ways, loads in bulk |
//! | `list` | [`SortedList`]: a change is one word; for few keys |
//! | `tree` | [`SearchTree`]: binary, as keys come or balanced |
//! | `entry` | a key and its value in one block, with or without links before them |
//! | `graph` | [`Graph`]: nodes, edges, breadth-first search, paths |
//! | `kv` | [`KvMap`]: a map as a [`tx::Kv`] |
//! | `any` | [`Structure`]: whatever a pool's root leads to |
//! | `media` | what comes from media is checked here first: damage is an error that names the place |
//!
//! ```
//! use structures::{BTree, BTreeOptions, KvMap};
//! use tx::{Engine, Isolation, Keys, Kv, KvTx, Reference};
//!
//! let engine = Reference::new();
//! let tree = engine.transact(Isolation::Strict, |tx| BTree::create(tx, &BTreeOptions::new()))?;
//! let books = KvMap::new(&engine, tree);
//! books.transact(Isolation::Strict, |tx| -> tx::Result<()> {
//!     tx.put(b"1605", b"Don Quijote")?;
//!     tx.put(b"1851", b"Moby-Dick")?;
//!     tx.put(b"1922", b"Ulysses")?;
//!     Ok(())
//! })?;
//! books.transact(Isolation::Strict, |tx| -> tx::Result<()> {
//!     let mut titles = Vec::new();
//!     tx.scan(&Keys::from(b"18").reverse(), &mut |_, title| {
//!         titles.push(title.to_vec());
//!         std::ops::ControlFlow::Continue(())
//!     })?;
//!     assert_eq!(titles, [&b"Ulysses"[..], b"Moby-Dick"]);
//!     Ok(())
//! })?;
//! # Ok::<(), tx::Error>(())
//! ```

#![forbid(unsafe_code)]

mod any;
mod btree;
mod entry;
mod graph;
mod hash;
mod kv;
mod list;
mod map;
mod media;
mod tree;

pub use any::Structure;
pub use btree::{BTree, BTreeOptions, BTreeRoot};
pub use entry::ENTRY_KEY_MAX;
pub use graph::{Direction, Graph, GraphOptions, GraphReport, GraphRoot};
pub use hash::{HASH_KEY_MAX, HashMap, HashMapOptions, HashRoot};
pub use kv::{KvMap, MapTx};
pub use list::{ListRoot, SortedList};
pub use map::{Map, Report};
pub use media::VALUE_MAX;
pub use tree::{SearchTree, SearchTreeOptions, TreeRoot};
