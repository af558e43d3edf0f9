//! One committed state, to be looked at for minutes.

use pmem::{Error as PoolError, PPtr, Persist, view};
use tx::{Error, Result};

use crate::core::{Core, View};
use crate::raw::{self, Claim};

/// The state that was committed when it was made, whatever is changed meanwhile. It may go to another thread, and be held for minutes: of each object one version is kept for
/// it, at most, and neither writers nor the logs wait for it.
///
/// ```
/// # fn main() -> tx::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use mvcc::{Mvcc, Options};
/// use tx::{Engine, Isolation, Typed};
///
/// let store = Mvcc::create(dir.path().join("counter"), &Options::new().bytes(1 << 20))?;
/// let counter = store.transact(Isolation::Snapshot, |tx| tx.alloc(&1u64))?;
/// let before = store.snapshot();
/// store.transact(Isolation::Snapshot, |tx| -> tx::Result<()> { *tx.write(counter)? += 1; Ok(()) })?;
/// assert_eq!(before.read(counter)?, 1);
/// assert_eq!(store.snapshot().read(counter)?, 2);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Snapshot<'m> {
    core: Held<'m>,
}

/// The timestamp that is on the list.
struct Held<'m> {
    core: &'m Core,
    stamp: u64,
}

impl std::fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}", self.stamp)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.core.held.lock();
        if let Some(at) = held.iter().position(|&stamp| stamp == self.stamp) {
            held.swap_remove(at);
        }
    }
}

impl<'m> Snapshot<'m> {
    pub(crate) fn new(core: &'m Core) -> Self {
        // Read off the clock under the lock: a pass that has not got it on its list goes through no later timestamp.
        let mut held = core.held.lock();
        let stamp = core.tx_slots.now();
        held.push(stamp);
        Self { core: Held { core, stamp } }
    }

    /// Calls `f` with `len` bytes at `ptr`, as they were. Meanwhile, as with a transaction, logs fill: let it be short.
    ///
    /// # Errors
    /// [`pmem::Error::BadPointer`] for anything but an object that was there; [`Error::NoSlot`] while all slots are in use.
    pub fn with<R>(&self, ptr: PPtr<u8>, len: u64, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let core = self.core.core;
        let tx_slot = core.tx_slots.claim()?.sit().look_at(self.core.stamp);
        look(core, &tx_slot, ptr, len).map(f)
    }

    /// The object at `ptr`, as it was.
    ///
    /// # Errors
    /// As [`with`](Self::with); [`pmem::Error::Unaligned`].
    pub fn read<T: Persist + Copy>(&self, ptr: PPtr<T>) -> Result<T> {
        let (offset, align) = (ptr.offset(), align_of::<T>() as u64);
        let found = self.with(ptr.cast(), size_of::<T>() as u64, |bytes| view::<T>(bytes).copied())?;
        found.ok_or_else(|| PoolError::Unaligned { offset, align }.into())
    }

    /// The object that holds the root: its pointer, and the hash of its layout.
    pub fn root_cell(&self) -> PPtr<[u64; 2]> {
        PPtr::new(self.core.core.pool.tag(), self.core.core.root)
    }

    /// Its place in the order of commits: it sees those up to this one.
    pub fn timestamp(&self) -> u64 {
        self.core.stamp
    }
}

fn look<'s>(core: &'s Core, tx_slot: &'s crate::tx_slot::TxSlot<'_>, ptr: PPtr<u8>, len: u64) -> Result<&'s [u8]> {
    let gone = |why| Error::from(PoolError::BadPointer { ptr: ptr.raw(), why });
    let found = core.alloc.find(ptr, len)?;
    let at = (ptr.offset() - found.block().offset()) as usize;
    match core.look(tx_slot, &found)? {
        View::Bytes(bytes) => bytes.get(at..at + len as usize).ok_or_else(|| gone("over the end of its block")),
        View::Master => raw::bytes(Claim::Seated, tx_slot, &core.pool, ptr.offset(), len),
        View::Gone => Err(gone("into a block that was free then")),
        View::Later | View::Own(_) => Err(gone("to an object that was made later")),
    }
}
