//! The transport from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod broken;
mod certificates;
mod descriptors;
#[cfg(feature = "libfabric")]
mod libfabric;
mod processes;
mod proxy;
mod simulated;
mod tcp;
mod trust;
mod wire;
