//! The log from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod basics;
mod costs;
mod damage;
mod follower;
mod model;
mod schedules;
mod space;
