//! libpmemobj behind the same traits as the engines.

use std::sync::{Arc, Mutex, PoisonError};

use peers::{KEY_MAX, List, Map, Pmemobj};

use crate::target::{Aborts, Found, Objects, Stack, Store, Target};
use crate::{Error, Result};

/// The objects and lists of a pool.
pub struct OnPeer<'e>(pub &'e Pmemobj);

impl Target for OnPeer<'_> {
    type Objects = PeerObjects;
    type Stack = List;

    fn objects(&self, threads: usize, count: usize, bytes: usize, shared: bool) -> Result<Vec<PeerObjects>> {
        if shared {
            // What its users would do: a lock beside the object.
            let one = Arc::new(Mutex::new(self.0.objects(count, bytes)?));
            return Ok((0..threads).map(|_| PeerObjects::Shared(one.clone())).collect());
        }
        (0..threads).map(|_| Ok(PeerObjects::Own(self.0.objects(count, bytes)?))).collect()
    }

    fn stack(&self) -> Result<List> {
        self.0.list().ok_or_else(|| Error::Parameter(format!("pmemobj: more than {} stacks", peers::LISTS_MAX)))
    }
}

/// One thread's objects, or those of all.
pub enum PeerObjects {
    /// One thread's own.
    Own(peers::Objects),
    /// Shared by all threads.
    Shared(Arc<Mutex<peers::Objects>>),
}

impl Objects for PeerObjects {
    #[inline]
    fn overwrite(&mut self, which: &[usize], data: &[u8]) -> Result<Aborts> {
        match self {
            Self::Own(objects) => objects.overwrite(which, data)?,
            Self::Shared(objects) => {
                objects.lock().unwrap_or_else(PoisonError::into_inner).overwrite(which, data)?;
            }
        }
        Ok(0)
    }
}

impl Stack for List {
    #[inline]
    fn push(&mut self, data: &[u8]) -> Result<Aborts> {
        List::push(self, data)?;
        Ok(0)
    }

    #[inline]
    fn pop(&mut self) -> Result<Aborts> {
        if List::pop(self)? {
            return Ok(0);
        }
        Err(Error::Wrong { who: "pmemobj".into(), what: "a list that was pushed to is empty".into() })
    }
}

/// A map; clones share it. The tree has keys of one length, to which shorter ones are filled up with zeros. That keeps their order.
#[derive(Clone)]
pub struct PeerStore {
    map: Map,
    key_bytes: usize,
}

impl PeerStore {
    /// A hash map for about that many keys.
    ///
    /// # Errors
    /// No space.
    pub fn hash(peer: &Pmemobj, keys: u64) -> Result<Self> {
        Ok(Self { map: peer.hash(keys.max(1))?, key_bytes: 0 })
    }

    /// A tree for keys up to that length.
    ///
    /// # Errors
    /// No space.
    pub fn tree(peer: &Pmemobj, key_bytes: usize) -> Result<Self> {
        Ok(Self { map: peer.tree(key_bytes)?, key_bytes })
    }

    /// What is there already; keys of a tree have that length.
    ///
    /// # Errors
    /// There is none.
    pub fn opened(peer: &Pmemobj, tree_key_bytes: Option<usize>) -> Result<Self> {
        Ok(match tree_key_bytes {
            None => Self { map: peer.opened_hash()?, key_bytes: 0 },
            Some(key_bytes) => Self { map: peer.opened_tree()?, key_bytes },
        })
    }

    /// Several operations as one; see [`Map::transact`].
    ///
    /// # Errors
    /// As there.
    pub fn transact<'s>(
        &self,
        steps: impl Iterator<Item = (&'s [u8], Option<&'s [u8]>)>,
        out: &mut [u8],
    ) -> Result<u64> {
        Ok(self.map.transact(steps, out)? as u64)
    }

    #[inline]
    fn key<'a>(&self, key: &'a [u8], buffer: &'a mut [u8; KEY_MAX]) -> &'a [u8] {
        if key.len() >= self.key_bytes {
            return key;
        }
        buffer[..key.len()].copy_from_slice(key);
        &buffer[..self.key_bytes]
    }
}

impl Store for PeerStore {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Found> {
        let found = self.map.get(self.key(key, &mut [0; KEY_MAX]), out)?;
        Ok(pairs(found.is_some()))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Found> {
        self.map.put(self.key(key, &mut [0; KEY_MAX]), value)?;
        Ok(pairs(true))
    }

    #[inline]
    fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<Found> {
        Ok(pairs(self.map.read_modify_write(self.key(key, &mut [0; KEY_MAX]), out, value)?))
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<Found> {
        Ok(pairs(self.map.delete(self.key(key, &mut [0; KEY_MAX]))?))
    }

    #[inline]
    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<Found> {
        let found = self.map.scan(self.key(from, &mut [0; KEY_MAX]), count, out)?;
        Ok(Found { pairs: found as u64, aborts: 0 })
    }
}

fn pairs(found: bool) -> Found {
    Found { pairs: found.into(), aborts: 0 }
}
