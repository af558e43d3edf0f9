use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(u8)]
enum Kind {
    Leaf,
    Inner,
}

fn main() {}
