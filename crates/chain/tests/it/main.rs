//! Replicas on real media.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../examples/bank_of_three/accounts.rs"]
mod accounts;
mod conformance;
mod earlier;
mod etcd;
mod files;
#[path = "../../../pmem/tests/it/fixture.rs"]
mod fixture;
#[path = "../../../pmem/tests/it/left.rs"]
mod left;
mod media;
mod processes;
mod tail;
