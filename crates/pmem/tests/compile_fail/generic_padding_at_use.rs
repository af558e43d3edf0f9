use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Pair<A, B> {
    first: A,
    second: B,
}

fn main() {
    // Sound: the fields fill the struct.
    let _ = pmem::bytes_of(&Pair { first: 1_u64, second: 2_u64 });
    // Three bytes of padding.
    let _ = pmem::bytes_of(&Pair { first: 1_u8, second: 2_u32 });
}
