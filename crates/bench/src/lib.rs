//! One harness for every measurement: `cairn bench <experiment>`.
//!
//! An experiment is a list of [`Side`]s, things to be compared. [`run`] interleaves them (A B A B …), at least
//! five rounds, so that a slow second of the machine hits all of them alike; what comes out is one [`Row`] per side with
//! the median and the spread of its rounds, and the costs that can be counted (barriers, lines, bytes) exactly.
//! [`table()`] prints rows for people, [`write_json`] for programs.
//!
//! | module | what is in it |
//! |---|---|
//! | [`limits`] | the machine itself: what a barrier, a flush, a copy, a checksum and an atomic cost, which engines are compared with |
//! | [`experiments`] | transactions: `tx-overwrite`, `tx-alloc`, `ycsb`, `dependent`, `worst-case`, `structures`, `tpcc`, `smallbank`; logs: `log-append`, `log-replicate`, `log-takeover`; keys and values: `kv`, `midas`, `kv-open`, `kv-space` |
//! | [`figures`] | the figures of the papers, measured here |
//! | [`contest`], [`engines`] | what takes part in them, by name, and how each is set up |
//! | [`target`] | what an experiment asks of engines and peers alike |
//! | [`log_sides`] | what takes part in experiments on logs |
//! | [`replicas`] | copies of logs, in processes of their own |
//! | [`kv_sides`] | what takes part in experiments on stores of keys and values |
//! | [`bare`] | what the machine asks for, in place of an engine: the limit in the same rounds |
//! | [`workload`] | YCSB, traces, distributions: for other programs too; TPC-C, SmallBank |
//! | [`crew`], [`latency`], [`clock`] | threads, sampled latencies, time |
//! | [`row`], [`table`](mod@table), [`plot`] | results |
//!
//! Peers are other systems (crate `peers`), in the build with the feature `peers`.
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

pub mod bare;
pub mod clock;
pub mod contest;
pub mod crew;
pub mod engines;
pub mod error;
pub mod experiments;
pub mod figures;
pub mod kv_sides;
pub mod latency;
pub mod limits;
mod line;
pub mod log_sides;
pub mod machine;
#[cfg(feature = "peers")]
pub mod peer;
pub mod plot;
pub mod replicas;
pub mod rounds;
pub mod row;
pub mod table;
pub mod target;
pub mod watch;
pub mod workload;

pub use contest::Contest;
pub use error::{Error, Result};
pub use machine::lasts;
pub use rounds::{Batch, Plan, Side, run, run_watched};
pub use row::{Row, Spread, write_json};
pub use table::{comparison, table};
pub use watch::Watch;
