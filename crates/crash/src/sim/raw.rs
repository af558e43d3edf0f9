//! The promise that a `Sim` is a medium: see [`raw`](crate::raw).

use std::io;
use std::ptr::NonNull;

use pmem::sim::{Medium, Site};

use super::Sim;

// SAFETY: `memory` lives as long as the `Sim` and never moves; it is page aligned, zeroed, and has `capacity` bytes. The
// model touches it only through raw pointers inside these methods, and between two pools.
unsafe impl Medium for Sim {
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn len(&self) -> u64 {
        self.length()
    }

    fn set_len(&self, len: u64, site: Site) -> io::Result<()> {
        self.resize(len, site)
    }

    #[inline]
    fn access(&self, offset: u64, len: u64, write: bool) -> io::Result<()> {
        self.touch(offset, len, write)
    }

    fn flush(&self, offset: u64, len: u64, site: Site) {
        self.start_write_back(offset, len, site);
    }

    fn drain(&self, site: Site) -> io::Result<()> {
        self.finish_write_back(site)
    }

    fn write_whole(&self, offset: u64, data: &[u8], site: Site) -> io::Result<bool> {
        self.store_whole(offset, data, site)
    }

    fn reopened(&self) -> io::Result<()> {
        self.forget_cached();
        Ok(())
    }

    fn observe(&self, _offset: u64, _len: u64, site: Site) {
        self.note(site);
    }
}
