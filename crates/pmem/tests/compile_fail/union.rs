use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
union Either {
    number: u64,
    bytes: [u8; 8],
}

fn main() {}
