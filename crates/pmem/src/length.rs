//! The length of a pool: it grows behind the old end, where nothing moves, and is cut where nothing is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Release;

use rustix::fs::{FallocateFlags, fallocate, fsync, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::mapping::{Backing, Mapping, PAGE};
use crate::sim::Site;

impl Mapping {
    /// Grows to `len` bytes, zero-filled, with the new length persistent before this returns. On a full disk the old length is
    /// restored and nothing else has changed.
    pub(crate) fn grow(&self, len: u64, site: Site) -> Result<()> {
        self.check_usable()?;
        let _one = self.resize.lock();
        let old = self.len();
        if len > self.reserved {
            return Err(Error::Reserve { wanted: len, reserved: self.reserved });
        }
        if len <= old {
            return Ok(());
        }
        if self.is_fixed() {
            return Err(Error::NoSpace { path: self.path.clone(), wanted: len - old });
        }
        match &self.backing {
            Backing::Simulated(medium) => {
                medium.set_len(len, site).map_err(|e| self.space(e, len - old))?;
                self.len.store(len, Release);
            }
            backing => {
                let Some(file) = &self.file else { return Ok(()) };
                let by_pages = matches!(backing, Backing::Synced);
                if let Err(e) = extend(file, old, len, by_pages) {
                    let _ = ftruncate(file, old); // best effort: a longer file is trimmed at the next open
                    return Err(self.space(e, len - old));
                }
                let flags = match self.domain {
                    Domain::Pmem | Domain::PmemEadr => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                    _ => MapFlags::SHARED,
                };
                self.map_at(old, len - old, flags).map_err(|e| self.fail("mmap", e))?;
                if by_pages {
                    self.advise_random(old, len - old)?;
                }
            }
        }
        self.persist_len(site)
    }

    /// The present length is persistent when this returns.
    fn persist_len(&self, site: Site) -> Result<()> {
        match (&self.backing, &self.file) {
            (Backing::Flushed(_) | Backing::Fenced, Some(file)) => {
                self.counters.synced();
                fsync(file).map_err(|e| {
                    self.group.poison();
                    Error::Sync { source: e.into() }
                })
            }
            _ => self.drain(site).map(|_| ()),
        }
    }

    /// Cuts the file to `len`. The caller proves that nothing above refers to what is cut, on media (the header no
    /// longer names it, persistently) and in memory.
    pub(crate) fn shrink(&self, len: u64, site: Site) -> Result<()> {
        self.check_usable()?;
        let _one = self.resize.lock();
        let old = self.len();
        if len >= old {
            return Ok(());
        }
        self.len.store(len, Release);
        self.written.shrinks(len);
        match (&self.backing, &self.file) {
            (Backing::Simulated(medium), _) => medium.set_len(len, site).map_err(|e| self.fail("set_len", e)),
            (_, Some(file)) => {
                // SAFETY: the replaced part is inside our reservation and beyond `len`: no reference into it exists,
                // says the caller.
                unsafe {
                    let at = self.base.as_ptr().add(len as usize);
                    mmap_anonymous(
                        at.cast(),
                        (old - len) as usize,
                        ProtFlags::empty(),
                        MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
                    )
                    .map_err(|e| self.fail("mmap", e))?;
                }
                ftruncate(file, len).map_err(|e| self.fail("ftruncate", e))
            }
            _ => Ok(()),
        }
    }

    /// Cuts what of the file lies behind the mapping: less than a page.
    pub(crate) fn cut_file(&self) -> Result<()> {
        match &self.file {
            Some(file) => ftruncate(file, self.len()).map_err(|e| self.fail("ftruncate", e)),
            None => Ok(()),
        }
    }

    fn space(&self, source: io::Error, wanted: u64) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Error::NoSpace { path: self.path.clone(), wanted }
            }
            _ => self.fail("growing the file", source),
        }
    }
}

/// Makes `file` `len` bytes long with every block allocated, so that no store into the mapping can meet a full disk.
///
/// `by_pages` fills it in writes of one page: the page cache then holds small folios, and one dirty line costs one page at the
/// next sync (larger writes were measured to cost up to a MiB).
pub(crate) fn extend(file: &File, old: u64, len: u64, by_pages: bool) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), old, len - old) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP) => return fill(file, old, len), // the writes allocate
        Err(e) => return Err(e.into()),
    }
    if by_pages { fill(file, old, len) } else { Ok(()) }
}

fn fill(file: &File, old: u64, len: u64) -> io::Result<()> {
    let zeros = [0u8; PAGE as usize];
    let mut at = old;
    while at < len {
        let n = (PAGE - at % PAGE).min(len - at) as usize;
        file.write_all_at(&zeros[..n], at)?;
        at += n as u64;
    }
    Ok(())
}
