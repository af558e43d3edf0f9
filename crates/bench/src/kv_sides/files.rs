//! The files of a store.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::{Error, Result};

/// Bytes that the files in `dir` take of the device; holes take none.
pub(crate) fn taken(dir: &Path) -> Result<u64> {
    const BLOCK: u64 = 512; // whatever the file system's own is
    let mut bytes = 0;
    each(dir, &mut |_, metadata| {
        bytes += if metadata.is_file() { metadata.blocks() * BLOCK } else { 0 };
        Ok(())
    })
    .map_err(|source| Error::Io { op: "measure the files", path: dir.to_owned(), source })?;
    Ok(bytes)
}

/// Copies all files below `from` to `to`, holes as holes; what has all its blocks has them in the copy, too, so that no store has to ask for
/// them when it opens. Of a store that is open, and at rest, this is what is left when its process is killed: all
/// that was written to a file or its mapping, nothing that only memory has.
pub(crate) fn as_killed(from: &Path, to: &Path) -> Result<()> {
    let copied = fs::create_dir_all(to).and_then(|()| {
        each(from, &mut |path, metadata| {
            let target = to.join(path.strip_prefix(from).unwrap_or(path));
            if metadata.is_dir() { fs::create_dir_all(target) } else { copy(path, &target, metadata) }
        })
    });
    copied.map_err(|source| Error::Io { op: "copy the files", path: from.to_owned(), source })
}

/// Uses as much memory as files of `bytes` would, and gives it back, if `dir` is in memory: up to half of what is free there. A page that a virtual machine
/// has never used is found by its host first, which can take ten times as long as all the rest of a write; stores that write to new places would
/// pay for it, and those that overwrite would not.
pub(crate) fn use_memory(dir: &Path, bytes: u64) -> Result<()> {
    const TMPFS: i64 = 0x0102_1994;
    const MIB: u64 = 1 << 20;
    let failed = |source| Error::Io { op: "use memory in", path: dir.to_owned(), source };
    if rustix::fs::statfs(dir).map_err(|errno| failed(errno.into()))?.f_type as i64 != TMPFS {
        return Ok(());
    }
    let space = rustix::fs::statvfs(dir).map_err(|errno| failed(errno.into()))?;
    let page = vec![1; MIB as usize];
    let mut file = tempfile::tempfile_in(dir).map_err(failed)?;
    (0..bytes.min(space.f_bavail * space.f_frsize / 2) / MIB).try_for_each(|_| file.write_all(&page)).map_err(failed)
}

type Visit<'a> = &'a mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>;

/// Directories before what is in them. What goes meanwhile is gone.
fn each(dir: &Path, visit: Visit<'_>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let done = path.metadata().and_then(|metadata| {
            visit(&path, &metadata)?;
            if metadata.is_dir() { each(&path, visit) } else { Ok(()) }
        });
        done.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    const CHUNK: usize = 1 << 16;
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    if metadata.len() > 0 && metadata.blocks() * 512 >= metadata.len() {
        // Where that cannot be, it is a sparse file.
        let _ = rustix::fs::fallocate(&target, rustix::fs::FallocateFlags::empty(), 0, metadata.len());
    }
    target.set_len(metadata.len())?;
    let mut chunk = vec![0; CHUNK];
    // Ends at the length it had: a file that is appended to meanwhile is cut there.
    let mut left = metadata.len();
    while left > 0 {
        let bytes = source.read(&mut chunk[..left.min(CHUNK as u64) as usize])?;
        match bytes {
            0 => break,
            _ if chunk[..bytes] == ZEROS[..bytes] => {
                target.seek(SeekFrom::Current(bytes as i64))?;
            }
            _ => target.write_all(&chunk[..bytes])?,
        }
        left -= bytes as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_as_small() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/short"), b"words").unwrap();
        let sparse = File::create(from.join("sparse")).unwrap();
        sparse.set_len(64 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 5000], 32 << 20).unwrap();

        let whole = File::create(from.join("whole")).unwrap();
        let allocated = rustix::fs::fallocate(&whole, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).is_ok();

        as_killed(&from, &to).unwrap();
        let blocks = to.join("whole").metadata().unwrap().blocks();
        assert!(blocks * 512 >= 1 << 20 || !allocated, "{blocks} blocks");
        fs::remove_file(to.join("whole")).unwrap();
        assert_eq!(fs::read(to.join("below/short")).unwrap(), b"words");
        let copy = fs::read(to.join("sparse")).unwrap();
        assert_eq!((copy.len(), &copy[32 << 20..][..5001]), (64 << 20, &[&[7; 5000][..], &[0]].concat()[..]));
        let bytes = taken(&to).unwrap();
        assert!((5000..1 << 20).contains(&bytes), "{bytes}");
        assert!(as_killed(&dir.path().join("none"), &to).unwrap_err().to_string().contains("none"));
    }
}
