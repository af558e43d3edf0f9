//! Backups that engines make beside running transactions: what they have in common.

use std::path::Path;

use pmem::{Image, Pool};

use crate::Result;

/// A backup that was made, and opened to be looked at. `R` is what an engine says of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup<R> {
    /// Bytes of the copy.
    pub bytes: u64,
    /// Bytes that were copied while transactions could not commit: 1 MiB at most, and what transactions that were under way then wrote, where these write more than
    /// that.
    pub cut_bytes: u64,
    /// Times that something was copied, with the cut.
    pub passes: u64,
    /// What opening the copy had to do.
    pub recovery: R,
    /// Live objects in it.
    pub objects: u64,
}

impl<R> Backup<R> {
    /// Copies the pool to `path`: all of it, and what is written meanwhile; the rest by `cut`, which returns how many bytes that was, while no transaction commits. `verify` opens the
    /// copy, and returns what that had to do, and how many live objects it has; then it gets its name.
    ///
    /// # Errors
    /// Those of [`Image`]; what `cut` and `verify` return. There is nothing at `path` then.
    #[doc(hidden)]
    pub fn make(
        pool: &Pool,
        path: &Path,
        progress: impl FnMut(u64, u64),
        cut: impl FnOnce(&mut Image<'_>) -> Result<u64>,
        verify: impl FnOnce(Pool) -> Result<(R, u64)>,
    ) -> Result<Self> {
        let mut image = pool.image(path)?;
        let passes = image.catch_up(progress)? + 1;
        let cut_bytes = cut(&mut image)?;
        image.write_out()?;
        // The sync before it is published makes all of it durable, so there is no barrier before.
        let options = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
        let copy = options.open(image.temporary())?;
        let bytes = copy.size();
        let (recovery, objects) = verify(copy)?;
        image.publish()?;
        Ok(Self { bytes, cut_bytes, passes, recovery, objects })
    }
}
