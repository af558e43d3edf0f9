//! The length of a pool: it grows behind the old end, where nothing moves, and is cut where nothing is.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering::Release;

use rustix::fs::{FallocateFlags, fallocate, fsync, ftruncate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::domain::Domain;
use crate::error::{Error, Result, SpaceFor};
use crate::file::PAGE;
use crate::holes::holes;
use crate::mapping::{Backing, Mapping};
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
            return Err(self.no_space(len - old, SpaceFor::Growth));
        }
        match &self.backing {
            Backing::Simulated(medium) => {
                medium.set_len(len, site).map_err(|e| self.space(e, len - old, SpaceFor::Growth))?;
                self.len.store(len, Release);
            }
            backing => {
                let Some(file) = &self.file else { return Ok(()) };
                let by_pages = matches!(backing, Backing::Synced);
                if let Err(e) = extend(file, old, len, by_pages) {
                    let _ = ftruncate(file, old); // best effort: a longer file is trimmed at the next open
                    return Err(self.space(e, len - old, SpaceFor::Growth));
                }
                let flags = match self.domain {
                    Domain::Pmem | Domain::PmemEadr => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                    _ => MapFlags::SHARED,
                };
                self.map_at(old, len - old, flags).map_err(|e| self.fail("mmap", e))?;
                self.advise(old, len - old)?;
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

    /// Allocates what of the first `len` bytes has no blocks: the file may be a sparse copy, and on a full disk a store into a hole is answered
    /// by a signal. Before anything is stored.
    pub(crate) fn fill_holes(&self, len: u64) -> Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_fixed()) else { return Ok(()) };
        let holes = holes(file, len).map_err(|e| self.fail("looking for holes in the file", e))?;
        let filled = holes.iter().try_for_each(|&(from, to)| extend(file, from, to, false));
        filled.map_err(|e| {
            let allocated = file.metadata().map_or(0, |meta| meta.blocks() * 512);
            self.space(e, len.saturating_sub(allocated).max(PAGE), SpaceFor::SparseFile)
        })
    }

    fn space(&self, source: io::Error, wanted: u64, what: SpaceFor) -> Error {
        match is_no_space(&source) {
            true => self.no_space(wanted, what),
            false => self.fail("allocating blocks of the file", source),
        }
    }

    fn no_space(&self, wanted: u64, what: SpaceFor) -> Error {
        Error::NoSpace { path: self.path.clone(), wanted, what }
    }
}

/// Whether there is no room for the file: on the disk, by quota, or because no file of this process may be so long.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Makes `file` at least `len` bytes long with every block behind `old` allocated, so that no store into the mapping can meet a full disk.
///
/// `by_pages` fills it in writes of one page: the page cache then holds small folios, and one dirty line costs one page at the
/// next sync (larger writes were measured to cost up to a MiB).
pub(crate) fn extend(file: &File, old: u64, len: u64, by_pages: bool) -> io::Result<()> {
    match in_pieces(old, len, |at, bytes| fallocate(file, FallocateFlags::empty(), at, bytes)) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return fill(file, old, len), // the writes allocate
        Err(e) => return Err(e.into()),
    }
    if by_pages { fill(file, old, len) } else { Ok(()) }
}

/// Pieces that a signal makes smaller are no smaller than this.
const PIECE: u64 = 1 << 20;
/// Interruptions at one offset after which it is given up.
const INTERRUPTED: u32 = 10_000;

/// Runs `allocate` for all bytes from `at` to `end`. Where a signal interrupts it, nothing of the piece is kept, and what is tried next is half as long: signals that
/// come all the time, as a profiler's do, leave time for that.
fn in_pieces(
    mut at: u64,
    end: u64,
    mut allocate: impl FnMut(u64, u64) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let (mut piece, mut interrupted) = (end - at, 0);
    while at < end {
        let bytes = piece.min(end - at);
        match allocate(at, bytes) {
            Ok(()) => (at, interrupted) = (at + bytes, 0),
            Err(Errno::INTR) if interrupted < INTERRUPTED => {
                piece = (bytes / 2).next_multiple_of(PAGE).max(PIECE);
                interrupted += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// As tmpfs does it: a piece is done whole, or a signal came first, and nothing of it is.
    #[test]
    fn an_interrupted_allocation_goes_on() {
        let (from, to) = (3 * PAGE, 64 * MIB);
        for between_signals in [PIECE, PIECE + PAGE, 3 * MIB, 65 * MIB] {
            let (mut done, mut calls) = (from, 0);
            in_pieces(from, to, |at, bytes| {
                assert_eq!(at, done);
                calls += 1;
                if bytes > between_signals {
                    return Err(Errno::INTR);
                }
                done += bytes;
                Ok(())
            })
            .unwrap();
            assert_eq!(done, to);
            assert!(calls < 100, "{calls} calls");
        }
        // One that is interrupted whatever its length is an error at last, and so is any other at once.
        let mut calls = 0;
        let mut fails_with = |error| {
            calls = 0;
            let failed = in_pieces(from, to, |_, _| {
                calls += 1;
                Err(error)
            });
            (failed, calls)
        };
        assert_eq!(fails_with(Errno::INTR), (Err(Errno::INTR), INTERRUPTED + 1));
        assert_eq!(fails_with(Errno::NOSPC), (Err(Errno::NOSPC), 1));
    }
}
