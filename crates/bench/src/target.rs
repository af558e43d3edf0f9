//! What is measured, seen from an experiment: [`Objects`] that are overwritten, [`Stack`]s that blocks come to and go from, [`Store`]s of
//! keys and values. Engines and peers are all behind these, so that they do the same work.

use pmem::PPtr;
use tx::{Engine, Isolation, Keys, Kv, KvTx, Range, Transaction, Typed};

use crate::Result;

/// How often a transaction was given up and tried again.
pub type Aborts = u64;

/// Engines run at the level that a lock-based peer gives.
pub const ISOLATION: Isolation = Isolation::Serializable;

/// Makes objects and stacks.
pub trait Target {
    /// Objects of one thread.
    type Objects: Objects;
    /// A stack of one thread.
    type Stack: Stack;

    /// `count` objects of `bytes` for each thread. `shared`: all threads get the same ones.
    ///
    /// # Errors
    /// No space.
    fn objects(&self, threads: usize, count: usize, bytes: usize, shared: bool) -> Result<Vec<Self::Objects>>;

    /// A new, empty stack.
    ///
    /// # Errors
    /// No space.
    fn stack(&self) -> Result<Self::Stack>;
}

/// Objects that are there all the time.
pub trait Objects: Send {
    /// Overwrites the beginning of each of them, in one transaction. They are distinct.
    ///
    /// # Errors
    /// Those of the transaction.
    fn overwrite(&mut self, which: &[usize], data: &[u8]) -> Result<Aborts>;
}

/// Blocks in a list.
pub trait Stack: Send {
    /// Allocates a block of 8 bytes more than `data`, fills and links it, in one transaction.
    ///
    /// # Errors
    /// No space.
    fn push(&mut self, data: &[u8]) -> Result<Aborts>;

    /// Unlinks the block that was pushed last and frees it, in one transaction; there is one.
    ///
    /// # Errors
    /// Those of the transaction.
    fn pop(&mut self) -> Result<Aborts>;
}

/// What an operation on a [`Store`] found, and at what cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pairs.
    pub pairs: u64,
    /// Tries that were given up.
    pub aborts: Aborts,
}

/// One thread's way to keys and values. Each operation is a transaction of its own; values that are read are copied to `out`, cut to its length.
pub trait Store: Send {
    /// Reads the key's value.
    ///
    /// # Errors
    /// Those of the transaction, here and below.
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Found>;

    /// Sets the key's value.
    ///
    /// # Errors
    /// No space.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Found>;

    /// Reads the key's value, then sets it, if it is there.
    ///
    /// # Errors
    /// No space.
    fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<Found>;

    /// Removes the key.
    ///
    /// # Errors
    /// Those of the transaction.
    fn delete(&mut self, key: &[u8]) -> Result<Found>;

    /// Reads the values of up to `count` keys from this one on, one over the other.
    ///
    /// # Errors
    /// A store without order.
    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<Found>;
}

impl<S: Store + ?Sized> Store for Box<S> {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Found> {
        (**self).get(key, out)
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Found> {
        (**self).put(key, value)
    }

    #[inline]
    fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<Found> {
        (**self).read_modify_write(key, out, value)
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<Found> {
        (**self).delete(key)
    }

    #[inline]
    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<Found> {
        (**self).scan(from, count, out)
    }
}

/// The objects of any engine.
pub struct OnEngine<'e, E>(pub &'e E);

impl<'e, E: Engine + Sync> Target for OnEngine<'e, E> {
    type Objects = EngineObjects<'e, E>;
    type Stack = EngineStack<'e, E>;

    fn objects(&self, threads: usize, count: usize, bytes: usize, shared: bool) -> Result<Vec<Self::Objects>> {
        let made = |_| {
            let objects = make(self.0, count, bytes as u64)?;
            Ok(EngineObjects { engine: self.0, objects, ranges: Vec::new() })
        };
        if shared {
            let one: EngineObjects<'e, E> = made(0)?;
            let copy = |_| EngineObjects { engine: self.0, objects: one.objects.clone(), ranges: Vec::new() };
            return Ok((0..threads).map(copy).collect());
        }
        (0..threads).map(made).collect()
    }

    fn stack(&self) -> Result<Self::Stack> {
        // A line of its own: the heads of other threads' stacks are no neighbours.
        let head = self.0.transact(ISOLATION, |tx| tx.alloc_bytes(pmem::LINE, pmem::LINE))?;
        Ok(EngineStack { engine: self.0, head: head.cast() })
    }
}

/// Objects made in one transaction.
const MAKE_AT_ONCE: usize = 64;

fn make<E: Engine>(engine: &E, count: usize, bytes: u64) -> Result<Vec<PPtr<u8>>> {
    let mut objects = Vec::with_capacity(count);
    while objects.len() < count {
        let more = MAKE_AT_ONCE.min(count - objects.len());
        let made = engine.transact(ISOLATION, |tx| (0..more).map(|_| tx.alloc_bytes(bytes, 8)).collect());
        objects.extend::<Vec<_>>(made?);
    }
    Ok(objects)
}

/// One thread's objects.
pub struct EngineObjects<'e, E> {
    engine: &'e E,
    objects: Vec<PPtr<u8>>,
    ranges: Vec<Range>,
}

impl<E: Engine + Sync> Objects for EngineObjects<'_, E> {
    #[inline]
    fn overwrite(&mut self, which: &[usize], data: &[u8]) -> Result<Aborts> {
        let len = data.len() as u64;
        let mut tries = 0;
        self.ranges.clear();
        self.ranges.extend(which.iter().map(|at| Range::new(self.objects[*at], len)));
        self.engine.transact(ISOLATION, |tx| -> tx::Result<()> {
            tries += 1;
            if self.ranges.len() > 1 {
                tx.intend(&self.ranges)?;
            }
            self.ranges.iter().try_for_each(|range| tx.put_bytes(range.at, data))
        })?;
        Ok(tries - 1)
    }
}

/// One thread's stack: a word that leads to the first block, whose first word leads to the next.
pub struct EngineStack<'e, E> {
    engine: &'e E,
    head: PPtr<u64>,
}

impl<E: Engine + Sync> Stack for EngineStack<'_, E> {
    #[inline]
    fn push(&mut self, data: &[u8]) -> Result<Aborts> {
        let len = data.len() as u64 + 8;
        let mut tries = 0;
        self.engine.transact(ISOLATION, |tx| -> tx::Result<()> {
            tries += 1;
            let block = tx.alloc_bytes(len, 8)?;
            let next = tx.read(self.head)?.to_le_bytes();
            let bytes = tx.bytes_mut(block, len)?;
            bytes[..8].copy_from_slice(&next);
            bytes[8..].copy_from_slice(data);
            *tx.write(self.head)? = block.raw();
            Ok(())
        })?;
        Ok(tries - 1)
    }

    #[inline]
    fn pop(&mut self) -> Result<Aborts> {
        let mut tries = 0;
        self.engine.transact(ISOLATION, |tx| -> tx::Result<()> {
            tries += 1;
            let first: PPtr<u64> = PPtr::from_raw(*tx.read(self.head)?);
            let next = *tx.read(first)?;
            *tx.write(self.head)? = next;
            tx.free(first)
        })?;
        Ok(tries - 1)
    }
}

/// Any store with transactions on keys.
#[derive(Clone, Copy)]
pub struct OnKv<K>(pub K);

impl<K: Kv> OnKv<K> {
    #[inline]
    fn run(&self, mut f: impl FnMut(&mut K::Tx<'_>) -> tx::Result<u64>) -> Result<Found> {
        let mut tries = 0;
        let pairs = self.0.transact(ISOLATION, |tx| {
            tries += 1;
            f(tx)
        })?;
        Ok(Found { pairs, aborts: tries - 1 })
    }
}

impl<K: Kv + Send> Store for OnKv<K> {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Found> {
        self.run(|tx| Ok(copy(tx.get(key)?, out)))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Found> {
        self.run(|tx| tx.put(key, value).map(|_| 1))
    }

    #[inline]
    fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<Found> {
        self.run(|tx| {
            let found = copy(tx.get(key)?, out);
            if found > 0 {
                tx.put(key, value)?;
            }
            Ok(found)
        })
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<Found> {
        self.run(|tx| tx.delete(key).map(u64::from))
    }

    #[inline]
    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<Found> {
        use std::ops::ControlFlow::{Break, Continue};
        let keys = Keys::from(from);
        self.run(|tx| {
            let mut pairs = 0;
            if count == 0 {
                return Ok(0);
            }
            tx.scan(&keys, &mut |_, value| {
                pairs += copy(Some(value), out);
                if pairs == count as u64 { Break(()) } else { Continue(()) }
            })?;
            Ok(pairs)
        })
    }
}

#[inline]
pub(crate) fn copy(value: Option<&[u8]>, out: &mut [u8]) -> u64 {
    let Some(value) = value else { return 0 };
    let len = value.len().min(out.len());
    out[..len].copy_from_slice(&value[..len]);
    1
}
