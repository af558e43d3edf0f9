//! Writes that a file takes whole (`RWF_ATOMIC`, Linux 6.11 and later): after a crash all of their bytes are there, or none.
//!
//! They go past the page cache, which drops what it has of the range. The block layer's devices have them, ext4 for a block, XFS for more: by the device, or by writing
//! elsewhere and changing the map.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

const STATX_WRITE_ATOMIC: StatxFlags = StatxFlags::from_bits_retain(0x0001_0000);
const RWF_ATOMIC: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);
/// Memory that is written from begins at a multiple of this, which is enough for every device.
const ALIGN: usize = 4096;

/// What a file system promises of a file, and the way past its page cache.
pub(crate) struct Whole {
    file: File,
    min: u64,
    max: u64,
    /// It has said that it does nothing of the kind, whatever it promised.
    refused: AtomicBool,
}

impl Whole {
    /// Nothing if it promises nothing.
    pub(crate) fn of(file: &File) -> Option<Self> {
        let stat = statx(file, c"", AtFlags::EMPTY_PATH, STATX_WRITE_ATOMIC).ok()?;
        let (min, most, best) = (
            u64::from(stat.stx_atomic_write_unit_min),
            u64::from(stat.stx_atomic_write_unit_max),
            u64::from(stat.stx_atomic_write_unit_max_opt),
        );
        if stat.stx_mask & STATX_WRITE_ATOMIC.bits() == 0 || min == 0 || min > most {
            return None;
        }
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = open(again, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // Beyond the best the promise holds, too, but costs more.
        let max = if best > 0 { best.min(most) } else { most };
        Some(Self { file: direct.into(), min, max, refused: AtomicBool::new(false) })
    }

    /// Of such a write.
    pub(crate) fn takes(&self, offset: u64, len: u64) -> bool {
        let is_one = len.is_power_of_two() && (self.min..=self.max).contains(&len) && offset.is_multiple_of(len);
        is_one && !self.refused.load(Relaxed)
    }

    /// Durable when it returns true; nothing was written when it returns false: a range may be refused all the same, as where the file is not contiguous.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<bool, Errno> {
        let mut room = vec![0; data.len() + ALIGN];
        let start = room.as_ptr().align_offset(ALIGN);
        let room = &mut room[start..][..data.len()];
        room.copy_from_slice(data);
        loop {
            match pwritev2(&self.file, &[IoSlice::new(room)], offset, RWF_ATOMIC | ReadWriteFlags::DSYNC) {
                Ok(written) if written == data.len() => return Ok(true),
                Ok(_) => return Err(Errno::IO), // a part of it is what cannot be
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.refused.store(true, Relaxed);
                    return Ok(false);
                }
                Err(Errno::INVAL | Errno::NOMEM) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}
