use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Name {
    text: &'static u64,
}

fn main() {}
