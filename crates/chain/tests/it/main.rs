//! Replicas on real media.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bank;
mod conformance;
mod etcd;
mod media;
mod processes;
