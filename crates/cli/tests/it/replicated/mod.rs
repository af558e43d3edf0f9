//! A log, and a store, on several machines, with real processes.

mod certified;
pub mod cluster;
mod commands;
mod elections;
pub mod groups;
mod machines;
mod newest;
mod rounds;
mod stores;
mod transports;
mod waiting;
