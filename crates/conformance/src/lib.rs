//! What every engine must do, checked from outside: through [`tx::Engine`] and [`tx::Transaction`] for objects, through [`tx::Kv`] and [`tx::KvTx`]
//! for keys and values, and through nothing else.
//!
//! | module | what is in it |
//! |---|---|
//! | `objects` | the groups of checks for engines of objects; [`Subject`], an engine to be checked; [`engine!`] and [`parts!`] make tests of them |
//! | [`mod@keys`] | the same for stores of keys and values; [`keys!`] |
//! | [`history`] | what transactions read and wrote, and whether some isolation level allows it |
//! | [`shuttle`] | threads played by schedule: [`explore`], [`together`] |
//! | `check` | [`Check`]: one thing that is asked for |
//! | `rng` | [`Rng`]: numbers from a seed |
//! | `failpoints` | that each check has been seen to fail, for the tests of suites |
//!
//! An engine is described as a [`Subject`] and gets one test per group:
//!
//! ```
//! use conformance::{Concurrency, Subject};
//! use tx::Reference;
//!
//! struct Plain;
//!
//! impl Subject for Plain {
//!     type Engine = Reference;
//!     fn fresh(&self) -> Reference { Reference::new() }
//!     fn concurrency(&self) -> Concurrency { Concurrency::Versions }
//! }
//!
//! conformance::engine!(plain, Plain);
//! ```
//!
//! # An engine of your own
//!
//! It may live anywhere. It implements [`tx::Engine`] and [`tx::Transaction`], and has this crate for its tests:
//!
//! ```toml
//! [dependencies]
//! cairn-pmem = "0.1"
//! cairn-tx = "0.1"
//!
//! [dev-dependencies]
//! cairn-conformance = "0.1"
//! ```
//!
//! A test has the lines above: [`engine!`] for what every engine does, and [`parts!`], or [`run_savepoints`], if its transactions have savepoints. The
//! group `schedules` plays threads, which may block on locks of [`pmem::sync`] alone; [`Subject::fresh_scheduled`] gives it an engine without threads in
//! the background. [`Subject`] also says what an engine need not have: rollback, some levels. A version of this crate goes with the same one of `cairn-tx`.
//!
//! Checks panic where they find something. Each has been seen to: the tests of this crate run them on engines that are broken on purpose.

#![forbid(unsafe_code)]

mod check;
#[doc(hidden)]
pub mod failpoints;
pub mod history;
pub mod keys;
mod objects;
mod rng;
pub mod shuttle;

pub use check::Check;
#[doc(hidden)]
pub use objects::bank;
pub use objects::{Concurrency, GROUPS, ROOM, Subject, checks, parts, run_group, run_parts, run_savepoints};
pub use rng::Rng;
pub use shuttle::{explore, together};
