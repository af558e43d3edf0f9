use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Link {
    next: *const u64,
}

fn main() {}
