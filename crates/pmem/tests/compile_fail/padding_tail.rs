use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C, align(64))]
struct Line {
    word: u64,
}

fn main() {}
