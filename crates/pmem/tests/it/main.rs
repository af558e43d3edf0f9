//! Integration tests of crate `pmem`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod allocator;
mod barriers;
mod block;
mod checksums;
mod domain;
mod file_domain;
mod format_1;
mod image;
mod large;
mod left;
mod lost_write;
mod objects;
mod persist;
mod pool;
mod primitives;
mod rename;
mod soundness;
mod sparse;
mod support;
