//! A copy of a snapshot, made while others write; and the way back.
//!
//! A backup is a store of its own. It is written without a name and without a barrier, synced once, and named: under its name it is there as a whole, or not
//! at all. Each record is held against its checksum on the way, so that damage is told and not copied.

use std::path::Path;

use pmem::{DomainChoice, Draft};

use crate::Timestamp;
use crate::bulk::load::Loaded;
use crate::error::Result;
#[cfg(feature = "replication")]
use crate::media::origin::origin;
use crate::media::origin::set_origin;
use crate::options::Options;
use crate::store::{Snapshot, Store};
use crate::txn::transaction;

/// What a backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Everything committed up to here, in the store it was made of.
    pub timestamp: Timestamp,
    /// Pairs.
    pub pairs: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Store {
    /// Writes what is committed by now to a new store at `path`; no writer waits for it meanwhile. Values keep their expiry times.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.put(b"apples", b"17")?;
    /// let backup = store.backup(dir.path().join("monday"))?;
    /// assert_eq!(backup.pairs, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::backup`].
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<Backup> {
        self.snapshot()?.backup(path, |_| ())
    }

    /// As [`backup`](Self::backup), of a replicated store, with progress: a `Follower` begins with this copy instead of with the first commit, which the log
    /// may have no more. To be brought to the follower's machine soon: the log keeps what comes behind it as long as there is room.
    ///
    /// # Errors
    /// As [`Snapshot::backup`]; [`Error::NotReplicated`](crate::Error::NotReplicated).
    #[cfg(feature = "replication")]
    pub fn seed(&self, path: impl AsRef<Path>, progress: impl FnMut(Loaded)) -> Result<Backup> {
        self.seed_while(path.as_ref(), to_its_end(progress))
    }

    /// The same, until `progress` ends it.
    #[cfg(feature = "replication")]
    pub(crate) fn seed_while(&self, path: &Path, progress: impl FnMut(Loaded) -> Result<()>) -> Result<Backup> {
        let Some(log) = origin(self.core.versions.pool())? else { return Err(crate::Error::NotReplicated) };
        // The snapshot has these commits, and perhaps some behind them, which are repeated there.
        let origin = (log, crate::repeat::published(&self.core));
        let snapshot = self.snapshot()?;
        let loaded = write(&snapshot.0, path, Some(origin), progress)?;
        Ok(Backup { timestamp: snapshot.timestamp(), pairs: loaded.pairs, bytes: loaded.bytes })
    }
}

impl Snapshot<'_> {
    /// Writes this snapshot to a new store at `path`, and tells `progress` after each mebibyte what is written. A process that is killed meanwhile leaves nothing; where
    /// the file system has no files without a name (`O_TMPFILE`), a hidden file `.NAME.making-` and numbers, which is not needed.
    ///
    /// # Errors
    /// [`pmem::Error::Io`] (`AlreadyExists` if there is something at `path`), [`pmem::Error::NoSpace`]; [`Error::Damaged`](crate::Error::Damaged);
    /// [`Error::Expired`](crate::Error::Expired) if the snapshot became too old meanwhile.
    pub fn backup(&self, path: impl AsRef<Path>, progress: impl FnMut(Loaded)) -> Result<Backup> {
        let loaded = write(&self.0, path.as_ref(), None, to_its_end(progress))?;
        Ok(Backup { timestamp: self.timestamp(), pairs: loaded.pairs, bytes: loaded.bytes })
    }
}

/// Makes a store at `path`, where nothing may be, from the backup at `backup`; tells `progress` after each mebibyte what is written. The backup is only read,
/// each record is held against its checksum, and the new store has its name when it is whole.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = kv::Store::open(dir.path().join("s"))?;
/// # store.put(b"apples", b"17")?;
/// store.backup(dir.path().join("monday"))?;
/// store.delete(b"apples")?;
/// kv::restore(dir.path().join("monday"), dir.path().join("again"), |_| ())?;
/// let again = kv::Store::open(dir.path().join("again"))?;
/// assert_eq!(again.get(b"apples")?.as_deref(), Some(&b"17"[..]));
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`Options::open_read_only`] and [`Snapshot::backup`].
pub fn restore(backup: impl AsRef<Path>, path: impl AsRef<Path>, progress: impl FnMut(Loaded)) -> Result<Loaded> {
    let store = Options::new().open_read_only(backup)?;
    let loaded = write(&store.snapshot()?.0, path.as_ref(), None, to_its_end(progress))?;
    store.close()?;
    Ok(loaded)
}

/// Progress that ends nothing.
fn to_its_end(mut progress: impl FnMut(Loaded)) -> impl FnMut(Loaded) -> Result<()> {
    move |loaded| {
        progress(loaded);
        Ok(())
    }
}

/// Of which log, and its last commit.
type Origin = (u64, u64);

fn write(
    snapshot: &transaction::Transaction<'_>,
    path: &Path,
    origin: Option<Origin>,
    progress: impl FnMut(Loaded) -> Result<()>,
) -> Result<Loaded> {
    let draft = Draft::new(path)?;
    let loaded = copy(snapshot, &draft, origin, progress)?;
    draft.publish()?;
    Ok(loaded)
}

fn copy(
    snapshot: &transaction::Transaction<'_>,
    draft: &Draft,
    origin: Option<Origin>,
    mut progress: impl FnMut(Loaded) -> Result<()>,
) -> Result<Loaded> {
    let core = snapshot.core();
    // One sync of the file makes all of it durable, so there is no barrier before.
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let options = Options::new().segment_bytes(core.options.segment).background(false).pool(pool);
    let store = options.create_draft(draft)?;
    let mut loader = store.loader();
    let mut records = snapshot.records();
    snapshot.check()?; // of an empty one, too
    while let Some(record) = records.next()? {
        snapshot.check()?;
        core.versions.verify(record)?;
        if loader.put(record.key(), record.value(), record.expires())? {
            progress(loader.loaded())?;
        }
    }
    let loaded = loader.finish()?;
    progress(loaded)?;
    if let Some((log, commits)) = origin {
        set_origin(store.core.versions.pool(), log)?;
        store.core.persistence.restart(commits);
    }
    store.close()?;
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// As one that a leader makes for a follower, and leads no more.
    #[test]
    fn one_that_is_ended_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Options::new().background(false).create(dir.path().join("store")).unwrap();
        for n in 0..40_u32 {
            store.put(&n.to_be_bytes(), &[7; 100 << 10]).unwrap();
        }
        let (copy, mut told) = (dir.path().join("copy"), 0);
        let ended = write(&store.snapshot().unwrap().0, &copy, None, |_| {
            told += 1;
            if told == 2 { Err(Error::Doomed { first: "enough".into() }) } else { Ok(()) }
        });
        assert!(matches!(ended, Err(Error::Doomed { .. })), "{ended:?}");
        assert_eq!((told, dir.path().read_dir().unwrap().count()), (2, 1));
    }
}
