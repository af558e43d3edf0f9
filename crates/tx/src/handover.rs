//! Objects on their way from one engine to another, in the pool that they are in.
//!
//! Engines on persistent objects have the same blocks, and differ in what they keep beside them: logs, copies, cells. So nothing is copied. What the new engine keeps is made first, in regions
//! that are of no meaning as long as the blocks are the old one's; then the region with the blocks gets another name, and the pool another layout, in one update of its header.

use pmem::{Error as PoolError, Pool, Region};

use crate::{Error, Result};

/// Objects that their engine has given up: all is written, none is in use. They are still its own, and it opens them again, until another engine takes them over.
#[derive(Debug)]
pub struct Handover {
    pool: Pool,
    region: &'static str,
    layout: &'static str,
    root: u64,
}

impl Handover {
    /// For engines: the region with the blocks, the layout of pools that have nothing else, and the block that holds the root's pointer.
    #[doc(hidden)]
    pub fn new(pool: Pool, region: &'static str, layout: &'static str, root: u64) -> Self {
        Self { pool, region, layout, root }
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The region with the blocks.
    #[doc(hidden)]
    pub fn region(&self) -> &'static str {
        self.region
    }

    /// Offset of the block that holds the root's pointer.
    #[doc(hidden)]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// For engines: a region that the new one keeps beside the blocks. One that an earlier engine of its kind has left is used again, if it has these bytes.
    ///
    /// # Errors
    /// [`Error::Limit`] if it has fewer; those of [`Pool::add_region`].
    #[doc(hidden)]
    pub fn part(&self, name: &str, bytes: u64) -> Result<Region> {
        let region = match self.pool.region(name) {
            Err(PoolError::NoRegion { .. }) => self.pool.add_region(name, bytes)?,
            found => found?,
        };
        if region.len() < bytes {
            let what = "bytes of logs, of which the pool has as many as an earlier engine had";
            return Err(Error::Limit { what, found: bytes, max: region.len() });
        }
        Ok(region)
    }

    /// For engines: `prepare` makes what the new engine keeps beside the blocks, and makes it durable; then they are its own, in a region of this name. After an error they are the old one's, and the pool is
    /// closed.
    ///
    /// # Errors
    /// [`pmem::Error::RegionExists`] if the pool has objects of the new engine already; that of `prepare`; those of a drain.
    #[doc(hidden)]
    pub fn pass(
        self,
        region: &'static str,
        layout: &'static str,
        prepare: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Pool> {
        match self.try_pass(region, layout, prepare) {
            Ok(()) => {
                self.pool.set_pending(true); // to be opened before it can be closed
                Ok(self.pool)
            }
            Err(error) => {
                // If that fails, too, the old engine recovers them, which loses nothing.
                self.close().unwrap_or(());
                Err(error)
            }
        }
    }

    fn try_pass(
        &self,
        region: &'static str,
        layout: &'static str,
        prepare: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let info = self.pool.info();
        if info.regions.iter().any(|other| other.name == region) {
            return Err(PoolError::RegionExists { name: region.to_owned() }.into());
        }
        if self.pool.is_pending() {
            return Err(PoolError::InUse { what: "the pool, in which an engine was opened since".into() }.into());
        }
        prepare(self)?;
        // A pool that a program has given a name of its own keeps it.
        let layout = (info.layout == self.layout).then_some(layout);
        Ok(self.pool.rename(&[(self.region, region)], layout)?)
    }

    /// Closes the pool: the objects stay with their engine.
    ///
    /// # Errors
    /// Those of [`Pool::close`].
    pub fn close(self) -> Result<()> {
        Ok(self.pool.close()?)
    }
}

/// What an engine that had the objects earlier has left in the pool: of no meaning, so there is nothing to recover. `earlier` names the region that it had.
#[doc(hidden)]
pub fn pass_over(pool: &Pool, earlier: &str) {
    let regions = pool.info().regions;
    if regions.iter().any(|region| region.name == earlier) {
        return; // it is there
    }
    let is_its = |name: &str| name.strip_prefix(earlier).is_some_and(|rest| rest.starts_with('.'));
    for region in regions.iter().filter(|region| is_its(&region.name)) {
        drop(pool.region(&region.name));
    }
}
