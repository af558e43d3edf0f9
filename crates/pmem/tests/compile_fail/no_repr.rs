use pmem::Persist;

#[derive(Clone, Copy, Persist)]
struct Plain {
    number: u64,
}

fn main() {}
