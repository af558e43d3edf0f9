use pmem::{Objects, Pool, Session};

fn open(pool: &Pool) -> pmem::Result<Session<'static>> {
    let objects = Objects::open(pool)?;
    Ok(objects.lock())
}

fn main() {}
