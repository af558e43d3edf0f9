//! Checks against a plain model, for the tests of any engine.
//!
//! | module | what is in it |
//! |---|---|
//! | `maps` | steps on a map of any kind: alone, by threads, on damaged media |
//! | [`graph`] | the same for a graph |
//! | `random` | [`Random`]: numbers, keys and values from a seed |
//! | `failure` | [`Failure`]: what a check found |
//!
//! ```
//! use structures::{BTree, BTreeOptions};
//! use structures_testing::{Features, against_model, ops};
//! use tx::{Engine, Isolation, Reference};
//!
//! let engine = Reference::new();
//! let tree = engine.transact(Isolation::Strict, |tx| BTree::create(tx, &BTreeOptions::new()))?;
//! against_model(&engine, tree, &ops(7, 200), Features { ordered: true, aborts: true })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod failure;
pub mod graph;
mod maps;
mod random;

pub use failure::Failure;
pub use maps::{Features, Op, against_model, concurrently, damage, ops};
pub use random::Random;
