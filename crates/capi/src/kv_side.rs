//! What handles of stores stand for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use kv::Store;

use crate::code::cairn_code::CAIRN_BUSY;
use crate::failure::{Failure, Result};
use crate::handles::{Kept, Slots, give, take};
use crate::types::kv::cairn_kv;

/// An open store. What was opened from it has it, too.
pub(crate) struct OpenStore {
    pub(crate) store: Store,
    pub(crate) poisoned: AtomicBool,
}

impl OpenStore {
    /// A handle for a store that was just opened.
    pub(crate) fn give(store: Store) -> Result<*mut cairn_kv> {
        give(Arc::new(Self { store, poisoned: AtomicBool::new(false) }))
    }

    /// After a panic.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }

    /// Closes the store, and with it the handle, unless a transaction is open.
    pub(crate) fn close(handle: *const cairn_kv) -> Result<()> {
        let open = take(handle, |open: &mut Arc<Self>| {
            let in_use = "a transaction of the store is open; commit or abort it first";
            Arc::get_mut(open).map(|_| ()).ok_or_else(|| Failure::new(CAIRN_BUSY, in_use))
        })?;
        match Arc::into_inner(open) {
            Some(open) if !open.is_poisoned() => {
                if let Err(forked @ pmem::Error::Forked) = open.store.pool().check_usable() {
                    return Err(forked.into()); // it is the parent's to close
                }
                Ok(open.store.close()?)
            }
            Some(open) => {
                open.store.abandon(); // the next open recovers it
                Err(Failure::poisoned())
            }
            None => Err(Failure::poisoned()),
        }
    }
}

static STORES: Slots<Arc<OpenStore>> = Slots::new();
impl Kept for Arc<OpenStore> {
    type C = cairn_kv;
    const KIND: u64 = 3;
    const NAME: &'static str = "store";

    fn slots() -> &'static Slots<Self> {
        &STORES
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.poisoned
    }
}
