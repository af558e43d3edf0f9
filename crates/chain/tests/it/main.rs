//! Replicas on real media.

#![expect(clippy::unwrap_used, reason = "tests")]

mod conformance;
mod media;
