fn both(area: &mut pmem::Area) -> pmem::Result<u64> {
    let seen = area.get::<u64>(0)?;
    area.put(0, &1u64)?;
    Ok(*seen)
}

fn main() {}
