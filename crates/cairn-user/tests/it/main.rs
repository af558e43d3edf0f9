//! What a program outside of the workspace does with the facade alone.

#![allow(clippy::unwrap_used, reason = "tests")]

mod crates;
mod heap;
mod kv;
mod log;
mod queue;
mod tail;
