//! Structures on our engines: what implements [`Kv`] is a side by [`OnKv`].

use std::path::Path;

use heap::{Heap, Policy};
use pmem::Stats;
use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, KvMap, Map};
use tx::{Doom, Engine, Isolation, Kv, KvTx, Typed};

use super::{KvRoom, KvSide, Session, Step};
use crate::Result;
use crate::engines::{Structure, slots};
use crate::target::OnKv;

/// A structure in a heap.
pub(super) fn open(dir: &Path, structure: Structure, room: KvRoom) -> Result<Box<dyn KvSide>> {
    let path = dir.join("heap");
    let options = heap::Options::new();
    let heap = if path.exists() {
        Heap::open(path, &options)?
    } else {
        Heap::create(path, &options.policy(Policy::InPlace).bytes(room.in_blocks()).slots(slots(room.sessions)))?
    };
    Ok(match structure {
        Structure::BTree => Box::new(OnHeap { map: tree(&heap, room.key_bytes)?, heap }),
        Structure::HashMap => Box::new(OnHeap { map: hash(&heap, room.pairs)?, heap }),
    })
}

fn tree(heap: &Heap, key_bytes: usize) -> Result<BTree> {
    Ok(heap.transact(Isolation::Serializable, |tx| {
        let root = tx.root()?;
        if !root.is_null() {
            return BTree::open(tx, root);
        }
        let tree = BTree::create(tx, &BTreeOptions::new().key_max(key_bytes as u32))?;
        tx.set_root(tree.root())?;
        Ok(tree)
    })?)
}

fn hash(heap: &Heap, pairs: u64) -> Result<HashMap> {
    Ok(heap.transact(Isolation::Serializable, |tx| {
        let root = tx.root()?;
        if !root.is_null() {
            return HashMap::open(tx, root);
        }
        let map = HashMap::create(tx, &HashMapOptions::new().capacity(pairs))?;
        tx.set_root(map.root())?;
        Ok(map)
    })?)
}

struct OnHeap<M> {
    heap: Heap,
    map: M,
}

impl<M: Map + Send + Sync> KvSide for OnHeap<M> {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(OnKv(KvMap::new(&self.heap, self.map))))
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.heap.pool().stats())
    }

    fn domain(&self) -> Option<String> {
        Some(self.heap.pool().domain().to_string())
    }
}

impl<K: Kv + Send> Session for OnKv<K> {
    fn attempt(&mut self, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Option<u64>> {
        attempt(&self.0, isolation, steps, out)
    }
}

/// On whatever has transactions on keys.
pub(super) fn attempt<K: Kv>(kv: &K, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Option<u64>> {
    match once(kv, isolation, steps, out) {
        Ok(found) => Ok(Some(found)),
        Err(error) if Doom::from(&error).conflict.is_some() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn once<K: Kv>(kv: &K, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> tx::Result<u64> {
    let mut tx = kv.begin(isolation)?;
    let mut found = 0;
    for step in steps {
        match step.put {
            Some(value) => {
                tx.put(step.key, value)?;
            }
            None => found += crate::target::copy(tx.get(step.key)?, out),
        }
    }
    tx.commit()?;
    Ok(found)
}
