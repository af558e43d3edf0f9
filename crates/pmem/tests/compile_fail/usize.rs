use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Length {
    bytes: usize,
}

fn main() {}
