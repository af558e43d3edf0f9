//! Durable transactions at memory speed: the library in one dependency.
//!
//! What a program needs is re-exported here, by layer:
//!
//! * [`pmem`]: pools in persistent memory (or in an ordinary file), flush and drain, records that are whole or not there,
//!   an allocator.
//!
//! The command `cairn`, in the same package, creates, shows and checks pools, measures what this machine can do, and runs
//! the crash explorer on the structures of this library: `cairn help`.
//!
//! ```
//! use cairn::pmem::Options;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("shop.cairn");
//! let pool = Options::new().size(1 << 20).layout("shop-1").create(&path)?;
//! let mut counters = pool.add_region("counters", 4096)?.into_area()?;
//! counters.publish(0, 7)?; // persistent when it returns
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub use pmem;

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
