//! How threads wait for each other, queue, and are called.

pub(crate) mod committers;
pub(crate) mod queue;
pub(crate) mod signal;
pub(crate) mod wait;
