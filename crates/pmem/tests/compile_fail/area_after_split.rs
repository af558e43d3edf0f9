fn split(area: pmem::Area) -> pmem::Result<()> {
    let (first, second) = area.split_at(64)?;
    area.bytes(0, 8)?;
    drop((first, second));
    Ok(())
}

fn main() {}
