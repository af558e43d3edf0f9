//! The promise that a `Module` is a medium: see [`raw`](crate::raw).

use std::io;
use std::ptr::NonNull;

use pmem::sim::{Medium, Site};

use super::Module;

// SAFETY: `memory` lives as long as the `Module` and never moves; it is page aligned, zeroed, and has `capacity` bytes. The
// module touches it only through raw pointers inside these methods, and between two pools, as `fail_power` and `damage` say.
unsafe impl Medium for Module {
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn len(&self) -> u64 {
        self.length()
    }

    fn set_len(&self, len: u64, _site: Site) -> io::Result<()> {
        self.resize(len)
    }

    fn access(&self, _offset: u64, _len: u64, _write: bool) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self, offset: u64, len: u64, _site: Site) {
        self.start_write_back(offset, len);
    }

    fn drain(&self, _site: Site) -> io::Result<()> {
        self.finish_write_back();
        Ok(())
    }
}
