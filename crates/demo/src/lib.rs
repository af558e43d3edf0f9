//! `cairn demo`: durable transactions at work, killed again and again, with a witness who counts.
//!
//! A *worker process* runs a workload on a pool. The *parent* measures it while nothing disturbs it, then kills it with SIGKILL at random
//! moments, recovers what it left and holds that against what the worker had acknowledged. The parent shares nothing with the
//! worker but the pool's file and a pipe, on which the worker reports each update right after its commit.
//!
//! | module | what is in it |
//! |---|---|
//! | `config` | [`Demo`], what is wanted; `Job`, what a worker is told |
//! | `input` | YCSB workload A, or a trace |
//! | `value` | values that tell whose they are, which version, and whether they are whole |
//! | `kind`, `kept` | the engines: heaps, and objects with versions |
//! | `store` | the pool and the structure in it |
//! | `worker` | the worker process: [`work`]; `measured` and `reported` are its two tasks |
//! | `journal` | what makes half a transaction show |
//! | `message` | what it says |
//! | `parent` | [`run`]: rounds, kills |
//! | `child` | a worker, seen from the parent; how it dies |
//! | `beside` | store, server and objects beside what would be used instead |
//! | `witness` | what was acknowledged, against what was found |
//! | `verify` | recovers, and reads everything |
//! | `place`, `progress` | where pools go; the live line |
//! | `summary`, `html`, `plots` | the table, the report |

#![forbid(unsafe_code)]

mod beside;
mod child;
mod config;
mod error;
mod html;
mod input;
mod journal;
mod kept;
mod kind;
mod measured;
mod message;
mod parent;
mod place;
mod plots;
mod progress;
mod reported;
mod store;
mod summary;
mod value;
mod verify;
mod witness;
mod worker;

pub use beside::{Beside, Measured};
pub use config::{Demo, WORKER};
pub use error::{Error, Result};
pub use kind::Kind;
pub use parent::run;
pub use summary::{Finding, Outcome, Summary};
pub use worker::work;
