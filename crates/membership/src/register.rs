//! One value, replaced by compare-and-swap, by one process of each machine at a time.
//!
//! A process opens a session; what an earlier session of its machine has proposed, and what is still under way of it, is never carried out from then on.

use std::sync::Arc;

use crate::Result;
use crate::etcd::Swap;
use crate::inner::Inner;

/// A value in etcd, for a process that replaces it.
#[derive(Clone, Debug)]
pub struct Register {
    inner: Arc<Inner>,
    key: String,
    session_key: String,
    /// The revision that opened the session.
    session: u64,
}

/// What a register holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The bytes.
    pub value: Vec<u8>,
    /// Which of the values that were held: no other has the same.
    pub revision: u64,
}

/// What became of a compare-and-swap. Whatever it says is final: the call can have no effect any more but the one that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The new value is held, or was for a while.
    Yes,
    /// Another value was, and nothing has changed by this attempt. An earlier one that was not answered may have been carried out: look.
    Changed,
    /// A later session of this machine has been opened: this process is to end.
    Superseded,
}

/// Opens a session of `machine`.
pub(crate) fn open(inner: Arc<Inner>, name: &str, machine: &str) -> Result<Register> {
    let (key, session_key) = (inner.register_key(name), inner.register_key(&format!("{name}.sessions/{machine}")));
    let (etcd, timeout, of) = (inner.etcd.clone(), inner.timeout, session_key.clone());
    let session = inner.runtime.wait(move || async move {
        etcd.retrying("open a session", timeout, async |within| etcd.mark(&of, within).await).await
    })?;
    Ok(Register { inner, key, session_key, session })
}

/// What the register called `name` holds.
pub(crate) fn held(inner: &Inner, name: &str) -> Result<Option<Held>> {
    read(inner, inner.register_key(name))
}

fn read(inner: &Inner, key: String) -> Result<Option<Held>> {
    let (etcd, timeout) = (inner.etcd.clone(), inner.timeout);
    let found = inner.runtime.wait(move || async move {
        etcd.retrying("read", timeout, async |within| etcd.read(&key, false, within).await).await
    })?;
    Ok(found.entries.into_iter().next().map(|entry| Held { value: entry.value, revision: entry.modified }))
}

impl Register {
    /// What is held now, linearizably.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses.
    pub fn read(&self) -> Result<Option<Held>> {
        read(&self.inner, self.key.clone())
    }

    /// Replaces the value of that revision, 0 if there is none yet.
    ///
    /// # Errors
    /// etcd cannot be reached, or refuses: it may have been carried out, or be later. Calling again tells.
    pub fn swap(&self, revision: u64, value: Vec<u8>) -> Result<Swapped> {
        let (etcd, timeout) = (self.inner.etcd.clone(), self.inner.timeout);
        let (key, session_key, session) = (self.key.clone(), self.session_key.clone(), self.session);
        let answer = self.inner.runtime.wait(move || async move {
            let swap = async |within| {
                let guard = (session_key.as_str(), session);
                etcd.swap(&key, revision, guard, &value, within).await
            };
            etcd.retrying("replace", timeout, swap).await
        })?;
        Ok(match answer {
            Swap::Done => Swapped::Yes,
            Swap::Not { guard } if guard == self.session => Swapped::Changed,
            Swap::Not { .. } => Swapped::Superseded,
        })
    }
}
