use pmem::Persist;

#[derive(Clone, Persist)]
#[repr(C)]
struct Owned {
    number: u64,
}

fn main() {}
