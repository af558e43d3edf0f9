use pmem::Persist;

#[derive(Clone, Copy)]
#[repr(u64)]
enum Kind {
    Leaf,
    Inner,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Node {
    kind: Kind,
}

fn main() {}
