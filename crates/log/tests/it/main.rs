//! The log from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

extern crate cairn_log as log;

mod basics;
mod costs;
mod costs_replicated;
mod damage;
mod dropped;
mod earlier;
mod every;
#[path = "../../../pmem/tests/it/fixture.rs"]
mod fixture;
mod follower;
mod format_1;
mod held;
mod hostile;
#[path = "../../../pmem/tests/it/left.rs"]
mod left;
mod model;
mod mutate;
mod mutations;
mod pages;
mod processes;
mod raw;
mod replicated;
mod schedules;
mod slow;
mod space;
mod support;
#[path = "../../../heap/tests/it/turns.rs"]
mod turns;
