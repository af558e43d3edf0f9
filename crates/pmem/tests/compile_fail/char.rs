use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Letter(char);

fn main() {}
