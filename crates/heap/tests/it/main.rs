//! The heap from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod backup;
mod barriers;
mod basics;
mod conformance;
mod damage;
mod disk;
mod dropped;
mod earlier;
mod every;
mod evolution;
#[path = "../../../pmem/tests/it/fixture.rs"]
mod fixture;
mod fork;
mod format_1;
mod growth;
mod kill;
mod large;
#[path = "../../../pmem/tests/it/left.rs"]
mod left;
mod lost_pages;
mod partial;
mod pending;
mod queue;
#[allow(unsafe_code)]
mod raw;
mod recovery;
mod ring;
mod scrub;
mod support;
mod turns;
