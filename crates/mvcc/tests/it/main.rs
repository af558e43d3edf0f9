//! Tests of the store from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod backup;
mod barriers;
mod basics;
mod calls;
mod conformance;
mod damage;
mod earlier;
#[path = "../../../pmem/tests/it/fixture.rs"]
mod fixture;
mod full;
mod kill;
#[path = "../../../pmem/tests/it/left.rs"]
mod left;
