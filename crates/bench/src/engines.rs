//! What can take part: engines and peers by name, and how each is set up in a directory.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use heap::{Heap, Policy};
use mvcc::Mvcc;
use pmem::Pool;
use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, KvMap};
use tx::{Isolation, Reference};

use crate::bare::Store;
#[cfg(feature = "peers")]
use crate::peer::PeerStore;
use crate::target::OnKv;
use crate::{Error, Result};

/// An engine or a peer that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// A heap with one of its policies.
    Heap(Policy),
    /// A heap with a partial backup of so many tenths of what is stored.
    Partial(u8),
    /// Objects with several versions each.
    Mvcc,
    /// The store of keys and values.
    Kv,
    /// The engine in DRAM that tests compare with: nothing is durable.
    Reference,
    /// No engine: bytes stored, flushed and waited for.
    Bare,
    /// No engine: bytes stored past the cache and waited for.
    BareNt,
    /// libpmemobj.
    Pmemobj,
}

impl Contestant {
    /// Engines of ours, as `--engine` names them.
    pub const ENGINES: [Self; 19] = [
        Self::Heap(Policy::None),
        Self::Heap(Policy::Undo),
        Self::Heap(Policy::InPlace),
        Self::Heap(Policy::Eaw),
        Self::Partial(1),
        Self::Partial(2),
        Self::Partial(3),
        Self::Partial(4),
        Self::Partial(5),
        Self::Partial(6),
        Self::Partial(7),
        Self::Partial(8),
        Self::Partial(9),
        Self::Partial(10),
        Self::Mvcc,
        Self::Kv,
        Self::Reference,
        Self::Bare,
        Self::BareNt,
    ];
    /// Peers, as `--peer` names them.
    pub const PEERS: [Self; 1] = [Self::Pmemobj];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Heap(policy) => policy.name(),
            Self::Partial(tenths) => PARTIAL[usize::from(tenths.clamp(1, 10)) - 1],
            Self::Mvcc => "mvcc",
            Self::Kv => "kv",
            Self::Reference => "reference",
            Self::Bare => "bare",
            Self::BareNt => "bare-nt",
            Self::Pmemobj => "pmemobj",
        }
    }

    /// True of other people's systems.
    #[must_use]
    pub fn is_peer(self) -> bool {
        Self::PEERS.contains(&self)
    }
}

/// By tenths, from one on.
const PARTIAL: [&str; 10] = [
    "partial-0.1",
    "partial-0.2",
    "partial-0.3",
    "partial-0.4",
    "partial-0.5",
    "partial-0.6",
    "partial-0.7",
    "partial-0.8",
    "partial-0.9",
    "partial-1.0",
];

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Contestant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = || Self::ENGINES.into_iter().chain(Self::PEERS);
        let names = || all().map(Self::name).collect::<Vec<_>>().join(", ");
        all().find(|who| who.name() == name).ok_or_else(|| format!("{name:?} is none of {}", names()))
    }
}

/// How keys are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// Without order.
    HashMap,
    /// In order.
    BTree,
}

impl Structure {
    /// Both.
    pub const ALL: [Self; 2] = [Self::HashMap, Self::BTree];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HashMap => "hashmap",
            Self::BTree => "btree",
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Structure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|structure| structure.name() == name);
        found.ok_or_else(|| format!("{name:?} is no structure: hashmap or btree"))
    }
}

/// What is made before anything is measured, in bytes and numbers.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes of all blocks together.
    pub bytes: u64,
    /// Of these, what there is while it is measured: a part of it is what a partial backup has room for.
    pub stored: u64,
    /// Blocks.
    pub blocks: u64,
    /// Transactions at one time.
    pub threads: usize,
}

/// A contestant, set up.
#[expect(clippy::large_enum_variant, reason = "there are a few of them")]
pub enum Made {
    /// A heap.
    Heap(Heap),
    /// Objects with several versions each.
    Mvcc(Mvcc),
    /// The store of keys and values.
    Kv(kv::Store),
    /// The reference engine.
    Reference(Reference),
    /// A pool without an engine, and whether it is written past the cache.
    Bare(Pool, Store),
    /// libpmemobj.
    #[cfg(feature = "peers")]
    Pmemobj(peers::Pmemobj),
}

/// Slots of a heap whose threads stay: with 32 and more, each thread finds its own free.
pub(crate) fn slots(threads: usize) -> usize {
    threads.max(16) * 2
}

/// For what is neither objects nor logs.
const SLACK: u64 = 32 << 20;

impl Made {
    /// Sets a contestant up in `dir`. `Ok(Err(why))` if it is not in this build.
    ///
    /// # Errors
    /// Those of its pool.
    pub fn new(who: Contestant, dir: &Path, room: Room) -> Result<Result<Self, String>> {
        // Blocks are rounded up, by a quarter at most for all but the smallest, and have headers in the peer.
        let bytes = room.bytes + room.bytes / 4 + 64 * room.blocks + SLACK;
        let path = dir.join(who.name());
        Ok(Ok(match who {
            Contestant::Heap(policy) => {
                let options = heap::Options::new().policy(policy).bytes(bytes).slots(slots(room.threads));
                Self::Heap(Heap::create(path, &options)?)
            }
            Contestant::Partial(tenths) => {
                // Of what is stored: the room around it, which is never written, would make the share larger than it says.
                let alpha = f64::from(tenths) / 10.0 * room.stored as f64 / bytes as f64;
                let options = heap::Options::new().policy(Policy::InPlacePartial).alpha(alpha).bytes(bytes);
                Self::Heap(Heap::create(path, &options.slots(slots(room.threads)))?)
            }
            Contestant::Mvcc => {
                let options = mvcc::Options::new().bytes(bytes).slots(slots(room.threads));
                Self::Mvcc(Mvcc::create(path, &options)?)
            }
            Contestant::Kv => Self::Kv(kv::Options::new().create(path)?),
            Contestant::Reference => Self::Reference(Reference::with_capacity(bytes)),
            Contestant::Bare => Self::Bare(pmem::Options::new().size(SLACK).create(path)?, Store::Cached),
            Contestant::BareNt => Self::Bare(pmem::Options::new().size(SLACK).create(path)?, Store::Past),
            #[cfg(feature = "peers")]
            Contestant::Pmemobj => Self::Pmemobj(peers::Pmemobj::create(&path, bytes as usize)?),
            #[cfg(not(feature = "peers"))]
            Contestant::Pmemobj => return Ok(Err(NOT_COMPILED.into())),
        }))
    }

    /// Bytes of memory that lasts for each byte of live objects: they themselves, and what backs them up. No transaction is running.
    ///
    /// # Errors
    /// Those of looking at every block.
    pub fn memory(&self) -> Result<Option<f64>> {
        let Self::Heap(heap) = self else { return Ok(None) };
        let mut live = 0;
        heap.live_blocks(|_, len| live += len)?;
        Ok((live > 0).then(|| 1.0 + heap.stats().backup_bytes.min(live) as f64 / live as f64))
    }

    /// The pool whose counters tell what operations cost; `None` where nothing is counted.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        match self {
            Self::Heap(heap) => Some(heap.pool()),
            Self::Mvcc(store) => Some(store.pool()),
            Self::Kv(store) => Some(store.pool()),
            Self::Bare(pool, _) => Some(pool),
            _ => None,
        }
    }

    /// What it does to make data durable, in the words of our domains.
    #[must_use]
    pub fn domain(&self) -> Option<String> {
        match self {
            Self::Heap(heap) => Some(heap.pool().domain().to_string()),
            Self::Mvcc(store) => Some(store.pool().domain().to_string()),
            Self::Kv(store) => Some(store.pool().domain().to_string()),
            Self::Bare(pool, _) => Some(pool.domain().to_string()),
            Self::Reference(_) => None,
            #[cfg(feature = "peers")]
            Self::Pmemobj(peer) => Some(domain_of_peer(peer.flushes()).to_string()),
        }
    }

    /// Makes an empty structure in it.
    ///
    /// # Errors
    /// No space.
    pub fn store(&self, structure: Structure, keys: u64, key_bytes: usize) -> Result<AnyStore<'_>> {
        Ok(match self {
            Self::Heap(heap) => match structure {
                Structure::HashMap => AnyStore::HeapHash(OnKv(KvMap::new(heap, hash(heap, keys)?))),
                Structure::BTree => AnyStore::HeapTree(OnKv(KvMap::new(heap, tree(heap, key_bytes)?))),
            },
            Self::Mvcc(engine) => match structure {
                Structure::HashMap => AnyStore::MvccHash(OnKv(KvMap::new(engine, hash(engine, keys)?))),
                Structure::BTree => AnyStore::MvccTree(OnKv(KvMap::new(engine, tree(engine, key_bytes)?))),
            },
            Self::Reference(engine) => match structure {
                Structure::HashMap => AnyStore::ReferenceHash(OnKv(KvMap::new(engine, hash(engine, keys)?))),
                Structure::BTree => AnyStore::ReferenceTree(OnKv(KvMap::new(engine, tree(engine, key_bytes)?))),
            },
            Self::Kv(_) => return Err(Error::Parameter(NO_OBJECTS.into())),
            Self::Bare(..) => return Err(Error::Parameter("bare overwrites objects: it has no keys".into())),
            #[cfg(feature = "peers")]
            Self::Pmemobj(peer) => AnyStore::Pmemobj(match structure {
                Structure::HashMap => PeerStore::hash(peer, keys)?,
                Structure::BTree => PeerStore::tree(peer, key_bytes)?,
            }),
        })
    }
}

/// In the words of our domains, what a library does that flushes cache lines or not.
#[cfg(feature = "peers")]
pub(crate) fn domain_of_peer(flushes: bool) -> pmem::Domain {
    let forced = std::env::var_os(peers::FORCE.0).is_some_and(|value| value == peers::FORCE.1);
    match (flushes, forced) {
        (true, true) => pmem::Domain::Emulated,
        (true, false) => pmem::Domain::Pmem,
        (false, _) => pmem::Domain::File,
    }
}

pub(crate) const NO_OBJECTS: &str =
    "kv has a structure of its own and no objects: smallbank compares it, and the experiments kv and midas";

#[cfg(not(feature = "peers"))]
pub(crate) const NOT_COMPILED: &str = "not in this build: make setup-peers, then build with --features peers";

fn hash<E: tx::Engine>(engine: &E, keys: u64) -> Result<HashMap> {
    let options = HashMapOptions::new().capacity(keys);
    Ok(engine.transact(Isolation::Serializable, |tx| HashMap::create(tx, &options))?)
}

fn tree<E: tx::Engine>(engine: &E, key_bytes: usize) -> Result<BTree> {
    let options = BTreeOptions::new().key_max(key_bytes as u32);
    Ok(engine.transact(Isolation::Serializable, |tx| BTree::create(tx, &options))?)
}

/// What must be in the environment before a process starts, so that this contestant makes data durable in `dir` as our pools do there:
/// by flushing cache lines where they do. `None` if nothing is missing.
///
/// # Errors
/// No pool can be made in `dir`.
pub fn environment(who: Contestant, dir: &Path) -> Result<Option<(&'static str, &'static str)>> {
    match who {
        #[cfg(feature = "peers")]
        Contestant::Pmemobj => missing_in_environment(peers::FORCE, dir),
        _ => {
            let _ = dir;
            Ok(None)
        }
    }
}

/// `needed`, if it is missing and our pools flush cache lines in `dir` though no library would by itself.
#[cfg(feature = "peers")]
pub(crate) fn missing_in_environment(
    needed: (&'static str, &'static str),
    dir: &Path,
) -> Result<Option<(&'static str, &'static str)>> {
    if std::env::var_os(needed.0).is_some() {
        return Ok(None);
    }
    let folder = tempfile::tempdir_in(dir).map_err(|source| crate::Error::Io {
        op: "make a temporary directory",
        path: dir.to_owned(),
        source,
    })?;
    let pool = pmem::Options::new().size(1 << 20).create(folder.path().join("probe"))?;
    Ok((pool.domain() == pmem::Domain::Emulated).then_some(needed))
}

/// A structure in a contestant.
pub enum AnyStore<'e> {
    /// Hash map in a heap.
    HeapHash(OnKv<KvMap<'e, Heap, HashMap>>),
    /// B+tree in a heap.
    HeapTree(OnKv<KvMap<'e, Heap, BTree>>),
    /// Hash map with several versions of each object.
    MvccHash(OnKv<KvMap<'e, Mvcc, HashMap>>),
    /// B+tree with several versions of each object.
    MvccTree(OnKv<KvMap<'e, Mvcc, BTree>>),
    /// Hash map in the reference engine.
    ReferenceHash(OnKv<KvMap<'e, Reference, HashMap>>),
    /// B+tree in the reference engine.
    ReferenceTree(OnKv<KvMap<'e, Reference, BTree>>),
    /// Either of them in libpmemobj.
    #[cfg(feature = "peers")]
    Pmemobj(PeerStore),
}

/// Runs an expression with `$target` bound to the contestant as a [`Target`](crate::target::Target).
macro_rules! on_target {
    ($made:expr, $target:ident => $body:expr) => {
        match $made {
            $crate::engines::Made::Heap(engine) => {
                let $target = $crate::target::OnEngine(engine);
                $body
            }
            $crate::engines::Made::Mvcc(engine) => {
                let $target = $crate::target::OnEngine(engine);
                $body
            }
            $crate::engines::Made::Reference(engine) => {
                let $target = $crate::target::OnEngine(engine);
                $body
            }
            $crate::engines::Made::Kv(_) => {
                return Err($crate::Error::Parameter($crate::engines::NO_OBJECTS.into()));
            }
            $crate::engines::Made::Bare(pool, how) => {
                let $target = $crate::bare::OnPool(pool, *how);
                $body
            }
            #[cfg(feature = "peers")]
            $crate::engines::Made::Pmemobj(peer) => {
                let $target = $crate::peer::OnPeer(peer);
                $body
            }
        }
    };
}

/// Runs an expression with `$store` bound to the store as a [`Store`](crate::target::Store).
macro_rules! on_store {
    ($any:expr, $store:ident => $body:expr) => {
        match $any {
            $crate::engines::AnyStore::HeapHash($store) => $body,
            $crate::engines::AnyStore::HeapTree($store) => $body,
            $crate::engines::AnyStore::MvccHash($store) => $body,
            $crate::engines::AnyStore::MvccTree($store) => $body,
            $crate::engines::AnyStore::ReferenceHash($store) => $body,
            $crate::engines::AnyStore::ReferenceTree($store) => $body,
            #[cfg(feature = "peers")]
            $crate::engines::AnyStore::Pmemobj($store) => $body,
        }
    };
}

pub(crate) use {on_store, on_target};
