//! Explores what a crash leaves of a program on persistent memory: under `cargo test`, without a virtual machine and without
//! persistent memory, for our structures and for any others.
//!
//! A [`Scenario`] (or three closures given to [`explore`]) says what the program does, what it promises (through [`Ack`]) and
//! how a recovered state is judged. [`run`] then lets the power fail at every drain, in all the ways that a [`Model`] of
//! the media knows, recovers each image, and holds it against the promises. It also kills the process there, while the power stays:
//! recovery then finds everything in the caches, and what it acts on or reports must outlive the power failure that comes later.
//!
//! # The way of a crash
//!
//! | module | what happens there |
//! |---|---|
//! | `config` | what to explore and how much: [`Config`] |
//! | `run` | one workload from setup to its end, on threads under `schedule` |
//! | `sim` | the memory ([`Sim`]); flushes and drains arrive here, `pending` keeps what the media may not have |
//! | `explore` | a drain is a crash point: `image` says what it may leave, `walk` in which order that is recovered |
//! | `explore::known` | the same bytes, judged against the same promises before: that image is left out |
//! | `explore::kill` | the process is killed there instead, and the power fails behind its recovery |
//! | `decide` | recovery reads an open word: it gets its value only now, so that unread words do not multiply the states |
//! | `oracle` | what was promised by then: [`History`] |
//! | `fault` | the same with a fault of the medium |
//! | `violation`, `shrink` | what is wrong, where, and in the fewest operations |
//! | `mutate` | is every barrier needed? |
//! | `report` | what was covered: [`Report`] |
//!
//! Simulators of several machines have no use for all outcomes of one crash; [`Module`] plays one.
//!
//! # Example
//!
//! Two words that must change together, with a valid flag behind them. Without the first drain the flag may arrive before the words.
//!
//! ```
//! use crash::{Config, Violation, explore};
//!
//! let report = explore(Config::seeded(1))
//!     .setup(|sim| Ok(sim.set_len(4096)?))
//!     .workload(|sim, ack| {
//!         let ticket = ack.begin(7);
//!         sim.store(0, 7)?;
//!         sim.store(64, 7)?;
//!         sim.flush(0, 128);
//!         sim.drain()?; // leave this out, and the explorer shows why it is here
//!         sim.store(128, 1)?;
//!         sim.flush(128, 8);
//!         sim.drain()?;
//!         ack.commit(ticket);
//!         Ok(())
//!     })
//!     .check(|sim, history| {
//!         let word = |offset| sim.load(offset).map_err(Violation::detected);
//!         let valid = word(128)? == 1;
//!         // A killed process may have left the flag in a cache only: what is reported must stay.
//!         sim.flush(128, 8);
//!         sim.drain().map_err(Violation::detected)?;
//!         let found = if valid { Some((word(0)?, word(64)?)) } else { None };
//!         match (found, history.acknowledged.first()) {
//!             (None, Some(lost)) => Err(Violation::new(format!("{lost} is lost"))),
//!             (Some(pair), _) if pair != (7, 7) => Err(Violation::new(format!("torn: {pair:?}"))),
//!             (found, _) => Ok(found),
//!         }
//!     })
//!     .run();
//! assert!(report.violation().is_none(), "{report}");
//! assert!(report.is_complete());
//! ```

#![deny(unsafe_code)]

mod builder;
mod clock;
mod config;
mod decide;
mod explore;
mod fault;
mod hash;
mod image;
mod module;
mod mutate;
mod oracle;
mod pending;
mod quiet;
mod raw;
mod report;
mod rng;
mod run;
mod scenario;
mod schedule;
mod shrink;
mod sim;
mod violation;
mod walk;
mod witness;

pub use builder::{Explore, explore};
pub use config::{Barrier, Config, FaultKind, Kind, Model};
pub use module::Module;
pub use mutate::{MutationReport, mutate};
pub use oracle::{Ack, History, Ticket};
pub use report::{Coverage, Report};
pub use rng::Rng;
pub use run::{run, run_failing_drains, run_full_disks, run_shared};
pub use scenario::{Error, Scenario};
pub use sim::{Sim, as_thread};
pub use violation::{CrashPoint, Lost, Violation};
pub use witness::Witness;
