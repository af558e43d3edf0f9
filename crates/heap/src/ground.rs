//! What everything in a heap stands on: the pool, main and its second copy, and what is known of both.

use std::sync::atomic::AtomicU64;

use pmem::sync::Mutex;
use pmem::{Allocator, Error as PoolError, FlushSet, Pool};
use tx::{Error, Result};

use crate::copies::Copies;
use crate::failpoints::Failpoints;
use crate::follower::Follower;
use crate::options::{Intents, Policy};
use crate::raw::{self, Claim};
use crate::record::{Bytes, is_short};
use crate::space::Space;
use crate::zones::Zones;

pub(crate) struct Ground {
    pub(crate) policy: Policy,
    pub(crate) intents: Intents,
    pub(crate) pool: Pool,
    pub(crate) alloc: Allocator,
    /// The chunks of main, and their bytes on the backup.
    pub(crate) main: Space,
    pub(crate) backup: Space,
    pub(crate) zones: Zones,
    /// Of a partial backup.
    pub(crate) copies: Option<Copies>,
    /// Held while the heap grows: what grows with main.
    pub(crate) growing: Mutex<Follower>,
    /// Main does not grow beyond this by itself.
    pub(crate) bytes_max: u64,
    /// Transactions of a slot that are applied together.
    pub(crate) batch: usize,
    /// Numbers for undo extents, unique in the life of the pool together with its generation.
    pub(crate) extents: AtomicU64,
    /// The first error behind a durable commit.
    pub(crate) trouble: Mutex<Option<Error>>,
    pub(crate) failpoints: Failpoints,
}

impl Ground {
    /// Where a byte of main is in the line of all its chunks.
    #[inline]
    pub(crate) fn linear(&self, offset: u64) -> Result<u64> {
        match self.main.linear(offset) {
            Some(at) => Ok(at),
            None => self.linear_after_growth(offset),
        }
    }

    /// Another thread has grown main, and not told yet.
    #[cold]
    fn linear_after_growth(&self, offset: u64) -> Result<u64> {
        let _growing = self.growing.lock();
        self.main.update(self.alloc.spaces().into_iter());
        self.main.linear(offset).ok_or(Error::Pool(PoolError::OutOfBounds {
            at: offset,
            end: offset,
            len: self.main.len(),
        }))
    }

    /// Calls `f` with (main, backup, length) for each piece of a range of main that is in one piece on the backup.
    #[inline]
    pub(crate) fn pieces(&self, offset: u64, len: u64, mut f: impl FnMut(u64, u64, u64) -> Result<()>) -> Result<()> {
        let (mut from, mut at, mut left) = (offset, self.linear(offset)?, len);
        while left > 0 {
            let (to, rest) = self.backup.offset(at).ok_or_else(|| self.backup_too_short(from))?;
            let n = left.min(rest);
            f(from, to, n)?;
            (from, at, left) = (from + n, at + n, left - n);
        }
        Ok(())
    }

    #[cold]
    fn backup_too_short(&self, offset: u64) -> Error {
        let why = format!("it ends at {} of {} bytes", self.backup.len(), self.main.len());
        Error::Damaged { what: "backup", offset, why }
    }

    /// Makes the backup of a range as main is, persistent after the next drain. The range is locked: pending, or no other thread is there yet.
    #[inline]
    #[track_caller]
    pub(crate) fn copy_to_backup(&self, offset: u64, len: u64) -> Result<()> {
        self.pieces(offset, len, |main, backup, n| {
            // main and backup are different regions. Main does not change while it is pending; the backup of a range is
            // used by the applying thread alone, under the slot's log lock, and no range is pending in two slots.
            raw::copy(Claim::Applying, &self.pool, main, backup, n)
        })
    }

    /// The same from an image of the range, past the cache.
    #[inline]
    #[track_caller]
    pub(crate) fn store_in_backup(&self, offset: u64, image: &[u8]) -> Result<()> {
        let mut rest = image;
        self.pieces(offset, image.len() as u64, |_, backup, n| {
            let (now, after) = rest.split_at(n as usize);
            rest = after;
            // as in `copy_to_backup`.
            raw::store(Claim::Applying, &self.pool, backup, now)
        })
    }

    /// Asks for the place of a range in the backup: its lines if they will be written in part, else what is needed to find it.
    #[inline]
    pub(crate) fn touch_backup(&self, (offset, len): Bytes) {
        if let Some((to, _)) = self.main.linear(offset).and_then(|at| self.backup.offset(at)) {
            self.pool.prefetch(to, if is_short(&(offset, len)) { pmem::lines(to, len) } else { 1 });
        }
    }

    /// Puts what a range of main held into the backup, and adds its lines. As for [`copy_to_backup`](Self::copy_to_backup).
    pub(crate) fn put_in_backup(&self, offset: u64, image: &[u8], lines: &mut FlushSet) -> Result<()> {
        let mut rest = image;
        self.pieces(offset, image.len() as u64, |_, backup, n| {
            let (now, after) = rest.split_at(n as usize);
            // as in `copy_to_backup`.
            raw::bytes_mut(Claim::Applying, self, &self.pool, backup, n)?.copy_from_slice(now);
            self.pool.add_lines(lines, backup, n);
            rest = after;
            Ok(())
        })
    }

    /// Makes a range of main as the backup is. The caller is its writer.
    #[track_caller]
    pub(crate) fn copy_from_backup(&self, offset: u64, len: u64) -> Result<()> {
        self.pieces(offset, len, |main, backup, n| {
            // as in `copy_to_backup`; the caller is the only one to use this range of main.
            raw::copy(Claim::Writer, &self.pool, backup, main, n)
        })
    }

    /// What goes wrong behind the point where a transaction is durable must not undo it: it is kept, and told when the heap is closed or
    /// checked. What it left undone is tried again by the next thread that needs it.
    #[inline]
    pub(crate) fn after_durable(&self, outcome: Result<()>) {
        if let Err(e) = outcome {
            self.trouble.lock().get_or_insert(e);
        }
    }

    /// A copy of bytes of the backup's line. The zone is quiet.
    pub(crate) fn backup_bytes(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        read_line(&self.pool, &self.backup, at, len)
    }
}

/// A copy of bytes of a line that no thread changes.
pub(crate) fn read_line(pool: &Pool, line: &Space, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len as usize);
    let mut at = at;
    let end = at + len;
    while at < end {
        let Some((offset, rest)) = line.offset(at) else { break };
        let n = rest.min(end - at);
        // the caller sees to it that no thread writes: the zone is quiet, or the heap is being opened.
        bytes.extend_from_slice(raw::bytes(Claim::Quiet, pool, pool, offset, n)?);
        at += n;
    }
    Ok(bytes)
}
