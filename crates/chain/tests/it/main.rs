//! Replicas on real media.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../examples/bank_of_three/accounts.rs"]
mod accounts;
mod conformance;
mod etcd;
mod files;
mod media;
mod processes;
