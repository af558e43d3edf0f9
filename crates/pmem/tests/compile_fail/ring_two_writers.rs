fn write(ring: &pmem::Ring) -> pmem::Result<()> {
    ring.append(&[b"record"])?;
    Ok(())
}

fn main() {}
