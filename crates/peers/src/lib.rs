//! Systems that Cairn is measured against, each doing the same work in the same process and directory.
//!
//! | peer | feature | Debian package | what it is here |
//! |---|---|---|---|
//! | `Pmemobj` | `pmemobj` | libpmemobj-dev | undo transactions; a hash map with bucket locks and a B+tree with one lock, in C, as its manual recommends |
//! | `Pmemlog` | `pmemlog` | libpmemlog-dev | a log of bytes, one lock, each append synced |
//!
//! Without a feature nothing of it is compiled or needed; [`compiled`] tells which are in this build. `make setup-peers` installs the
//! packages.

#![deny(unsafe_code)]

#[cfg(any(feature = "pmemobj", feature = "pmemlog"))]
mod error;
#[cfg(feature = "pmemlog")]
mod pmemlog;
#[cfg(feature = "pmemobj")]
mod pmemobj;
#[cfg(any(feature = "pmemobj", feature = "pmemlog"))]
#[allow(unsafe_code)]
mod raw;

#[cfg(any(feature = "pmemobj", feature = "pmemlog"))]
pub use error::{Error, Result};
#[cfg(feature = "pmemlog")]
pub use pmemlog::Pmemlog;
#[cfg(feature = "pmemobj")]
pub use pmemobj::{KEY_MAX, LISTS_MAX, Pmemobj};
#[cfg(feature = "pmemobj")]
pub use raw::pmemobj::{List, Map, Objects};

/// All peers there can be, by the name of their package.
pub const ALL: [&str; 2] = ["pmemobj", "pmemlog"];

/// On memory that is no DAX file system both libraries call `msync` unless this is in the environment when the process first opens a
/// pool. With it, they flush cache lines, as Cairn's emulated domain does.
pub const FORCE: (&str, &str) = ("PMEM_IS_PMEM_FORCE", "1");

/// The peers in this build.
#[must_use]
pub fn compiled() -> Vec<&'static str> {
    let in_build = [cfg!(feature = "pmemobj"), cfg!(feature = "pmemlog")];
    ALL.iter().zip(in_build).filter(|(_, there)| *there).map(|(name, _)| *name).collect()
}
