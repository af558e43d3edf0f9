//! The pool, and the structure in it.

use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, Map};
use tx::{Engine, Isolation, Typed};

use crate::Result;
use crate::config::Job;
use crate::input::Input;
use crate::journal;
use crate::kept::Kept;
use crate::value::{Stamp, Values};
use bench::workload::{KEY_BYTES_MAX, Names};

/// As strong as the lock-based systems that this is compared with.
pub(crate) const ISOLATION: Isolation = Isolation::Serializable;

/// A structure that a pool can have at its root.
pub(crate) trait Keep: Map + Send + Sync {
    /// Makes an empty one, and the root.
    fn create<E: Engine>(engine: &E, input: &Input) -> tx::Result<Self>;

    /// The one at the root.
    fn open<E: Engine>(engine: &E) -> tx::Result<Self>;
}

impl Keep for HashMap {
    fn create<E: Engine>(engine: &E, input: &Input) -> tx::Result<Self> {
        engine.transact(ISOLATION, |tx| {
            let map = HashMap::create(tx, &HashMapOptions::new().capacity(input.keys()))?;
            tx.set_root(map.root())?;
            Ok(map)
        })
    }

    fn open<E: Engine>(engine: &E) -> tx::Result<Self> {
        engine.transact(ISOLATION, |tx| HashMap::open(tx, tx.root()?))
    }
}

impl Keep for BTree {
    fn create<E: Engine>(engine: &E, input: &Input) -> tx::Result<Self> {
        engine.transact(ISOLATION, |tx| {
            let key_max = (input.longest_key() + 1).max(journal::NAME_BYTES) as u32; // one more: see `Ghost`
            let tree = BTree::create(tx, &BTreeOptions::new().key_max(key_max))?;
            tx.set_root(tree.root())?;
            Ok(tree)
        })
    }

    fn open<E: Engine>(engine: &E) -> tx::Result<Self> {
        engine.transact(ISOLATION, |tx| BTree::open(tx, tx.root()?))
    }
}

/// Pairs that are loaded in one transaction.
const AT_ONCE: usize = 32;

/// Makes a pool with a full structure.
pub(crate) fn create<E: Kept, M: Keep>(job: &Job, input: &Input, values: &Values) -> Result<(E, M)> {
    let engine = E::create(&job.pool, job.kind()?, input, job.threads)?;
    let map = M::create(&engine, input)?;
    let (mut name, mut value) = (input.buffer(), Vec::new());
    let ops: Vec<_> = input.load().collect();
    for ops in ops.chunks(AT_ONCE) {
        engine.transact(ISOLATION, |tx| -> tx::Result<()> {
            for op in ops {
                let stamp = Stamp { key: op.key(), version: 1 };
                let value = values.make(stamp, input.longest_value(), &mut value);
                map.put(tx, input.name(op.key(), &mut name), value)?;
            }
            Ok(())
        })?;
    }
    Ok((engine, map))
}

/// The name under which the version of a deleted key is kept, so that versions go on when it comes back. No key begins with a space.
#[derive(Debug)]
pub(crate) struct Ghost(Vec<u8>);

impl Ghost {
    const MARK: u8 = b' ';

    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(KEY_BYTES_MAX + 1))
    }

    pub(crate) fn of(&mut self, name: &[u8]) -> &[u8] {
        self.0.clear();
        self.0.push(Self::MARK);
        self.0.extend_from_slice(name);
        &self.0
    }

    /// The key whose ghost has this name.
    pub(crate) fn key_of(name: &[u8]) -> Option<&[u8]> {
        name.strip_prefix(&[Self::MARK])
    }
}
