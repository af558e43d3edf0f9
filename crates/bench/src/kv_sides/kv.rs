//! Our store of keys and values.

use std::path::Path;

use pmem::Stats;
use tx::{Isolation, Keys, Kv, KvTx};

use super::{KvSide, Session, Step, read_only};
use crate::Result;
use crate::target::{Found, Store, copy};

/// An open store.
pub(super) struct OnStore(kv::Store);

impl OnStore {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        Ok(Self(kv::Options::new().open_or_create(dir.join("store"))?))
    }
}

impl KvSide for OnStore {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(One(&self.0)))
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.0.pool().stats())
    }

    fn domain(&self) -> Option<String> {
        Some(self.0.pool().domain().to_string())
    }
}

/// One thread's.
struct One<'s>(&'s kv::Store);

impl One<'_> {
    /// Counts the attempts of a transaction.
    #[inline]
    fn run(
        &self,
        isolation: Isolation,
        mut work: impl FnMut(&mut kv::Transaction<'_>) -> kv::Result<u64>,
    ) -> Result<Found> {
        let mut tries = 0;
        let pairs = self.0.transact_at(isolation, |tx| -> kv::Result<u64> {
            tries += 1;
            work(tx)
        })?;
        Ok(Found { pairs, aborts: tries - 1 })
    }
}

fn found(pairs: u64) -> Found {
    Found { pairs, aborts: 0 }
}

impl Store for One<'_> {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Found> {
        Ok(found(self.0.view(key, |value| copy(value, out))?))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Found> {
        self.0.put(key, value)?;
        Ok(found(1))
    }

    #[inline]
    fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<Found> {
        self.run(Isolation::Serializable, |tx| {
            let pairs = copy(tx.get(key)?, out);
            if pairs > 0 {
                tx.put(key, value)?;
            }
            Ok(pairs)
        })
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<Found> {
        Ok(found(self.0.delete(key)?.into()))
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<Found> {
        use std::ops::ControlFlow::{Break, Continue};
        let mut pairs = 0;
        if count == 0 {
            return Ok(found(0));
        }
        let tx = Kv::begin(self.0, Isolation::Snapshot)?;
        KvTx::scan(&tx, &Keys::from(from), &mut |_, value| {
            pairs += copy(Some(value), out);
            if pairs == count as u64 { Break(()) } else { Continue(()) }
        })?;
        Ok(found(pairs))
    }
}

impl Session for One<'_> {
    fn attempt(&mut self, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Option<u64>> {
        super::ours::attempt(self.0, isolation, steps, out)
    }

    /// As its users would: what only reads has a snapshot, what conflicts is tried again by the store's own rules.
    fn transaction(&mut self, isolation: Isolation, steps: &[Step<'_>], out: &mut [u8]) -> Result<Found> {
        if read_only(steps) {
            let snapshot = self.0.snapshot()?;
            let mut pairs = 0;
            for step in steps {
                pairs += copy(snapshot.get(step.key)?, out);
            }
            return Ok(found(pairs));
        }
        self.run(isolation, |tx| {
            let mut pairs = 0;
            for step in steps {
                match step.put {
                    Some(value) => {
                        tx.put(step.key, value)?;
                    }
                    None => pairs += copy(tx.get(step.key)?, out),
                }
            }
            Ok(pairs)
        })
    }
}
