//! Devices: a pool is as long as the device that it is on, for good.
//!
//! A devdax device is memory and has no `read`; a block device is a file in all but its length: its page cache is mapped, and synced.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync};

use crate::error::{Error, Result};
use crate::file::{PAGE, io_error, lock, open_at_once, unlock};

/// What a file system, a partition table or a volume has at the beginning of a device, or at its end, is within so many bytes.
const TELLTALE: u64 = 128 << 10;

/// A device that is in use is asked for again: a child of a fork has what its parent closed until it begins its program, and a program that watches for
/// devices (udev) locks each one for a moment that was written to.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) fn is_device(kind: FileType) -> bool {
    kind.is_char_device() || kind.is_block_device()
}

/// The file at `path`, locked; a block device is claimed from the kernel too, if it is to be written: it is not mounted, and cannot be.
pub(crate) fn claim(path: &Path, read_only: bool) -> Result<File> {
    let file = open_at_once(path, !read_only)?;
    if !file.metadata().map_err(io_error("stat", path))?.file_type().is_block_device() {
        lock(&file, path, read_only)?;
        return Ok(file);
    }
    for _ in 1..TRIES {
        match claim_device(&file, path, read_only) {
            Err(Error::Busy { .. }) => thread::sleep(PAUSE),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => thread::sleep(PAUSE),
            done => return done,
        }
    }
    claim_device(&file, path, read_only)
}

fn claim_device(file: &File, path: &Path, read_only: bool) -> Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | if read_only { OFlags::empty() } else { OFlags::EXCL };
    let claimed = OpenOptions::new().read(true).write(!read_only).custom_flags(flags.bits() as i32).open(path);
    match claimed {
        Ok(claimed) => lock(&claimed, path, read_only).map(|()| claimed),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            lock(file, path, read_only)?; // if it is a pool that is open, says by which process
            unlock(file);
            let why =
                "it is mounted, or another program has it, be it a child of a fork: unmount it, or choose another one";
            Err(io_error("open", path)(io::Error::new(error.kind(), why)))
        }
        Err(error) => Err(io_error("open", path)(error)),
    }
}

/// Bytes of a file, whatever it is; of a device, whole pages.
pub(crate) fn file_len(file: &File, path: &Path) -> Result<u64> {
    let meta = file.metadata().map_err(io_error("stat", path))?;
    if is_device(meta.file_type()) { len(file, path) } else { Ok(meta.len()) }
}

/// Bytes of a device, in whole pages.
pub(crate) fn len(file: &File, path: &Path) -> Result<u64> {
    let meta = file.metadata().map_err(io_error("stat", path))?;
    let len = if meta.file_type().is_block_device() {
        (&*file).seek(SeekFrom::End(0)).map_err(io_error("find the size of", path))?
    } else {
        dax_len(&meta, path)?
    };
    Ok(len / PAGE * PAGE)
}

fn dax_len(meta: &Metadata, path: &Path) -> Result<u64> {
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let size = format!("/sys/dev/char/{major}:{minor}/size");
    let text = std::fs::read_to_string(&size).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let why =
                "it is a device, and no devdax one; a pool is an ordinary file, a block device, or a devdax device";
            io_error("open", path)(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        _ => io_error("read the size of", path)(error),
    })?;
    text.trim().parse().map_err(|_| io_error("parse the size of", path)(io::ErrorKind::InvalidData.into()))
}

/// Makes a block device zero, which free space of a pool is promised to be. It must not hold anything: what begins and ends with zeros is empty.
pub(crate) fn clear(file: &File, path: &Path, len: u64) -> Result<()> {
    let ends = [0, len.saturating_sub(TELLTALE)];
    for start in ends {
        let mut bytes = vec![0; TELLTALE.min(len - start) as usize];
        file.read_exact_at(&mut bytes, start).map_err(io_error("read", path))?;
        if bytes.iter().any(|byte| *byte != 0) {
            let why = "the device holds something, which would be gone: clear it first (`blkdiscard --zeroout`)";
            return Err(io_error("create", path)(io::Error::new(io::ErrorKind::AlreadyExists, why)));
        }
    }
    // The device does it, if it can; else the kernel writes them.
    fallocate(file, FallocateFlags::ZERO_RANGE, 0, len).map_err(|e| io_error("clear", path)(e.into()))?;
    fdatasync(file).map_err(|e| io_error("sync", path)(e.into()))
}
