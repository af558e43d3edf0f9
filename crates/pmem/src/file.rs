//! The file that a pool is in, or the device: opened, locked for as long as it is open, and the errors that name it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Advice, FlockOperation, OFlags, fadvise, flock, fsync};

use crate::error::{Error, Result};

/// Files are filled, grown and written back in units of this many bytes.
pub(crate) const PAGE: u64 = 4096;

/// Opens a file or a device, and never waits: a FIFO without a writer would keep its opener for good.
pub(crate) fn open_at_once(path: &Path, write: bool) -> Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let opened = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    // What cannot be opened at all may say so by an error that explains nothing: a socket, or a directory to be written.
    let kind = match &opened {
        Ok(file) => file.metadata(),
        Err(_) => fs::metadata(path),
    };
    if let Some(kind) = kind.ok().and_then(|meta| foreign_kind(&meta)) {
        let why = format!("it is a {kind}; a pool is an ordinary file, a block device, or a devdax device");
        return Err(io_error("open", path)(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    opened.map_err(io_error("open", path))
}

/// What a pool cannot be, by name.
fn foreign_kind(meta: &fs::Metadata) -> Option<&'static str> {
    let kind = meta.file_type();
    let kinds = [(kind.is_dir(), "directory"), (kind.is_fifo(), "FIFO"), (kind.is_socket(), "socket")];
    kinds.into_iter().find_map(|(is, name)| is.then_some(name))
}

/// One process at a time writes; several may read a closed pool. The lock is of the open file: it goes with the process.
pub(crate) fn lock(file: &File, path: &Path, read_only: bool) -> Result<()> {
    let how = if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    for tries in 1.. {
        match flock(file, how) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(e) => return Err(io_error("lock", path)(e.into())),
        }
        match holder(file) {
            Some(pid) if pid == std::process::id() => return Err(Error::AlreadyOpen { path: path.to_owned() }),
            // The kernel's list is read piece by piece: while other locks come and go, one may be passed over.
            None if tries < 16 => {}
            holder => return Err(Error::Busy { path: path.to_owned(), pid: holder.unwrap_or(0) }),
        }
    }
    Ok(())
}

/// See `Drop` of the mapping, which does this once there is one.
pub(crate) fn unlock(file: &File) {
    let _ = flock(file, FlockOperation::Unlock);
}

/// The process that holds a lock on this file, says the kernel: `7: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF`.
fn holder(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let inode = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let index = words.clone().position(|w| w == inode)?;
        words.nth(index - 1)?.parse().ok()
    })
}

/// True for the file systems that keep files in memory: tmpfs and hugetlbfs.
pub(crate) fn is_memory_fs(kind: i64) -> bool {
    matches!(kind, 0x0102_1994 | 0x9584_58f6)
}

/// What a sync could not write is not on the disk but may still be in the page cache, marked clean: after an unclean shutdown
/// the cache is written out, then dropped, so that what is read is what the disk holds.
pub(crate) fn forget_cached(file: &File) -> io::Result<()> {
    fsync(file)?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}

pub(crate) fn io_error(op: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { op, path: path.clone(), source }
}
