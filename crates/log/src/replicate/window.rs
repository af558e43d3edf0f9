//! What peers write into: the segments of a replica, and nothing else of its pool.

use std::io;
use std::sync::OnceLock;

use fabric::Address;
use pmem::Pool;

use crate::raw::{self, Claim};
use crate::space::Geometry;

/// The segments of a replica, one behind the other, from the first byte of the first. Empty until it is a replica of some log; no peer gets rights before that, so
/// that neither length nor address changes while a peer has them.
pub(crate) struct ReplicaWindow {
    pool: Pool,
    segments: OnceLock<Segments>,
}

struct Segments {
    /// From the start of the pool.
    first: u64,
    len: u64,
    address: Option<Address>,
}

impl ReplicaWindow {
    pub(super) fn new(pool: Pool) -> Self {
        Self { pool, segments: OnceLock::new() }
    }

    /// The log is there now.
    pub(super) fn set(&self, geometry: &Geometry) {
        self.segments.get_or_init(|| {
            let (first, len) = (geometry.offset(0), geometry.circle.segments() * geometry.segment_bytes);
            Segments { first, len, address: raw::for_device(Claim::Shared, &self.pool, first, len) }
        });
    }

    fn locate(&self, offset: u64, len: usize) -> io::Result<u64> {
        let (first, all) = self.segments.get().map_or((0, 0), |segments| (segments.first, segments.len));
        if offset > all || len as u64 > all - offset {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{len} bytes at {offset} of {all}")));
        }
        Ok(first + offset)
    }
}

impl fabric::Window for ReplicaWindow {
    fn len(&self) -> u64 {
        self.segments.get().map_or(0, |segments| segments.len)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = self.locate(offset, bytes.len())?;
        raw::copy_in(Claim::Shared, &self.pool, at, bytes).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = self.locate(offset, into.len())?;
        raw::copy_out(Claim::Shared, &self.pool, at, into).map_err(io::Error::other)
    }

    fn address(&self) -> Option<Address> {
        self.segments.get().and_then(|segments| segments.address)
    }
}

#[cfg(test)]
mod tests {
    use fabric::Window as _;
    use pmem::DomainChoice;

    use super::*;
    use crate::failpoints::Failpoints;
    use crate::replicate::members::Layout;
    use crate::replicate::message::Request;
    use crate::replicate::stored::StoredReplica;

    /// The window of a replica before it is one of a log, and then.
    fn before_and_then(domain: DomainChoice) -> [(u64, bool); 2] {
        let dir = tempfile::tempdir().expect("a folder");
        let pool =
            pmem::Options::new().domain(domain).size(64 << 10).create(dir.path().join("replica")).expect("a pool");
        let mut replica = StoredReplica::open(&pool, Failpoints::default()).expect("an empty replica");
        let window = replica.window();
        let look = |window: &ReplicaWindow| (window.len(), window.address().is_some());
        let before = look(&window);
        assert!(window.write(0, b"x").is_err() && window.read(0, &mut [0]).is_err());
        let layout = Layout { log: 7, key: 9, segment_bytes: 4096, segments: 4, checksums: 2 };
        replica.answer(1, &Request::Format { layout, me: 5 }).expect("formatted");
        let then = look(&window);
        window.write(4096 * 4 - 1, b"x").expect("the last byte");
        assert!(window.write(4096 * 4 - 1, b"xy").is_err());
        replica.answer(1, &Request::Format { layout, me: 5 }).expect("formatted once more");
        assert_eq!(look(&window), then);
        [before, then]
    }

    #[test]
    fn a_device_reaches_memory_and_not_files_and_neither_before_there_is_a_log() {
        assert_eq!(before_and_then(DomainChoice::Emulated), [(0, false), (4096 * 4, true)]);
        // A sync does not write what a device wrote: the kernel does not know of it.
        assert_eq!(before_and_then(DomainChoice::File), [(0, false), (4096 * 4, false)]);
    }
}
