//! A copy of the store, made beside running transactions.
//!
//! It is what a crash at one moment, the *cut*, would have left of the file, recovered: every commit that was durable then is in it, and nothing else. The pool's file is copied
//! while all transactions go on ([`pmem::Image`]), then what was flushed meanwhile. For the rest these are held, in the order in which others take them:
//!
//! | held | so that no thread |
//! |---|---|
//! | the growing | grows the store |
//! | the upkeep | writes back, makes copies, changes K and W or retires a record |
//! | every slot's log | commits |
//! | the pool's header | adds or changes regions |
//!
//! What a running transaction stores meanwhile goes into versions in DRAM, or into blocks that no record names.

use std::path::Path;

use pmem::{Image, Pool, Waits};
use tx::Result;

use crate::calls::Registered;
use crate::core::Core;
use crate::failpoints::Step;
use crate::mvcc::Mvcc;
use crate::options::Options;
use crate::recovery::Recovery;

/// A backup that was made, and opened.
pub type Backup = tx::Backup<Recovery>;

impl Mvcc {
    /// Writes a copy of the pool to `path`, where nothing may be, while transactions run and snapshots are held: everything that was acknowledged before the call is in it, and of each
    /// later transaction all or nothing. No transaction commits while the rest is copied, into memory: 1 MiB at most. Before that, transactions that write faster than is copied
    /// are slowed down to half the copier's speed. `progress` is told how many of how many bytes are copied; a later pass is about fewer.
    ///
    /// The copy was opened, with this store's procedures, recovered and closed before it gets its name. It has the same identity as the pool, so that its pointers are the same. A process
    /// that is killed meanwhile leaves nothing; where the file system has no files without a name (`O_TMPFILE`), a hidden file `.NAME.making-` and numbers, which is of no use.
    ///
    /// ```
    /// # fn main() -> tx::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use mvcc::{Mvcc, Options};
    /// use tx::{Engine, Isolation::Serializable, Typed};
    ///
    /// let store = Mvcc::create(dir.path().join("p"), &Options::new().bytes(1 << 20))?;
    /// let number = store.transact(Serializable, |tx| tx.alloc(&7u64))?;
    /// let backup = store.backup(dir.path().join("monday"), |_, _| ())?;
    /// assert_eq!((backup.bytes, backup.objects), (store.pool().size(), 2)); // and the root's cell
    ///
    /// let monday = Mvcc::open(dir.path().join("monday"), &Options::new())?;
    /// assert_eq!(monday.snapshot().read(number)?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`pmem::Error::Io`]: `AlreadyExists` if something is at `path`, `Unsupported` if the pool has no file: a device, or a simulated one. [`pmem::Error::NoSpace`] at `path`;
    /// [`pmem::Error::BackupRunning`] while another backup is made; [`tx::Error::Damaged`] if the copy shows that bytes of the store are corrupt. There is nothing at `path` then.
    pub fn backup(&self, path: impl AsRef<Path>, progress: impl FnMut(u64, u64)) -> Result<Backup> {
        let core = self.core();
        Backup::make(
            &core.pool,
            path.as_ref(),
            progress,
            |image| core.cut(image),
            |copy| verify(copy, self.procedures()),
        )
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
    fn hold<'s>(&'s self, waits: &mut Waits<'_, '_>) -> pmem::Result<Option<impl Sized + use<'s>>> {
        // First: it may take long, and the thread that has it takes none of the others.
        let Some(growing) = waits.until(|| self.growing.try_lock())? else { return Ok(None) };
        let closed = self.door.close();
        let Some(upkeep) = waits.until(|| self.upkeep.try_lock())? else { return Ok(None) };
        let mut logs = Vec::with_capacity(self.logs.len());
        for log in &self.logs {
            let Some(log) = waits.until(|| log.try_lock())? else { return Ok(None) };
            logs.push(log);
        }
        Ok(Some((logs, upkeep, closed, growing)))
    }
}

/// Opens a copy as a program would, with these procedures, looks at it, and closes it.
fn verify(pool: Pool, procedures: &[Registered]) -> Result<(Recovery, u64)> {
    let options = Options { procedures: procedures.to_vec(), ..Options::new().background(false) };
    let store = Mvcc::open_in(&pool, &options)?;
    drop(pool); // the store's own handle is the last
    let recovery = *store.recovery();
    let objects = store.live_blocks(|_, _| {})?.live_blocks;
    store.close()?;
    Ok((recovery, objects))
}
