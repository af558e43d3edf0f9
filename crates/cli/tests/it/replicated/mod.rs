//! A log, and a store, on several machines, with real processes.

mod across_failover;
mod certified;
pub mod cluster;
mod commands;
mod elections;
pub mod groups;
mod machines;
mod rounds;
mod settles;
mod stores;
mod transports;
mod waiting;
