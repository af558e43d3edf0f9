use std::cell::Cell;

use pmem::Persist;

#[derive(Clone, Persist)]
#[repr(C)]
struct Counter {
    value: Cell<u64>,
}

fn main() {}
