use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Flag {
    set: bool,
}

fn main() {}
