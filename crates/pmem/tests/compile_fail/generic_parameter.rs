use pmem::Persist;

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Cell<T> {
    value: T,
}

fn main() {
    let _ = pmem::bytes_of(&Cell { value: true });
}
