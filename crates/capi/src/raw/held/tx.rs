//! What borrows from a store: transactions, and from them scans.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use kv::{Isolation, Keys, Scan, Transaction};
use parking_lot::Mutex;

use super::Held;
use crate::code::cairn_code::{CAIRN_BUSY, CAIRN_CLOSED, CAIRN_INVALID};
use crate::failure::{Failure, Result};
use crate::handles::{Kept, Slots, alone, give, take, take_patiently, with};
use crate::kv_side::OpenStore;
use crate::types::kv::cairn_pair;
use crate::types::tx::{cairn_scan, cairn_tx};

/// A transaction, and the store it is of.
pub(in crate::raw) type HeldTx = Held<TxState, OpenStore>;

/// A transaction and its scans.
///
/// `tx` leads to the transaction, which lives as long as this: on the heap, or lent by a caller that waits for it to be taken back. `scans` borrow from it; while there are
/// any, it is only read.
pub(in crate::raw) struct TxState {
    scans: Vec<Option<OpenScan>>,
    tx: *mut Transaction<'static>,
    lent: bool,
}

struct OpenScan {
    scan: Box<Scan<'static>>,
    handle: *mut cairn_scan,
}

// SAFETY: a transaction may go to another thread, and its scans go with it; the handles are only numbers.
unsafe impl Send for TxState where Transaction<'static>: Send {}

impl HeldTx {
    pub(in crate::raw) fn begin(store: &Arc<OpenStore>, isolation: Isolation) -> Result<Self> {
        let tx = store.store.begin(isolation)?;
        // SAFETY: what it borrows is on the heap behind `owner`, which is dropped after it. Nothing takes it out with this lifetime.
        let tx = unsafe { std::mem::transmute::<Transaction<'_>, Transaction<'static>>(tx) };
        let state = TxState { scans: Vec::new(), tx: Box::into_raw(Box::new(tx)), lent: false };
        Ok(Self { borrower: Mutex::new(state), owner: Arc::clone(store) })
    }

    /// One that its lender will end.
    ///
    /// # Safety
    /// What this makes is dropped before the loan ends.
    pub(in crate::raw) unsafe fn lend(store: &Arc<OpenStore>, tx: &mut Transaction<'_>) -> Self {
        let state = TxState { scans: Vec::new(), tx: std::ptr::from_mut(tx).cast(), lent: true };
        Self { borrower: Mutex::new(state), owner: Arc::clone(store) }
    }

    pub(in crate::raw) fn commit(self) -> Result<u64> {
        let mut state = self.borrower.into_inner();
        state.scans.clear();
        let tx = std::mem::replace(&mut state.tx, std::ptr::null_mut());
        // SAFETY: it came from a box, as [`end`] gives out no lent one, and nothing borrows from it any more.
        let tx = unsafe { Box::from_raw(tx) };
        Ok(tx.commit()?.get())
    }
}

impl TxState {
    pub(in crate::raw) fn is_lent(&self) -> bool {
        self.lent
    }

    /// To read with.
    pub(in crate::raw) fn tx(&self) -> &Transaction<'static> {
        // SAFETY: it is there as long as this, and a caller that changes it has this alone.
        unsafe { &*self.tx }
    }

    /// To write with: not while a scan is open.
    pub(in crate::raw) fn tx_mut(&mut self) -> Result<&mut Transaction<'static>> {
        if self.scans.iter().any(Option::is_some) {
            let message = "a scan of the transaction is open; close it before the transaction writes";
            return Err(Failure::new(CAIRN_BUSY, message));
        }
        // SAFETY: as above, and nothing borrows from it.
        Ok(unsafe { &mut *self.tx })
    }

    pub(in crate::raw) fn scan(&mut self, handle: *const cairn_tx, keys: Keys) -> Result<*mut cairn_scan> {
        // SAFETY: it stays where it is until this has dropped its scans.
        let tx: &'static Transaction<'static> = unsafe { &*self.tx };
        let scan = Box::new(tx.scan(keys));
        let number = self.scans.iter().position(Option::is_none).unwrap_or(self.scans.len());
        let handle = ScanOf::give(handle, number)?;
        if number == self.scans.len() {
            self.scans.push(None);
        }
        self.scans[number] = Some(OpenScan { scan, handle });
        Ok(handle)
    }

    pub(in crate::raw) fn next_pair(&mut self, number: usize) -> Result<Option<cairn_pair>> {
        let open = self.scans.get_mut(number).and_then(Option::as_mut);
        let open = open.ok_or_else(|| Failure::new(CAIRN_CLOSED, "the scan was closed"))?;
        Ok(open.scan.next().transpose()?.map(|(key, value)| cairn_pair::of(key, value)))
    }

    pub(in crate::raw) fn close_scan(&mut self, number: usize) {
        if let Some(open) = self.scans.get_mut(number) {
            *open = None;
        }
    }

    /// Closes all scans; their handles are left.
    pub(in crate::raw) fn take_scans(&mut self) -> Vec<*mut cairn_scan> {
        self.scans.drain(..).flatten().map(|open| open.handle).collect()
    }
}

impl Drop for TxState {
    fn drop(&mut self) {
        self.scans.clear();
        if !self.lent && !self.tx.is_null() {
            // SAFETY: it came from a box, which nothing else has, and nothing borrows from it any more.
            drop(unsafe { Box::from_raw(self.tx) });
        }
    }
}

/// A scan is one of its transaction's, by number.
pub(in crate::raw) struct ScanOf {
    tx: usize,
    number: usize,
    /// Its own never is: the transaction's tells.
    poisoned: AtomicBool,
}

impl ScanOf {
    /// A handle for a scan that the transaction has just opened.
    pub(in crate::raw) fn give(tx: *const cairn_tx, number: usize) -> Result<*mut cairn_scan> {
        give(Self { tx: tx.addr(), number, poisoned: AtomicBool::new(false) })
    }

    /// Where the scan is.
    fn place(handle: *const cairn_scan) -> Result<(*const cairn_tx, usize)> {
        with(handle, |scan: &Self| Ok((std::ptr::without_provenance(scan.tx), scan.number)))
    }

    /// The next pair.
    pub(in crate::raw) fn next(handle: *const cairn_scan) -> Result<Option<cairn_pair>> {
        let (tx, number) = Self::place(handle)?;
        alone::<HeldTx, _, _>(tx, |state: &mut TxState| state.next_pair(number))
    }

    /// Closes it.
    pub(in crate::raw) fn close(handle: *const cairn_scan) -> Result<()> {
        let (tx, number) = Self::place(handle)?;
        alone::<HeldTx, _, _>(tx, |state: &mut TxState| {
            state.close_scan(number);
            Ok(())
        })?;
        take_patiently::<Self>(handle).map(|_| ())
    }
}

/// Takes a transaction from its handle, whose scans end with it. A lent one is not the caller's to end.
pub(in crate::raw) fn end(handle: *const cairn_tx) -> Result<HeldTx> {
    let mut held = take(handle, |held: &mut HeldTx| {
        let lent = "inside of cairn_kv_transact the transaction ends when the body returns";
        if held.state().is_lent() { Err(Failure::new(CAIRN_INVALID, lent)) } else { Ok(()) }
    })?;
    end_scans(&mut held);
    Ok(held)
}

/// The handles of its scans lead nowhere from now on.
pub(in crate::raw) fn end_scans(held: &mut HeldTx) {
    for scan in held.state().take_scans() {
        match take_patiently::<ScanOf>(scan) {
            Ok(_) => {}
            // Closed meanwhile, by another thread.
            Err(failure) => debug_assert_eq!(failure.code, CAIRN_CLOSED),
        }
    }
}

static TRANSACTIONS: Slots<HeldTx> = Slots::new();
static SCANS: Slots<ScanOf> = Slots::new();

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
    use kv::Options;

    use super::*;
    use crate::code::cairn_code::CAIRN_POISONED;

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
