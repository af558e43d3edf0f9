//! Integration tests of crate `pmem`.

mod allocator;
mod barriers;
mod domain;
mod file_domain;
mod objects;
mod persist;
mod pool;
mod primitives;
mod soundness;
mod support;
