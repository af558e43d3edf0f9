//! A map as a store of keys and values.

use tx::{Doom, Engine, Isolation, Keys, Kv, KvTx, Queue, Result, Transaction, Visit};

use crate::Map;

/// A [`Map`], such as [`HashMap`](crate::HashMap) or [`BTree`](crate::BTree), and the engine it lives in.
///
/// ```
/// use structures::{HashMap, HashMapOptions, KvMap};
/// use tx::{Engine, Isolation, Kv, KvTx, Reference};
///
/// let engine = Reference::new();
/// let map = engine.transact(Isolation::Strict, |tx| HashMap::create(tx, &HashMapOptions::new()))?;
/// let store = KvMap::new(&engine, map);
/// let had = store.transact(Isolation::Strict, |tx| tx.put(b"key", b"value"))?;
/// assert!(!had);
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Debug)]
pub struct KvMap<'e, E, M> {
    engine: &'e E,
    map: M,
}

impl<E, M: Copy> Clone for KvMap<'_, E, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, M: Copy> Copy for KvMap<'_, E, M> {}

impl<'e, E: Engine, M: Map> KvMap<'e, E, M> {
    /// The store over `map`, which lives in `engine`.
    pub fn new(engine: &'e E, map: M) -> Self {
        Self { engine, map }
    }

    /// The engine.
    pub fn engine(&self) -> &'e E {
        self.engine
    }

    /// The structure.
    pub fn map(&self) -> M {
        self.map
    }
}

impl<E: Engine, M: Map> Kv for KvMap<'_, E, M> {
    type Tx<'a>
        = MapTx<E::Tx<'a>, M>
    where
        Self: 'a;

    #[inline]
    fn begin(&self, isolation: Isolation) -> Result<Self::Tx<'_>> {
        Ok(MapTx { tx: self.engine.begin(isolation)?, map: self.map })
    }

    fn queue(&self) -> Option<&dyn Queue> {
        self.engine.queue()
    }
}

/// A transaction on the keys of a [`KvMap`].
///
/// ```
/// # use structures::{BTree, BTreeOptions, KvMap};
/// # use tx::{Engine, Isolation, Kv, KvTx, Reference};
/// # let engine = Reference::new();
/// # let tree = engine.transact(Isolation::Strict, |tx| BTree::create(tx, &BTreeOptions::new()))?;
/// let store = KvMap::new(&engine, tree);
/// let mut tx = store.begin(Isolation::Strict)?;
/// tx.put(b"a", b"1")?;
/// tx.delete(b"b")?;
/// tx.commit()?;
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Debug)]
pub struct MapTx<X, M> {
    tx: X,
    map: M,
}

impl<X: Transaction, M: Map> MapTx<X, M> {
    /// The transaction on objects below, to use other structures in it too.
    ///
    /// ```
    /// # use structures::{BTree, BTreeOptions, KvMap, Map};
    /// # use tx::{Engine, Isolation, Kv, KvTx, Reference};
    /// # let engine = Reference::new();
    /// # let (tree, other) = engine.transact(Isolation::Strict, |tx| -> tx::Result<_> {
    /// #     Ok((BTree::create(tx, &BTreeOptions::new())?, BTree::create(tx, &BTreeOptions::new())?))
    /// # })?;
    /// # let store = KvMap::new(&engine, tree);
    /// store.transact(Isolation::Strict, |tx| -> tx::Result<()> {
    ///     tx.put(b"name", b"Ada")?;
    ///     other.put(tx.objects(), b"Ada", b"name")?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tx::Error>(())
    /// ```
    pub fn objects(&mut self) -> &mut X {
        &mut self.tx
    }

    /// The structure's own errors doom the transaction like its own.
    fn dooming<R>(&self, result: Result<R>) -> Result<R> {
        result.inspect_err(|e| self.tx.set_doom(Doom::from(e)))
    }
}

impl<X: Transaction, M: Map> KvTx for MapTx<X, M> {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.dooming(self.map.get(&self.tx, key))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.map.put(&mut self.tx, key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.map.delete(&mut self.tx, key)
    }

    fn scan(&self, keys: &Keys, visit: Visit<'_>) -> Result<()> {
        self.dooming(self.map.scan(&self.tx, keys, visit))
    }

    #[inline]
    fn doom(&self) -> Option<Doom> {
        self.tx.doom()
    }

    #[inline]
    fn commit(self) -> Result<()> {
        self.tx.commit()
    }

    fn abort(self) -> Result<()> {
        self.tx.abort()
    }
}
