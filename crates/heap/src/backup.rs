//! A copy of the heap's pool, made beside running transactions.
//!
//! It is what a crash at one moment, the *cut*, would have left of the file, recovered: what was durable then is in it, what was open is taken back. The pool's file is
//! copied while all transactions go on ([`pmem::Image`]), then what was flushed meanwhile, until little is left. Should writers be faster than that, they are held back, a
//! little at a time, until no more than half of [`CUT_MAX`] is left. For the rest, and for the cut, these are held, in this order, which is that in which others take
//! them, too:
//!
//! | held | so that no thread |
//! |---|---|
//! | the gate of the copies | makes a copy of an object, or gives one up |
//! | the zones | marks one dirty, or clean |
//! | every slot's log | commits, applies, keeps old bytes, tells an intent |
//! | the growing | grows heap, backup or logs |
//! | the pool's header | adds or changes regions |
//!
//! A transaction may go on storing where it has stored before, and be rolled back and its objects be written by others: all of that is in objects whose last durable state is kept,
//! by what is held, in old bytes, in the backup, or in a copy. So recovery puts it back. With policy `none` nothing is kept, and the copy holds what a crash leaves.
//!
//! How they are taken, while others wait for the copier: [`Image::cut_held`].
//!
//! The caller may have a transaction open: no transaction waits for an object.

use std::path::Path;
use std::time::Duration;

use pmem::{Image, Pool, Waits};
use tx::{Error, Result};

use crate::core::Core;
use crate::failpoints::Step;
use crate::heap::Heap;
use crate::options::{Options, Policy};
use crate::recovery::Recovery;

/// So long the copier waits for the gate at a time.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// A backup that was made, and verified.
pub type Backup = tx::Backup<Recovery>;

impl Heap {
    /// Writes a copy of the pool to `path`, where nothing may be, while transactions run: everything that was acknowledged before the call is in it, and of each later
    /// transaction all or nothing. With [`Policy::None`] it is as after a crash, which leaves halves. No transaction commits while the rest is copied, into memory: 1 MiB
    /// at most. Before that, transactions that write faster than is copied are slowed down to half the copier's speed. The cut waits for transactions that are committing;
    /// where these write more than that mebibyte, what they write is copied meanwhile ([`Backup::cut_bytes`] counts it). It waits for a full `scrub`, too. `progress` is told how many of how many bytes are copied; a later pass is
    /// about fewer.
    ///
    /// The copy was opened, recovered, compared with its own backup and closed before it gets its name. It has the same identity as the pool, so that its pointers are the same. What else is in
    /// the pool, beside the heap, is copied as it is read. A process that is killed meanwhile leaves nothing; where the file system has no files
    /// without a name (`O_TMPFILE`), a hidden file `.NAME.making-` and numbers, which is of no use.
    ///
    /// ```
    /// # fn main() -> tx::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use heap::{Heap, Options};
    /// use tx::{Engine, Isolation::Serializable, Typed};
    ///
    /// let heap = Heap::create(dir.path().join("p"), &Options::new().bytes(1 << 20))?;
    /// let number = heap.transact(Serializable, |tx| tx.alloc(&7u64))?;
    /// let backup = heap.backup(dir.path().join("monday"), |_, _| ())?;
    /// assert_eq!((backup.bytes, backup.objects), (heap.pool().size(), 2)); // and the root's cell
    ///
    /// let monday = Heap::open(dir.path().join("monday"), &Options::new())?;
    /// assert_eq!(monday.transact(Serializable, |tx| tx.read(number).copied())?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`pmem::Error::Io`]: `AlreadyExists` if something is at `path`, `Unsupported` if the pool has no file: a device, or a simulated one. [`pmem::Error::NoSpace`] at `path`;
    /// [`pmem::Error::BackupRunning`] while another backup is made; [`Error::Damaged`] if the copy shows that bytes of the heap are corrupt. There is nothing at `path` then.
    pub fn backup(&self, path: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<Backup> {
        let core = self.core();
        Backup::make(&core.pool, path.as_ref(), progress, |image| core.cut(image), verify)
    }
}

impl Core {
    fn cut(&self, image: &mut Image<'_>) -> Result<u64> {
        if self.failpoints.skips(Step::CutHolds) {
            return Ok(image.cut_into_memory()?);
        }
        Ok(image.cut_held(|waits| self.hold(waits))?)
    }

    /// `None` if what others may flush was used up before everything was held.
    fn hold<'h>(&'h self, waits: &mut Waits<'_, '_>) -> pmem::Result<Option<impl Sized + use<'h>>> {
        let closed = self.door.close();
        let gate = match &self.copies {
            Some(copies) => match waits.until(|| copies.try_hold_gate(POLL_INTERVAL))? {
                None => return Ok(None),
                gate => gate,
            },
            None => None,
        };
        let Some(zones) = waits.until(|| self.zones.try_hold())? else { return Ok(None) };
        let mut logs = Vec::with_capacity(self.logs.len());
        for log in &self.logs {
            let Some(log) = waits.until(|| log.try_lock())? else { return Ok(None) };
            logs.push(log);
        }
        let growing = waits.until(|| self.growing.try_lock())?;
        Ok(growing.map(|growing| (growing, logs, zones, gate, closed)))
    }
}

/// Opens a copy as a program would, looks at it, and closes it.
fn verify(pool: Pool) -> Result<(Recovery, u64)> {
    let heap = Heap::open_in(&pool, &Options::new().coordinator(false))?;
    drop(pool); // the heap's own handle is the last
    let recovery = heap.recovery().clone();
    let objects = heap.live_blocks(|_, _| {})?.live_blocks;
    if heap.policy() == Policy::InPlace {
        let found = heap.compare()?;
        if found.main_repaired + found.backup_repaired > 0 {
            let (main, backup) = (found.main_repaired, found.backup_repaired);
            let why = format!(
                "{main} bytes of objects and {backup} of their backup went bad at rest, and `cairn scrub` can repair them"
            );
            return Err(Error::Damaged { what: "heap", offset: 0, why });
        }
    }
    heap.close()?;
    Ok((recovery, objects))
}
