//! What borrows from a log, a store or an array, kept together with it.

use std::sync::Arc;
use std::thread::ThreadId;

use eaw::array::{Entry, Savepoint};
use kv::{Isolation, Keys, Scan, Transaction};
use log::{Iter, Lsn, Reservation};
use parking_lot::Mutex;

use super::kv::cairn_pair;
use super::tx::{cairn_scan, cairn_tx};
use crate::array_side::OpenArray;
use crate::code::cairn_code::{CAIRN_BUSY, CAIRN_CLOSED, CAIRN_INVALID};
use crate::failure::{Failure, Result};
use crate::kv_side::{OpenStore, ScanOf};
use crate::log_side::{HeldIter, HeldReservation, OpenLog};

/// What borrows from the owner, for one thread at a time. The fields are dropped in this order.
pub(crate) struct Held<B, O> {
    borrower: Mutex<B>,
    owner: Arc<O>,
}

impl<B, O> Held<B, O> {
    pub(crate) fn owner(&self) -> &O {
        &self.owner
    }

    pub(crate) fn state(&mut self) -> &mut B {
        self.borrower.get_mut()
    }
}

impl<B, O> AsRef<Mutex<B>> for Held<B, O> {
    fn as_ref(&self) -> &Mutex<B> {
        &self.borrower
    }
}

// ---- of a log -----------------------------------------------------------------------------------------------------

impl HeldReservation {
    pub(crate) fn new(log: &Arc<OpenLog>, len: usize) -> Result<Self> {
        let reservation = log.log.reserve(len)?;
        // SAFETY: what it borrows is on the heap behind `owner`, which is dropped after it. Nobody gets it out with this lifetime: it is completed or dropped in here.
        let reservation = unsafe { std::mem::transmute::<Reservation<'_>, Reservation<'static>>(reservation) };
        Ok(Self { borrower: Mutex::new(reservation), owner: Arc::clone(log) })
    }

    pub(crate) fn complete(self) -> Result<Lsn> {
        Ok(self.borrower.into_inner().complete()?)
    }
}

impl HeldIter {
    pub(crate) fn new(log: &Arc<OpenLog>, from: Lsn) -> Self {
        let iter = log.log.iter_from(from);
        // SAFETY: as for a reservation; records that it shows borrow from it.
        let iter = unsafe { std::mem::transmute::<Iter<'_>, Iter<'static>>(iter) };
        Self { borrower: Mutex::new(iter), owner: Arc::clone(log) }
    }
}

// ---- of a store ---------------------------------------------------------------------------------------------------

/// A transaction, and the store it is of.
pub(crate) type HeldTx = Held<TxState, OpenStore>;

/// A transaction and its scans.
///
/// `tx` leads to the transaction, which lives as long as this: on the heap, or lent by who waits for it to be taken back. `scans` borrow from it; while there are any, it
/// is only read.
pub(crate) struct TxState {
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
    pub(crate) fn begin(store: &Arc<OpenStore>, isolation: Isolation) -> Result<Self> {
        let tx = store.store.begin(isolation)?;
        // SAFETY: what it borrows is on the heap behind `owner`, which is dropped after it. Nobody gets it out with this lifetime.
        let tx = unsafe { std::mem::transmute::<Transaction<'_>, Transaction<'static>>(tx) };
        let state = TxState { scans: Vec::new(), tx: Box::into_raw(Box::new(tx)), lent: false };
        Ok(Self { borrower: Mutex::new(state), owner: Arc::clone(store) })
    }

    /// One that somebody else will end.
    ///
    /// # Safety
    /// What this makes is dropped before the loan ends.
    pub(crate) unsafe fn lend(store: &Arc<OpenStore>, tx: &mut Transaction<'_>) -> Self {
        let state = TxState { scans: Vec::new(), tx: std::ptr::from_mut(tx).cast(), lent: true };
        Self { borrower: Mutex::new(state), owner: Arc::clone(store) }
    }

    pub(crate) fn commit(self) -> Result<u64> {
        let mut state = self.borrower.into_inner();
        state.scans.clear();
        let tx = std::mem::replace(&mut state.tx, std::ptr::null_mut());
        // SAFETY: it came from a box, as `kv_side::end` gives out no lent one, and nobody has borrowed from it any more.
        let tx = unsafe { Box::from_raw(tx) };
        Ok(tx.commit()?.get())
    }
}

impl TxState {
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// To read with.
    pub(crate) fn tx(&self) -> &Transaction<'static> {
        // SAFETY: it is there as long as this, and whoever changes it has this alone.
        unsafe { &*self.tx }
    }

    /// To write with: not while a scan is open.
    pub(crate) fn tx_mut(&mut self) -> Result<&mut Transaction<'static>> {
        if self.scans.iter().any(Option::is_some) {
            let message = "a scan of the transaction is open; close it before the transaction writes";
            return Err(Failure::new(CAIRN_BUSY, message));
        }
        // SAFETY: as above, and nothing borrows from it.
        Ok(unsafe { &mut *self.tx })
    }

    pub(crate) fn scan(&mut self, handle: *const cairn_tx, keys: Keys) -> Result<*mut cairn_scan> {
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

    pub(crate) fn next_pair(&mut self, number: usize) -> Result<Option<cairn_pair>> {
        let open = self.scans.get_mut(number).and_then(Option::as_mut);
        let open = open.ok_or_else(|| Failure::new(CAIRN_CLOSED, "the scan was closed"))?;
        Ok(open.scan.next().transpose()?.map(|(key, value)| cairn_pair::of(key, value)))
    }

    pub(crate) fn close_scan(&mut self, number: usize) {
        if let Some(open) = self.scans.get_mut(number) {
            *open = None;
        }
    }

    /// Closes all scans; their handles are left.
    pub(crate) fn take_scans(&mut self) -> Vec<*mut cairn_scan> {
        self.scans.drain(..).flatten().map(|open| open.handle).collect()
    }
}

impl Drop for TxState {
    fn drop(&mut self) {
        self.scans.clear();
        if !self.lent && !self.tx.is_null() {
            // SAFETY: it came from a box, which nobody else has, and nothing borrows from it any more.
            drop(unsafe { Box::from_raw(self.tx) });
        }
    }
}

// ---- of an array --------------------------------------------------------------------------------------------------

/// A transaction, and the array it is of.
pub(crate) type HeldArrayTx = Held<ArrayTxState, OpenArray>;

/// A transaction, and what the program has of it, by number.
pub(crate) struct ArrayTxState {
    pub(crate) tx: eaw::array::Transaction<'static>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) savepoints: Vec<Savepoint>,
    thread: ThreadId,
}

// SAFETY: what a thread has stored becomes persistent with that thread's next barrier, which is why a transaction is one thread's. `check_thread` is asked before it is used
// in any other way than to be dropped, which stores nothing.
unsafe impl Send for ArrayTxState {}

impl HeldArrayTx {
    pub(crate) fn begin(array: &Arc<OpenArray>) -> Result<Self> {
        let tx = array.array.begin()?;
        // SAFETY: what it borrows is on the heap behind `owner`, which is dropped after it. Nobody gets it out with this lifetime: it is committed or dropped in here.
        let tx = unsafe { std::mem::transmute::<eaw::array::Transaction<'_>, eaw::array::Transaction<'static>>(tx) };
        let thread = std::thread::current().id();
        let state = ArrayTxState { tx, entries: Vec::new(), savepoints: Vec::new(), thread };
        Ok(Self { borrower: Mutex::new(state), owner: Arc::clone(array) })
    }

    pub(crate) fn commit(self) -> Result<u64> {
        Ok(self.borrower.into_inner().tx.commit()?.sequence())
    }
}

impl ArrayTxState {
    pub(crate) fn check_thread(&self) -> Result<()> {
        if self.thread == std::thread::current().id() {
            return Ok(());
        }
        let message = "the transaction is another thread's, which began it: use it there; here it can be aborted";
        Err(Failure::new(CAIRN_INVALID, message))
    }

    pub(crate) fn entry(&self, number: u64) -> Result<Entry> {
        number_in(&self.entries, number, "entry")
    }

    pub(crate) fn savepoint(&self, number: u64) -> Result<Savepoint> {
        number_in(&self.savepoints, number, "savepoint")
    }
}

fn number_in<T: Copy>(known: &[T], number: u64, what: &str) -> Result<T> {
    let found = usize::try_from(number).ok().and_then(|number| known.get(number)).copied();
    found.ok_or_else(|| Failure::new(CAIRN_INVALID, format!("{number} is no {what} of this transaction")))
}
