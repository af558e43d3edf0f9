fn main() {
    let bytes = [0_u8; 8];
    // A shared borrow of bytes is no way to change them.
    let _ = pmem::view_mut::<u64>(&bytes);
}
