fn main() {
    let view: &u8;
    {
        let bytes = [0_u8; 1];
        view = pmem::view::<u8>(&bytes).unwrap();
    }
    println!("{view}");
}
