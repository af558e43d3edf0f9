fn create(area: pmem::Area) -> pmem::Result<()> {
    pmem::TwoSlot::create(area, &"text")?;
    Ok(())
}

fn main() {}
