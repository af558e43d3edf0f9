use pmem::{Action, Reserved, Session};

fn publish(session: &mut Session<'_>, mut reserved: Reserved<'_>) -> pmem::Result<()> {
    session.publish(&mut [Action::Alloc(reserved)])?;
    reserved.bytes_mut()?.fill(0);
    Ok(())
}

fn main() {}
