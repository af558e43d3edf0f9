//! Devices: a pool is as long as the device that it is on, for good.
//!
//! A devdax device is memory and has no `read`; a block device is a file in all but its length: its page cache is mapped, and synced.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync};

use crate::error::Result;
use crate::mapping::PAGE;
use crate::open::{io_error, lock};

/// What a file system, a partition table or a volume has at the beginning of a device, or at its end, is within so many bytes.
const TELLTALE: u64 = 128 << 10;

pub(crate) fn is_device(kind: FileType) -> bool {
    kind.is_char_device() || kind.is_block_device()
}

/// Opens a block device for this process alone: nobody has it mounted, and nobody mounts it. Of others, the file itself.
pub(crate) fn claimed(file: File, path: &Path) -> Result<File> {
    if !file.metadata().map_err(io_error("stat", path))?.file_type().is_block_device() {
        return Ok(file);
    }
    let flags = (OFlags::EXCL | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let claimed = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    claimed.or_else(|error| {
        let is_busy = error.kind() == io::ErrorKind::ResourceBusy;
        if is_busy {
            lock(&file, path, false)?; // if it is a pool that is open, says by whom
        }
        let why = "it is mounted, or another program has it: unmount it, or choose another one";
        Err(io_error("open", path)(if is_busy { io::Error::new(io::ErrorKind::ResourceBusy, why) } else { error }))
    })
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
