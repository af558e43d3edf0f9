//! Tests of the server over its sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know for tests")]

mod apart;
mod asked;
mod blocking;
mod chunks;
mod clients;
mod collections;
mod costs;
mod counts;
mod differential;
mod durability;
mod emptied;
mod engines;
mod events;
mod evict;
mod failpoints;
mod first;
mod full;
mod group;
mod heavy;
mod held;
mod http;
mod kept;
mod kill;
mod later;
mod lifetimes;
mod limits;
mod memcached;
mod monitor;
mod panics;
mod pauses;
mod pubsub;
mod put_off;
mod reactor;
mod reaper;
mod scripts;
mod streams;
mod subscribers;
mod support;
mod swapdb;
mod together;
mod tracking;
mod transactions;
mod witness;
