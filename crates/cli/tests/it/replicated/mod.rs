//! A log, and a store, on several machines, with real processes.

pub mod cluster;
mod commands;
mod elections;
mod groups;
mod rounds;
mod stores;
mod transports;
