//! Integration tests of crate `structures`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod damage;
mod engines;
mod graph;
mod growth;
mod handover;
mod keys;
mod model;
mod readers;
mod support;
mod threads;
mod versions;
