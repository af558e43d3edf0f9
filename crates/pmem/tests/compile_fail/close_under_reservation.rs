fn close(objects: pmem::Objects) -> pmem::Result<()> {
    let reserved = objects.reserve(64, 8)?;
    objects.close()?;
    drop(reserved);
    Ok(())
}

fn main() {}
