use pmem::{Action, PPtr, Session};

fn free(session: &mut Session<'_>, ptr: PPtr<u64>) -> pmem::Result<u64> {
    let value = session.get(ptr)?;
    session.publish(&mut [Action::Free(ptr.cast())])?;
    Ok(*value)
}

fn main() {}
