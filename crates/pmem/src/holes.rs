//! Which bytes of a file have no blocks: a copy may be sparse.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{SeekFrom, fstatfs, seek};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl};

use crate::file::is_memory_fs;

/// What of the first `len` bytes has no blocks, in ascending order.
///
/// Exact where the file system lists extents (those that were allocated and never written are no holes); on tmpfs all of the file if a page
/// of it is missing. What cannot tell has none.
pub(crate) fn holes(file: &File, len: u64) -> io::Result<Vec<(u64, u64)>> {
    if is_memory_fs(fstatfs(file)?.f_type as i64) {
        // The count is of pages alone; to look at each of them takes 12 ms per GiB.
        let allocated = file.metadata()?.blocks() * 512;
        return Ok(if allocated < len { vec![(0, len)] } else { Vec::new() });
    }
    match between_extents(file, len) {
        Ok(holes) => Ok(holes),
        // The other way, where extents are not listed.
        Err(_) => between_data(file, len),
    }
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    len: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_more: [u32; 3],
}

const LAST: u32 = 1;
const EXTENTS: usize = 64;

/// `struct fiemap` with room for as many extents.
#[repr(C)]
struct Listed {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

/// `_IOWR('f', 11, struct fiemap)`, whose size has no extents in it.
const FIEMAP: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<[u64; 4]>(b'f', 11);

fn between_extents(file: &File, len: u64) -> rustix::io::Result<Vec<(u64, u64)>> {
    let (mut holes, mut at) = (Vec::new(), 0);
    while at < len {
        let mut list = Listed {
            start: at,
            len: len - at,
            flags: 0,
            mapped: 0,
            room: EXTENTS as u32,
            reserved: 0,
            extents: [Extent::default(); EXTENTS],
        };
        // SAFETY: the kernel writes this struct, and no more extents behind its head than `room` says.
        unsafe { ioctl(file, Updater::<FIEMAP, Listed>::new(&mut list)) }?;
        let mut last = true;
        for extent in list.extents.iter().take(list.mapped as usize) {
            if extent.logical > at {
                holes.push((at, extent.logical.min(len)));
            }
            last = extent.flags & LAST != 0 || extent.logical.saturating_add(extent.len) <= at;
            at = at.max(extent.logical.saturating_add(extent.len));
            if at >= len {
                break;
            }
        }
        if last && at < len {
            holes.push((at, len));
            break;
        }
    }
    Ok(holes)
}

/// Where a file system cannot tell, it says that all is data.
fn between_data(file: &File, len: u64) -> io::Result<Vec<(u64, u64)>> {
    let (mut holes, mut at) = (Vec::new(), 0);
    while at < len {
        let hole = match seek(file, SeekFrom::Hole(at)) {
            Ok(hole) => hole,
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error.into()),
        };
        if hole >= len {
            break;
        }
        at = match seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.clamp(hole + 1, len),
            Err(Errno::NXIO) => len,
            Err(error) => return Err(error.into()),
        };
        holes.push((hole, at));
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const PAGE: u64 = 4096;

    /// Every other page, so that one list of extents does not hold them.
    fn perforated(dir: &str) -> (File, Vec<(u64, u64)>) {
        let file = tempfile::tempfile_in(dir).unwrap();
        let pages = 3 * EXTENTS as u64 * 2;
        file.set_len(pages * PAGE).unwrap();
        for page in (0..pages).filter(|page| page % 2 == 1) {
            file.write_all_at(&[1; PAGE as usize], page * PAGE).unwrap();
        }
        let holes = (0..pages).filter(|page| page % 2 == 0).map(|page| (page * PAGE, (page + 1) * PAGE));
        (file, holes.collect())
    }

    #[test]
    fn holes_are_found_in_both_ways() {
        let (file, expected) = perforated(env!("CARGO_MANIFEST_DIR"));
        let len = expected.last().unwrap().1 + PAGE;
        if let Ok(listed) = between_extents(&file, len) {
            assert_eq!(listed, expected);
            file.set_len(2 * len).unwrap();
            assert_eq!(between_extents(&file, 2 * len).unwrap().last(), Some(&(len, 2 * len)));
            assert_eq!(between_extents(&file, len - PAGE).unwrap(), expected);
        }
        // File systems with larger blocks, and those that cannot tell, see fewer.
        let seen = between_data(&file, len).unwrap();
        assert!(seen.is_empty() || seen.len() > 1, "{seen:?}");
        assert!(seen.iter().all(|hole| expected.contains(hole)) || cfg!(not(target_arch = "x86_64")), "{seen:?}");
    }

    #[test]
    fn what_is_whole_has_none() {
        for dir in [env!("CARGO_MANIFEST_DIR"), "/dev/shm"] {
            let Ok(file) = tempfile::tempfile_in(dir) else { continue };
            file.write_all_at(&[1; 64 * PAGE as usize], 0).unwrap();
            assert_eq!(holes(&file, 64 * PAGE).unwrap(), []);
            assert!(between_data(&file, 64 * PAGE).unwrap().is_empty());
            file.set_len(128 * PAGE).unwrap();
            assert_eq!(holes(&file, 64 * PAGE).unwrap(), []);
            assert!(!holes(&file, 128 * PAGE).unwrap().is_empty());
        }
    }
}
