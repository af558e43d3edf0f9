//! One harness for every measurement: `cairn bench <experiment>`.
//!
//! An experiment is a list of [`Side`]s, things to be compared. [`run`] interleaves them (A B A B …), at least
//! five rounds, so that a slow second of the machine hits all of them alike; what comes out is one [`Row`] per side with
//! the median and the spread of its rounds, and the costs that can be counted (barriers, lines, bytes) exactly.
//! [`table()`] prints rows for people, [`write_json`] for programs.
//!
//! [`limits`] measures the machine itself: what a barrier, a flush, a copy, a checksum and an atomic cost here, which is
//! what every engine is compared with.
//!
//! ```
//! use bench::{Plan, Row, Side, clock};
//!
//! let sides = vec![Side::new(Row::new("demo", "none").param("bytes", 64), |batch| {
//!     clock::time(|| {
//!         for _ in 0..batch {
//!             std::hint::black_box([0_u8; 64]);
//!         }
//!         Ok(())
//!     })
//! })];
//! let rows = bench::run(&Plan::quick(), sides)?;
//! assert_eq!(rows[0].rounds, 5);
//! println!("{}", bench::table(&rows));
//! # Ok::<(), bench::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod clock;
pub mod error;
pub mod limits;
pub mod machine;
pub mod rounds;
pub mod row;
pub mod table;

pub use error::{Error, Result};
pub use rounds::{Plan, Side, run};
pub use row::{Row, Spread, write_json};
pub use table::table;
