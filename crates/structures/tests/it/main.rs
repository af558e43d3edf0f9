//! Integration tests of crate `structures`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod damage;
mod earlier;
mod engines;
#[path = "../../../pmem/tests/it/fixture.rs"]
mod fixture;
mod graph;
mod growth;
mod handover;
mod keys;
#[path = "../../../pmem/tests/it/left.rs"]
mod left;
mod model;
mod readers;
mod support;
mod threads;
mod versions;
