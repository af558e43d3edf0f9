use std::marker::PhantomData;

use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Borrowed<'a> {
    offset: u64,
    owner: PhantomData<&'a u64>,
}

fn main() {}
