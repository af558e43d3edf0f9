use pmem::{PPtr, Session};

fn change(session: &mut Session<'_>, ptr: PPtr<u64>) -> pmem::Result<()> {
    *session.get(ptr)? = 1;
    Ok(())
}

fn main() {}
