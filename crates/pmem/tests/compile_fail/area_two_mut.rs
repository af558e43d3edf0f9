fn twice(area: &mut pmem::Area) -> pmem::Result<()> {
    let first = area.bytes_mut(0, 8)?;
    let second = area.bytes_mut(0, 8)?;
    first[0] = second[0];
    Ok(())
}

fn main() {}
