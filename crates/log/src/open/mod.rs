//! A log is made or opened.

use std::path::Path;

use pmem::Pool;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::follower::Follower;
use crate::following::Following;
use crate::front::NAME;
use crate::handle::Log;
use crate::options::Options;
use crate::recovery::Recovered;

#[cfg(feature = "replication")]
mod replicas;

#[cfg(feature = "replication")]
pub use replicas::Replicas;

impl Options {
    // ---- a log in a pool of its own ---------------------------------------------------------------------------

    /// Makes a pool with one log in it. The file appears under its name when the log is whole.
    ///
    /// # Errors
    /// [`Error::Limit`]; those of [`pmem::Options::create`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Log> {
        self.check()?;
        let (segment, segments) = self.geometry()?;
        let size = (segment * segments + self.front().bytes() + 16384).next_multiple_of(4096);
        self.pool.clone().size(size).engine(NAME, [0; 64]).create_with(path, |pool| self.create_in(pool, NAME))
    }

    /// Opens the log in a pool of its own, and recovers it if it was not closed.
    ///
    /// # Errors
    /// [`Error::Lost`] if a record that was durable cannot be read back; those of [`pmem::Options::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<(Log, Recovered)> {
        let pool = self.pool.clone().engine(NAME, [0; 64]).open(path)?;
        self.open_in(&pool, NAME)
    }

    /// Opens the log at `path`, or makes one if nothing is there. What was found is [`Log::recovery`].
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Log> {
        match self.open(&path) {
            Err(Error::Pool(pmem::Error::Io { source, .. })) if source.kind() == std::io::ErrorKind::NotFound => {
                self.create(path)
            }
            other => Ok(other?.0),
        }
    }

    /// Opens a log that was closed for reading only; several processes may at once. To read one that is being written, see [`Follower`](crate::Follower).
    ///
    /// # Errors
    /// As [`open`](Self::open); [`pmem::Error::NeedsRecovery`] if it was not closed.
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<(Log, Recovered)> {
        let pool = self.pool.clone().engine(NAME, [0; 64]).open_read_only(path)?;
        self.open_in(&pool, NAME)
    }

    // ---- a log among other things -----------------------------------------------------------------------------

    /// Makes a log in a region of `pool`. Three barriers, and those of the region.
    ///
    /// # Errors
    /// [`Error::Limit`]; [`pmem::Error::RegionExists`], unless a crash cut its making short.
    pub fn create_in(&self, pool: &Pool, region: &str) -> Result<Log> {
        self.check()?;
        Ok(Log::new(Core::create(pool, region, self)?))
    }

    /// Opens the log in a region of `pool`.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::NotALog`], [`Error::NewerVersion`], [`Error::BadSuperline`].
    pub fn open_in(&self, pool: &Pool, region: &str) -> Result<(Log, Recovered)> {
        self.check()?;
        let (core, recovered) = Core::open(pool, region, self)?;
        Ok((Log::opened(core, recovered), recovered))
    }
}

impl Log {
    /// Makes a log in a new file: [`Options::create`](crate::Options::create).
    ///
    /// ```
    /// # fn main() -> cairn_log::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("orders");
    /// use cairn_log::{Log, Options};
    /// let log = Log::open_or_create(&path, &Options::new().bytes(1 << 20))?;
    /// log.append(b"17 apples")?;
    /// drop(log); // closes it
    /// assert_eq!(Log::open(&path, &Options::new())?.recovery().records, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.create(path)
    }

    /// Opens the log at `path`, and recovers it if it was not closed: [`Options::open`](crate::Options::open). What was found is [`recovery`](Self::recovery).
    ///
    /// # Errors
    /// As there.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Ok(options.open(path)?.0)
    }

    /// Opens the log at `path`, or makes one there: [`Options::open_or_create`](crate::Options::open_or_create).
    ///
    /// # Errors
    /// As there.
    pub fn open_or_create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.open_or_create(path)
    }

    /// Opens a log that was closed, for reading only: [`Options::open_read_only`](crate::Options::open_read_only). To read one that is being written,
    /// [`follow`](Self::follow).
    ///
    /// # Errors
    /// As there.
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        Ok(options.open_read_only(path)?.0)
    }

    /// The records of the log at `path`, from the oldest on, which another process may be writing: each when it is durable. It waits for the next one, without an end;
    /// [`Following::until_idle`] gives it one. [`Follower`] can do more.
    ///
    /// ```
    /// # fn main() -> cairn_log::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("orders");
    /// use cairn_log::{Log, Lsn, Options};
    /// use std::time::Duration;
    /// let log = Log::create(&path, &Options::new().bytes(1 << 20))?;
    /// log.append(b"17 apples")?;
    /// for record in Log::follow(&path)?.until_idle(Duration::from_secs(1)) {
    ///     let (lsn, bytes) = record?;
    ///     assert_eq!((lsn, &bytes[..]), (Lsn::new(1), &b"17 apples"[..]));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Follower::open`]; so there has to be a log by then.
    pub fn follow(path: impl AsRef<Path>) -> Result<Following> {
        Ok(Following::new(Follower::open(path)?))
    }
}
