use pmem::Objects;

fn steal(objects: &Objects) -> pmem::Result<()> {
    let reserved = objects.reserve(64, 8)?;
    let block = objects.heap().resolve(reserved.ptr::<u8>(), 64)?;
    objects.heap().cancel(block)
}

fn main() {}
