//! What the machine asks for at least: bytes stored, flushed and waited for, and nothing else. No transaction, no lock, no pointer to
//! resolve. Only [`Objects`]; its time is the limit that engines are held against in the same rounds.

use pmem::{Area, Pool};

use crate::target::{Aborts, Objects, Stack, Target};
use crate::{Error, Result};

/// A pool without an engine.
pub struct OnPool<'e>(pub &'e Pool, pub Store);

/// How bytes get to where they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Into the cache, and flushed.
    Cached,
    /// Past the cache, by streaming stores.
    Past,
}

impl Target for OnPool<'_> {
    type Objects = BareObjects;
    type Stack = NoStack;

    fn objects(&self, threads: usize, count: usize, bytes: usize, shared: bool) -> Result<Vec<BareObjects>> {
        if shared {
            return Err(Error::Parameter("bare has no locks: its threads share no objects".into()));
        }
        let stride = (bytes as u64).next_multiple_of(pmem::LINE);
        let own = stride * count as u64;
        let name = format!("bare{}", self.0.info().regions.len());
        let mut rest = self.0.add_region(&name, own * threads as u64)?.into_area()?;
        let mut all = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (area, behind) = rest.split_at(own)?;
            all.push(BareObjects { area, stride, how: self.1 });
            rest = behind;
        }
        Ok(all)
    }

    fn stack(&self) -> Result<NoStack> {
        Err(Error::Parameter("bare overwrites objects, and does nothing else".into()))
    }
}

/// One thread's objects.
pub struct BareObjects {
    area: Area,
    stride: u64,
    how: Store,
}

impl Objects for BareObjects {
    #[inline]
    fn overwrite(&mut self, which: &[usize], data: &[u8]) -> Result<Aborts> {
        if self.how == Store::Past {
            for at in which {
                let _ = self.area.copy_nt(*at as u64 * self.stride, data)?;
            }
            let _ = self.area.drain()?;
            return Ok(0);
        }
        for at in which {
            self.area.bytes_mut(*at as u64 * self.stride, data.len())?.copy_from_slice(data);
        }
        for at in which {
            self.area.flush(*at as u64 * self.stride, data.len() as u64)?;
        }
        self.area.drain()?;
        Ok(0)
    }
}

/// There is none.
pub enum NoStack {}

impl Stack for NoStack {
    fn push(&mut self, _: &[u8]) -> Result<Aborts> {
        match *self {}
    }

    fn pop(&mut self) -> Result<Aborts> {
        match *self {}
    }
}
