//! The ways to a store: it is made or opened, in a pool of its own or in one that is there.

use std::path::Path;

use pmem::Pool;

use crate::copies;
use crate::error::{Error, Result};
use crate::media::origin::origin;
use crate::media::regions::NAME;
use crate::open::{create, recovery};
use crate::options::{Durability, Options};
use crate::store::Store;

impl Store {
    /// Opens the store at `path` with the default options; makes one if there is none, recovers it if it was not closed.
    ///
    /// # Errors
    /// As [`Options::open_or_create`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open_or_create(path)
    }

    /// Makes a store at `path`, where nothing is: [`Options::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.create(path)
    }

    /// As [`open`](Self::open), with options: [`Options::open_or_create`]. To open only what is there, [`Options::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open_or_create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.open_or_create(path)
    }

    /// Opens a store that was closed, for reading only: [`Options::open_read_only`].
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("shop.cairn");
    /// kv::Store::open(&path)?.put("apples", "17")?; // dropped, so closed
    /// let store = kv::Store::open_read_only(&path)?;
    /// assert_eq!(store.get("apples")?.as_deref(), Some(&b"17"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open_read_only(path)
    }
}

impl Options {
    // ---- a store in a pool of its own -------------------------------------------------------------------------

    /// Makes a store.
    ///
    /// # Errors
    /// Those of [`pmem::Options::create`]; of a replicated one, those of `log::Options::create_replicated`.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Store> {
        self.check()?;
        let path = path.as_ref();
        if let Some(copies) = &self.copies {
            if path.symlink_metadata().is_ok() {
                let source = std::io::ErrorKind::AlreadyExists.into();
                return Err(pmem::Error::Io { op: "create", path: path.to_owned(), source }.into());
            }
            // The log first: of a log alone the store can be made.
            let log = copies.create()?;
            return self.create_of(path, log);
        }
        self.create_alone(path)
    }

    /// As [`create`](Self::create), in a file that gets its name later.
    pub(crate) fn create_draft(&self, draft: &pmem::Draft) -> Result<Store> {
        self.check()?;
        let pool = self.pool.clone().size(self.least()).engine(NAME, [0; 64]).create_draft(draft)?;
        Store::start(create::create(&pool, self)?)
    }

    fn create_alone(&self, path: &Path) -> Result<Store> {
        let pool = self.pool.clone().size(self.least()).engine(NAME, [0; 64]);
        pool.create_with(path, |pool| Store::start(create::create(pool, self)?))
    }

    /// A store made of a log.
    fn create_of(&self, path: &Path, log: copies::Log) -> Result<Store> {
        let store = self.create_alone(path)?;
        lead(&store, log)?;
        Ok(store)
    }

    /// Opens a store, and recovers it if it was not closed.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Damaged`]; those of [`pmem::Options::open`]; of a replicated one, those of `log::Options::open_replicated`, and [`Error::Behind`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        self.check()?;
        let pool = self.pool.clone().engine(NAME, [0; 64]).open(path)?;
        let opened = self.open_in(&pool);
        if let Err(Error::IsReplicated { .. }) = opened {
            let _ = pool.close(); // as it was; that it is another's store is what matters
        }
        opened
    }

    /// Opens the store at `path`, or makes one there.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        match self.open(path) {
            Err(Error::Pool(pmem::Error::Io { source, .. })) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => return other,
        }
        match (self.create(path), &self.copies) {
            // There is a log already.
            (Err(error), Some(copies)) if copies::is_there(&error) => self.create_of(path, copies.open()?),
            (other, _) => other,
        }
    }

    /// Opens a store that was closed, for reading only; several processes may at once.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`pmem::Error::NeedsRecovery`] if it was not closed.
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Store> {
        self.check()?;
        let pool = self.pool.clone().engine(NAME, [0; 64]).open_read_only(path)?;
        self.open_in(&pool)
    }

    /// Bytes of the smallest pool for a store.
    pub(super) fn least(&self) -> u64 {
        create::SEGMENTS * self.segment + create::table_bytes(self.segment) + 16384
    }

    // ---- on a pool that is there ------------------------------------------------------------------------------

    /// Makes a store in a pool; one is all it can have.
    ///
    /// # Errors
    /// [`pmem::Error::RegionExists`], unless a crash cut its making short; as [`create`](Self::create).
    pub fn create_in(&self, pool: &Pool) -> Result<Store> {
        self.check()?;
        let log = self.copies.as_ref().map(|copies| copies.create()).transpose()?;
        let store = Store::start(create::create(pool, self)?)?;
        log.map_or(Ok(()), |log| lead(&store, log))?;
        Ok(store)
    }

    /// Opens the store in a pool.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(&self, pool: &Pool) -> Result<Store> {
        self.check()?;
        let store = self.open_following(pool)?;
        if let Some(copies) = &self.copies {
            lead(&store, copies.open()?)?;
        }
        Ok(store)
    }

    /// The store of a follower, which is made if nothing is there.
    pub(crate) fn open_or_make(&self, path: &Path) -> Result<Store> {
        self.check_values()?;
        if path.symlink_metadata().is_err() {
            return self.create_alone(path);
        }
        self.open_following(&self.pool.clone().engine(NAME, [0; 64]).open(path)?)
    }

    /// The store in a pool; a replicated one does not lead yet.
    pub(super) fn open_following(&self, pool: &Pool) -> Result<Store> {
        let origin = origin(pool)?;
        let is_replicated = self.durability == Durability::Replicated;
        if let (Some(log), false) = (origin, is_replicated || self.salvage || pool.is_read_only()) {
            return Err(Error::IsReplicated { log });
        }
        let core = recovery::open(pool, self)?;
        if is_replicated && origin.is_none() && core.versions.index.entries() > 0 {
            return Err(Error::NotReplicated);
        }
        Store::start(core)
    }
}

/// The store leads this log from now on.
#[cfg(feature = "replication")]
fn lead(store: &Store, log: copies::Log) -> Result<()> {
    crate::repeat::take_over(&store.core, log)
}

#[cfg(not(feature = "replication"))]
fn lead(_: &Store, log: copies::Log) -> Result<()> {
    match log {}
}
