//! A program that depends on the facade `cairn` alone: what this compiles, every user can.

#![forbid(unsafe_code)]

use cairn::pmem::{PPtr, Persist};

/// A stored type with a link and a parameter, derived through the facade.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub struct Node<T> {
    /// What it holds.
    pub value: T,
    /// The next one, or null.
    pub next: PPtr<Node<T>>,
}

#[cfg(test)]
mod tests {
    use cairn::pmem::{Action, Objects, ObjectsOptions, Options, PPtr, Result};

    use super::Node;

    #[test]
    fn types_derived_through_the_facade_are_stored() -> Result<()> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let pool = Options::new().size(1 << 20).create(&path)?;
        let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
        let node = objects.reserve_value(&Node { value: [7u32, 8], next: PPtr::NULL })?;
        let first = node.ptr::<Node<[u32; 2]>>();
        objects.lock().publish(&mut [Action::Alloc(node), Action::root(first)])?;
        drop((objects, pool));

        let pool = Options::new().open(&path)?;
        let objects = Objects::open(&pool)?;
        let session = objects.lock();
        assert_eq!(session.get(session.root::<Node<[u32; 2]>>()?)?.value, [7, 8]);
        assert!(session.root::<Node<u64>>().is_err(), "another parameter is another type");
        Ok(())
    }

    #[test]
    fn a_log_is_written_and_followed_through_the_facade() -> cairn::log::Result<()> {
        use cairn::log::{Follower, Lsn, Options};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders");
        let log = Options::new().bytes(1 << 20).create(&path)?;
        let mut follower = Follower::open(&path)?;
        let lsn = log.append(b"17 apples")?;
        assert_eq!(log.forced(), lsn);
        log.close()?;
        assert_eq!(follower.next()?, Some((Lsn::new(1), b"17 apples".to_vec())));
        Ok(())
    }
}
