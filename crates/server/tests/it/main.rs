//! Tests of the server over its sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know for tests")]

mod blocking;
mod clients;
mod collections;
mod costs;
mod differential;
mod engines;
mod http;
mod limits;
mod memcached;
mod reaper;
mod support;
mod transactions;
