//! Tests of the store from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod backup;
mod barriers;
mod basics;
mod calls;
mod conformance;
mod damage;
mod full;
mod kill;
