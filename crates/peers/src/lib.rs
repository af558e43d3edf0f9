//! Systems that Cairn is measured against, each doing the same work in the same process and directory.
//!
//! | peer | feature | Debian package | what it is here |
//! |---|---|---|---|
//! | `Pmemobj` | `pmemobj` | libpmemobj-dev | undo transactions; a hash map with bucket locks and a B+tree with one lock, in C, as its manual recommends |
//!
//! Without a feature nothing of it is compiled or needed; [`compiled`] tells which are in this build. `make setup-peers` installs the
//! packages.

#![deny(unsafe_code)]

#[cfg(feature = "pmemobj")]
mod pmemobj;
#[cfg(feature = "pmemobj")]
#[allow(unsafe_code)]
mod raw;

#[cfg(feature = "pmemobj")]
pub use pmemobj::{Error, FORCE, KEY_MAX, LISTS_MAX, Pmemobj, Result};
#[cfg(feature = "pmemobj")]
pub use raw::{List, Map, Objects};

/// All peers there can be, by the name of their package.
pub const ALL: &[&str] = &["pmemobj"];

/// The peers in this build.
#[must_use]
pub fn compiled() -> &'static [&'static str] {
    if cfg!(feature = "pmemobj") { ALL } else { &[] }
}
