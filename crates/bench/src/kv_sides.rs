//! Stores of keys and values that are compared: ours, structures on our engines, and what others have.
//!
//! All are behind [`KvSide`]: each thread has a [`Session`], whose single operations are those of a [`Store`], and which runs transactions of
//! several. What a call changes is durable when it returns.

mod field;
mod files;
mod kv;
mod ours;
#[cfg(feature = "redb")]
mod peers_side;
#[cfg(feature = "peers")]
mod pmemobj;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

pub use ::peers::Peer;
use pmem::Stats;
use tx::{Backoff, Isolation, RetryPolicy};

pub use field::Field;
pub(crate) use field::{Loaded, fill};
pub(crate) use files::{as_killed, taken};

use crate::engines::Structure;
#[cfg(feature = "peers")]
use crate::engines::missing_in_environment;
use crate::target::{Found, Store};
use crate::{Error, Result};

/// An open store.
pub trait KvSide: Send + Sync {
    /// One thread's way into it.
    ///
    /// # Errors
    /// Those of the store.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// What it has cost so far; `None` where nothing is counted.
    fn stats(&self) -> Option<Stats>;

    /// What it does to make data durable, in the words of our domains; `None` for what only knows files.
    fn domain(&self) -> Option<String>;
}

/// One thread's way into a store.
pub trait Session: Store {
    /// Tries a transaction once: all of it happens, and the number of gets that found something is returned; or, after a conflict, nothing.
    /// Values that are read are copied to `out`, one over the other.
    ///
    /// # Errors
    /// Those of the store that are no conflicts; it has no such transactions.
    fn attempt(&mut self, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Option<u64>>;

    /// Tries until it is committed.
    ///
    /// # Errors
    /// As `attempt`; the timeout has passed.
    fn transaction(&mut self, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Found> {
        let mut backoff = Backoff::new(RetryPolicy::default());
        loop {
            if let Some(pairs) = self.attempt(isolation, steps, out)? {
                return Ok(Found { pairs, aborts: backoff.attempts().into() });
            }
            if !backoff.wait() {
                return Err(tx::Error::GaveUp { attempts: backoff.attempts(), offset: 0 }.into());
            }
        }
    }
}

/// A part of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Whose value.
    pub key: &'a [u8],
    /// The new one; `None` to read it.
    pub put: Option<&'a [u8]>,
}

/// True if nothing is changed.
#[must_use]
pub fn read_only(steps: &[Step<'_>]) -> bool {
    steps.iter().all(|step| step.put.is_none())
}

/// One that keeps keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// The crate `kv`.
    Kv,
    /// A structure in a heap, in place.
    Heap(Structure),
    /// A structure in libpmemobj.
    Pmemobj(Structure),
    /// Another system.
    Peer(Peer),
}

impl StoreKind {
    /// Ours, as `--engine` names them.
    pub const OURS: [Self; 3] = [Self::Kv, Self::Heap(Structure::BTree), Self::Heap(Structure::HashMap)];

    /// Others, as `--peer` names them.
    #[must_use]
    pub fn peers() -> Vec<Self> {
        let pmemobj = [Structure::HashMap, Structure::BTree].map(Self::Pmemobj);
        Peer::ALL.map(Self::Peer).into_iter().chain(pmemobj).collect()
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Heap(structure) => structure.name(),
            Self::Pmemobj(Structure::HashMap) => "pmemobj-hashmap",
            Self::Pmemobj(Structure::BTree) => "pmemobj-btree",
            Self::Peer(peer) => peer.name(),
        }
    }

    /// True of other people's systems.
    #[must_use]
    pub fn is_peer(self) -> bool {
        matches!(self, Self::Pmemobj(_) | Self::Peer(_))
    }

    /// True if it can scan.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        !matches!(self, Self::Heap(Structure::HashMap) | Self::Pmemobj(Structure::HashMap))
    }

    /// Levels at which it runs transactions of several operations; none if it has no such transactions.
    #[must_use]
    pub fn levels(self) -> Vec<Isolation> {
        match self {
            Self::Kv => vec![Isolation::Serializable, Isolation::Snapshot],
            Self::Heap(_) | Self::Pmemobj(Structure::HashMap) => vec![Isolation::Serializable],
            Self::Pmemobj(Structure::BTree) => vec![],
            Self::Peer(peer) => {
                let level = |level: &::peers::kv::Level| match level {
                    ::peers::kv::Level::Snapshot => Isolation::Snapshot,
                    ::peers::kv::Level::Serializable => Isolation::Serializable,
                };
                peer.levels().iter().map(level).collect()
            }
        }
    }

    /// Opens it in the directory `dir`, or makes it there. `Ok(Err(why))` if it is not in this build.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open(self, dir: &Path, room: KvRoom) -> Result<Result<Box<dyn KvSide>, String>> {
        let made = std::fs::create_dir_all(dir);
        made.map_err(|source| Error::Io { op: "make the directory", path: dir.to_owned(), source })?;
        Ok(Ok(match self {
            Self::Kv => Box::new(kv::OnStore::open(dir)?),
            Self::Heap(structure) => ours::open(dir, structure, room)?,
            #[cfg(feature = "peers")]
            Self::Pmemobj(structure) => Box::new(pmemobj::OnPmemobj::open(dir, structure, room)?),
            #[cfg(feature = "redb")]
            Self::Peer(peer) => match peers_side::OnPeer::open(peer, dir, room)? {
                Some(side) => Box::new(side),
                None => return Ok(Err(format!("not in this build: feature {peer}"))),
            },
            #[cfg(not(feature = "peers"))]
            _ => return Ok(Err(crate::engines::NOT_COMPILED.into())),
        }))
    }

    /// What must be in the environment before the process starts; see [`environment`](crate::engines::environment).
    ///
    /// # Errors
    /// No pool can be made in `dir`.
    pub fn environment(self, dir: &Path) -> Result<Option<(&'static str, &'static str)>> {
        match self {
            #[cfg(feature = "peers")]
            Self::Pmemobj(_) => missing_in_environment(::peers::FORCE, dir),
            _ => {
                let _ = dir;
                Ok(None)
            }
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StoreKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all: Vec<_> = Self::OURS.into_iter().chain(Self::peers()).collect();
        let names = || all.iter().map(|who| who.name()).collect::<Vec<_>>().join(", ");
        all.iter().find(|who| who.name() == name).copied().ok_or_else(|| format!("{name:?} is none of {}", names()))
    }
}

/// What will be in a store.
#[derive(Clone, Copy, Debug)]
pub struct KvRoom {
    /// Pairs, all that will ever be inserted.
    pub pairs: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Sessions at one time.
    pub sessions: usize,
}

impl KvRoom {
    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pairs * (self.key_bytes as u64 + u64::from(self.value_bytes))
    }

    /// The same in blocks of our pools, rounded up as they are, with what structures add.
    #[must_use]
    pub fn in_blocks(&self) -> u64 {
        const SLACK: u64 = 32 << 20;
        let bytes = self.bytes() + 64 * self.pairs;
        bytes + bytes / 4 + 64 * self.pairs + SLACK
    }
}

#[cfg(test)]
mod tests;
