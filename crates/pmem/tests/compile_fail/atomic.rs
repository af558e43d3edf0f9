use std::sync::atomic::AtomicU64;

use pmem::Persist;

#[derive(Persist)]
#[repr(C)]
struct Counter {
    value: AtomicU64,
}

fn main() {}
