//! The B+tree as a store of keys and values has what is asked of one, on an engine with versions and on engines with locks.

use conformance::keys::Subject;
use heap::{Heap, Policy};
use structures::{BTree, BTreeOptions, Map};
use tx::{Doom, Engine, Isolation, Keys, Kv, KvTx, Reference, Result, Transaction, Visit};

use crate::engines::heap;

/// A tree together with its engine.
struct Owned<E> {
    engine: E,
    tree: BTree,
    _dir: Option<tempfile::TempDir>,
}

impl<E: Engine> Owned<E> {
    /// Small nodes: everything happens.
    fn new(engine: E, dir: Option<tempfile::TempDir>) -> Self {
        let options = BTreeOptions::new().key_max(80).node_bytes(256, 256);
        let tree = engine.transact(Isolation::Strict, |tx| BTree::create(tx, &options)).unwrap();
        Self { engine, tree, _dir: dir }
    }
}

impl<E: Engine> Kv for Owned<E> {
    type Tx<'a>
        = OwnedTx<E::Tx<'a>>
    where
        Self: 'a;

    fn begin(&self, isolation: Isolation) -> Result<Self::Tx<'_>> {
        Ok(OwnedTx { tx: self.engine.begin(isolation)?, tree: self.tree })
    }
}

struct OwnedTx<X> {
    tx: X,
    tree: BTree,
}

impl<X: Transaction> KvTx for OwnedTx<X> {
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.tree.get(&self.tx, key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.tree.put(&mut self.tx, key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.tree.delete(&mut self.tx, key)
    }

    fn scan(&self, keys: &Keys, visit: Visit<'_>) -> Result<()> {
        self.tree.scan(&self.tx, keys, visit)
    }

    fn doom(&self) -> Option<Doom> {
        self.tx.doom()
    }

    fn commit(self) -> Result<()> {
        self.tx.commit()
    }

    fn abort(self) -> Result<()> {
        self.tx.abort()
    }
}

struct OnReference;

impl Subject for OnReference {
    type Store = Owned<Reference>;

    fn fresh(&self) -> Self::Store {
        Owned::new(Reference::new(), None)
    }

    fn transactions(&self) -> usize {
        20_000
    }
}

conformance::keys!(on_reference, OnReference);

struct OnHeap(Policy);

impl Subject for OnHeap {
    type Store = Owned<Heap>;

    fn fresh(&self) -> Self::Store {
        let (dir, heap) = heap(self.0);
        Owned::new(heap, Some(dir))
    }

    fn kept(&self, _: Isolation) -> Isolation {
        Isolation::Strict
    }

    fn transactions(&self) -> usize {
        20_000
    }

    fn schedules(&self) -> usize {
        10
    }
}

conformance::keys!(in_place, OnHeap(Policy::InPlace));
conformance::keys!(undo, OnHeap(Policy::Undo));
