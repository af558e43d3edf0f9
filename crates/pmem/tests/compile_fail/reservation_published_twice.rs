use pmem::{Action, Reserved, Session};

fn publish(session: &mut Session<'_>, reserved: Reserved<'_>) -> pmem::Result<()> {
    session.publish(&mut [Action::Alloc(reserved), Action::Alloc(reserved)])
}

fn main() {}
