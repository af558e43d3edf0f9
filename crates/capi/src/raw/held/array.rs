//! What borrows from an array: transactions.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::ThreadId;

use eaw::array::{Entry, Savepoint};
use parking_lot::Mutex;

use super::Held;
use crate::array_side::OpenArray;
use crate::code::cairn_code::CAIRN_INVALID;
use crate::failure::{Failure, Result};
use crate::handles::{Kept, Slots, alone, take};
use crate::types::array::cairn_array_tx;

/// A transaction, and the array it is of.
pub(in crate::raw) type HeldArrayTx = Held<ArrayTxState, OpenArray>;

/// A transaction, and what the program has of it, by number.
pub(in crate::raw) struct ArrayTxState {
    pub(in crate::raw) tx: eaw::array::Transaction<'static>,
    pub(in crate::raw) entries: Vec<Entry>,
    pub(in crate::raw) savepoints: Vec<Savepoint>,
    thread: ThreadId,
}

// SAFETY: what a thread has stored becomes persistent with that thread's next barrier, which is why a transaction is one thread's. `check_thread` is asked before it is used
// in any other way than to be dropped, which stores nothing.
unsafe impl Send for ArrayTxState {}

impl HeldArrayTx {
    pub(in crate::raw) fn begin(array: &Arc<OpenArray>) -> Result<Self> {
        let tx = array.array.begin()?;
        // SAFETY: what it borrows is on the heap behind `owner`, which is dropped after it. Nothing takes it out with this lifetime: it is committed or dropped in here.
        let tx = unsafe { std::mem::transmute::<eaw::array::Transaction<'_>, eaw::array::Transaction<'static>>(tx) };
        let thread = std::thread::current().id();
        let state = ArrayTxState { tx, entries: Vec::new(), savepoints: Vec::new(), thread };
        Ok(Self { borrower: Mutex::new(state), owner: Arc::clone(array) })
    }

    pub(in crate::raw) fn commit(self) -> Result<u64> {
        Ok(self.borrower.into_inner().tx.commit()?.sequence())
    }
}

impl ArrayTxState {
    pub(in crate::raw) fn check_thread(&self) -> Result<()> {
        if self.thread == std::thread::current().id() {
            return Ok(());
        }
        let message = "the transaction is another thread's, which began it: use it there; here it can be aborted";
        Err(Failure::new(CAIRN_INVALID, message))
    }

    pub(in crate::raw) fn entry(&self, number: u64) -> Result<Entry> {
        number_in(&self.entries, number, "entry")
    }

    pub(in crate::raw) fn savepoint(&self, number: u64) -> Result<Savepoint> {
        number_in(&self.savepoints, number, "savepoint")
    }
}

fn number_in<T: Copy>(known: &[T], number: u64, what: &str) -> Result<T> {
    let found = usize::try_from(number).ok().and_then(|number| known.get(number)).copied();
    found.ok_or_else(|| Failure::new(CAIRN_INVALID, format!("{number} is no {what} of this transaction")))
}

/// Uses a transaction on the thread that began it: what it has stored is on its way to media there.
pub(in crate::raw) fn in_tx<R>(
    handle: *const cairn_array_tx,
    body: impl FnOnce(&mut ArrayTxState) -> Result<R>,
) -> Result<R> {
    alone::<HeldArrayTx, _, _>(handle, |state: &mut ArrayTxState| {
        state.check_thread()?;
        body(state)
    })
}

/// Takes a transaction from its handle, to commit it.
pub(in crate::raw) fn end(handle: *const cairn_array_tx) -> Result<HeldArrayTx> {
    take(handle, |held: &mut HeldArrayTx| held.state().check_thread())
}

static TRANSACTIONS: Slots<HeldArrayTx> = Slots::new();

impl Kept for HeldArrayTx {
    type C = cairn_array_tx;
    const KIND: u64 = 9;
    const NAME: &'static str = "transaction of an array";

    fn slots() -> &'static Slots<Self> {
        &TRANSACTIONS
    }

    fn poisoned(&self) -> &AtomicBool {
        &self.owner().poisoned
    }
}
