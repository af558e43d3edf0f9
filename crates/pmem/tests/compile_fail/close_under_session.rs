fn close(objects: pmem::Objects) -> pmem::Result<()> {
    let session = objects.lock();
    objects.close()?;
    drop(session);
    Ok(())
}

fn main() {}
