use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Gap {
    small: u32,
    large: u64,
}

fn main() {}
