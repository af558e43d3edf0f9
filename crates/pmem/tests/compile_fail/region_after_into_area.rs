fn keep(region: pmem::Region) -> pmem::Result<()> {
    let area = region.into_area()?;
    region.areas();
    drop(area);
    Ok(())
}

fn main() {}
