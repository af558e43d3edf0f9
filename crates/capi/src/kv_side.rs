//! What handles of stores stand for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use kv::Store;

use crate::code::cairn_code::{CAIRN_BUSY, CAIRN_CLOSED, CAIRN_INVALID};
use crate::failure::{Failure, Result};
use crate::handles::{Kept, Slots, alone, give, take, take_patiently};
use crate::raw::held::{HeldTx, TxState};
use crate::raw::kv::{cairn_kv, cairn_pair};
use crate::raw::tx::{cairn_scan, cairn_tx};

/// An open store. What was opened from it has it, too.
pub(crate) struct OpenStore {
    pub(crate) store: Store,
    poisoned: AtomicBool,
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

/// A scan is one of its transaction's, by number.
pub(crate) struct ScanOf {
    tx: usize,
    number: usize,
    /// Its own never is: the transaction's tells.
    poisoned: AtomicBool,
}

impl ScanOf {
    /// A handle for a scan that the transaction has just opened.
    pub(crate) fn give(tx: *const cairn_tx, number: usize) -> Result<*mut cairn_scan> {
        give(Self { tx: tx.addr(), number, poisoned: AtomicBool::new(false) })
    }

    /// Where the scan is.
    fn place(handle: *const cairn_scan) -> Result<(*const cairn_tx, usize)> {
        crate::handles::with(handle, |scan: &Self| Ok((std::ptr::without_provenance(scan.tx), scan.number)))
    }

    /// The next pair.
    pub(crate) fn next(handle: *const cairn_scan) -> Result<Option<cairn_pair>> {
        let (tx, number) = Self::place(handle)?;
        alone::<HeldTx, _, _>(tx, |state: &mut TxState| state.next_pair(number))
    }

    /// Closes it.
    pub(crate) fn close(handle: *const cairn_scan) -> Result<()> {
        let (tx, number) = Self::place(handle)?;
        alone::<HeldTx, _, _>(tx, |state: &mut TxState| {
            state.close_scan(number);
            Ok(())
        })?;
        take_patiently::<Self>(handle).map(|_| ())
    }
}

/// Takes a transaction from its handle, whose scans end with it. A lent one is not the caller's to end.
pub(crate) fn end(handle: *const cairn_tx) -> Result<HeldTx> {
    let mut held = take(handle, |held: &mut HeldTx| {
        let lent = "inside of cairn_kv_transact the transaction ends when the body returns";
        if held.state().is_lent() { Err(Failure::new(CAIRN_INVALID, lent)) } else { Ok(()) }
    })?;
    end_scans(&mut held);
    Ok(held)
}

/// The handles of its scans lead nowhere from now on.
pub(crate) fn end_scans(held: &mut HeldTx) {
    for scan in held.state().take_scans() {
        match take_patiently::<ScanOf>(scan) {
            Ok(_) => {}
            // Closed meanwhile, by another thread.
            Err(failure) => debug_assert_eq!(failure.code, CAIRN_CLOSED),
        }
    }
}

static STORES: Slots<Arc<OpenStore>> = Slots::new();
static TRANSACTIONS: Slots<HeldTx> = Slots::new();
static SCANS: Slots<ScanOf> = Slots::new();

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

impl Kept for HeldTx {
    type C = cairn_tx;
    const KIND: u64 = 4;
    const NAME: &'static str = "transaction";

    fn slots() -> &'static Slots<Self> {
        &TRANSACTIONS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.owner().poisoned
    }
}

impl Kept for ScanOf {
    type C = cairn_scan;
    const KIND: u64 = 5;
    const NAME: &'static str = "scan";

    fn slots() -> &'static Slots<Self> {
        &SCANS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.poisoned
    }
}

#[cfg(test)]
mod tests {
    use kv::{Isolation, Keys, Options};

    use super::*;
    use crate::code::cairn_code::CAIRN_POISONED;
    use crate::handles::with;

    #[test]
    fn a_store_that_met_a_bug_can_be_closed_and_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let handle = OpenStore::give(Options::new().create(&path).unwrap()).unwrap();
        with(handle, |open: &Arc<OpenStore>| Ok(open.store.put(b"durable", b"1")?)).unwrap();
        let begin = || with(handle, |open: &Arc<OpenStore>| HeldTx::begin(open, Isolation::Serializable));
        let tx = give(begin().unwrap()).unwrap();
        alone::<HeldTx, _, _>(tx, |state: &mut TxState| Ok(state.tx_mut()?.put(b"lost", b"1")?)).unwrap();
        let scan = alone::<HeldTx, _, _>(tx, |state: &mut TxState| state.scan(tx, Keys::all())).unwrap();

        let panicked = alone::<HeldTx, _, _>(tx, |_: &mut TxState| -> Result<()> { panic!("planted") });
        assert_eq!(panicked.map_err(|failure| failure.code), Err(CAIRN_POISONED));
        assert!(ScanOf::next(scan).is_err());
        assert_eq!(begin().err().map(|failure| failure.code), Some(CAIRN_POISONED));
        drop(end(tx).unwrap());
        assert_eq!(ScanOf::close(scan).map_err(|failure| failure.code), Err(CAIRN_CLOSED));
        assert_eq!(OpenStore::close(handle).map_err(|failure| failure.code), Err(CAIRN_POISONED));

        let store = Options::new().open(&path).unwrap();
        assert_eq!((store.get(b"durable").unwrap().as_deref(), store.get(b"lost").unwrap()), (Some(&b"1"[..]), None));
        store.close().unwrap();
    }
}
