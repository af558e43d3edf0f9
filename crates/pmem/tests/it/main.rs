//! Integration tests of crate `pmem`.

mod persist;
