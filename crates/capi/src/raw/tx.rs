//! Transactions on a store.
//!
//! A transaction and its scans are used by one thread at a time; another one that comes in between gets `CAIRN_BUSY`. The caller that begins a transaction
//! ends it, with `cairn_tx_commit` or `cairn_tx_abort`. After `CAIRN_CONFLICT` it is aborted and run again; `cairn_kv_transact` does that by itself, and sees
//! to it that every caller gets through.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use kv::{Isolation, Keys, Transaction};

use super::held::tx::{HeldTx, ScanOf, TxState, end, end_scans};
use super::{Out, bytes};
use crate::call::{call, done, status};
use crate::code::cairn_code::{CAIRN_END, CAIRN_INVALID, CAIRN_OK};
use crate::code::cairn_status;
use crate::failure::{Failure, Result};
use crate::handles::{alone, give, take_patiently, with};
use crate::kv_side::OpenStore;
use crate::types::kv::{cairn_kv, cairn_pair};
use crate::types::tx::{cairn_body, cairn_isolation, cairn_range, cairn_scan, cairn_tx};

fn level(isolation: c_int) -> Result<Isolation> {
    match isolation {
        i if i == cairn_isolation::CAIRN_SERIALIZABLE as c_int => Ok(Isolation::Serializable),
        i if i == cairn_isolation::CAIRN_SNAPSHOT as c_int => Ok(Isolation::Snapshot),
        other => Err(Failure::new(CAIRN_INVALID, format!("isolation is {other}: one of enum cairn_isolation"))),
    }
}

/// Starts a transaction. `isolation` is one of `enum cairn_isolation`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_begin(
    store: *mut cairn_kv,
    isolation: c_int,
    tx: *mut *mut cairn_tx,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (level, tx) = (level(isolation)?, unsafe { Out::new(tx, "tx")? });
        tx.set(give(with(store, |open: &Arc<OpenStore>| HeldTx::begin(open, level))?)?);
        Ok(())
    })
}

/// Finds the key's value. It is shown where it stands: not to be changed, and there until the transaction writes or ends. `CAIRN_END` if the key has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_tx_get(
    tx: *mut cairn_tx,
    key: *const c_void,
    key_len: usize,
    value: *mut *const c_void,
    value_len: *mut usize,
) -> cairn_status {
    call(|| {
        // SAFETY: the caller's.
        let (key, value, value_len) =
            unsafe { (bytes(key, key_len, "key")?, Out::new(value, "value")?, Out::new(value_len, "value_len")?) };
        let found = alone::<HeldTx, _, _>(tx, |state: &mut TxState| {
            Ok(state.tx().get(key)?.map(|found| (found.as_ptr(), found.len())))
        })?;
        Ok(found.map_or(CAIRN_END, |(at, len)| {
            value.set(at.cast());
            value_len.set(len);
            CAIRN_OK
        }))
    })
}

/// Sets the key's value. `had`, which may be null, gets whether it had one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_tx_put(
    tx: *mut cairn_tx,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    had: *mut bool,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (key, value, had) =
            unsafe { (bytes(key, key_len, "key")?, bytes(value, value_len, "value")?, Out::wanted(had)) };
        had.set(alone::<HeldTx, _, _>(tx, |state: &mut TxState| Ok(state.tx_mut()?.put(key, value)?))?);
        Ok(())
    })
}

/// Removes the key. `had`, which may be null, gets whether it had a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_tx_delete(
    tx: *mut cairn_tx,
    key: *const c_void,
    key_len: usize,
    had: *mut bool,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (key, had) = unsafe { (bytes(key, key_len, "key")?, Out::wanted(had)) };
        had.set(alone::<HeldTx, _, _>(tx, |state: &mut TxState| Ok(state.tx_mut()?.delete(key)?))?);
        Ok(())
    })
}

/// Goes through a range of keys, as the transaction sees it; `range` may be null: all of them. While a scan is open the transaction does not write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_tx_scan(
    tx: *mut cairn_tx,
    range: *const cairn_range,
    scan: *mut *mut cairn_scan,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (keys, scan) = unsafe { (keys(range)?, Out::new(scan, "scan")?) };
        scan.set(alone::<HeldTx, _, _>(tx, |state: &mut TxState| state.scan(tx, keys))?);
        Ok(())
    })
}

/// # Safety
/// `range` is null or leads to one, and its keys are there.
unsafe fn keys(range: *const cairn_range) -> Result<Keys> {
    if range.is_null() {
        return Ok(Keys::all());
    }
    // SAFETY: the caller's.
    let range = unsafe { range.read() };
    // SAFETY: the caller's.
    let (from, to) = unsafe { (bytes(range.from, range.from_len, "from")?, bytes(range.to, range.to_len, "to")?) };
    let keys = match (range.prefix != 0, range.to.is_null()) {
        (true, true) => Keys::prefix(from),
        (true, false) => return Err(Failure::new(CAIRN_INVALID, "a prefix has no to: it must be null")),
        (false, true) => Keys::from(from),
        (false, false) => Keys::from(from).until(to),
    };
    Ok(if range.reverse != 0 { keys.reverse() } else { keys })
}

/// The next pair; `CAIRN_END` behind the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_scan_next(scan: *mut cairn_scan, pair: *mut cairn_pair) -> cairn_status {
    call(|| {
        // SAFETY: the caller's.
        let out = unsafe { Out::new(pair, "pair")? };
        Ok(ScanOf::next(scan)?.map_or(CAIRN_END, |pair| {
            out.set(pair);
            CAIRN_OK
        }))
    })
}

/// Ends a scan. Those that are open when their transaction ends, end with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_scan_close(scan: *mut cairn_scan) -> cairn_status {
    done(|| ScanOf::close(scan))
}

/// Makes all changes durable and visible, as a whole. The transaction ends whatever this returns, but for `CAIRN_BUSY` and `CAIRN_CLOSED`. `timestamp`, which may be
/// null, gets its place among all commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_tx_commit(tx: *mut cairn_tx, timestamp: *mut u64) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let timestamp = unsafe { Out::wanted(timestamp) };
        let held = end(tx)?;
        if held.owner().is_poisoned() {
            return Err(Failure::poisoned());
        }
        timestamp.set(held.commit()?);
        Ok(())
    })
}

/// Gives everything up. The transaction ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_tx_abort(tx: *mut cairn_tx) -> cairn_status {
    done(|| end(tx).map(drop))
}

/// How a body ended that was not to be committed.
enum Ended {
    Kv(kv::Error),
    Ours(Failure),
    Body(cairn_status),
}

impl From<kv::Error> for Ended {
    fn from(error: kv::Error) -> Self {
        Self::Kv(error)
    }
}

/// Runs `body` in a transaction and commits that; after a conflict it runs again, so it must not have other effects than on the transaction. What it returns, if not
/// `CAIRN_OK`, aborts the transaction and is returned from here; codes from `CAIRN_USER` on are its own. It neither commits nor aborts, and does not leave by an exception
/// or `longjmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_transact(
    store: *mut cairn_kv,
    isolation: c_int,
    body: cairn_body,
    context: *mut c_void,
) -> cairn_status {
    status(|| {
        let level = level(isolation)?;
        let body = body.ok_or_else(|| Failure::null("body"))?;
        with(store, |open: &Arc<OpenStore>| {
            let run = |tx: &mut Transaction<'_>| {
                // SAFETY: taken back before the loan ends, by `Loan`.
                let loan = Loan(give(unsafe { HeldTx::lend(open, tx) }).map_err(Ended::Ours)?);
                // SAFETY: the caller's, to be called so.
                match unsafe { body(loan.0, context) } {
                    0 => Ok(()),
                    status => Err(Ended::Body(status)),
                }
            };
            match open.store.transact_at(level, run) {
                Ok(()) => Ok(0),
                Err(Ended::Kv(error)) => Err(error.into()),
                Err(Ended::Ours(failure)) => Err(failure),
                Err(Ended::Body(status)) => Ok(status),
            }
        })
    })
}

/// A transaction that is lent to the body, until this is dropped.
struct Loan(*mut cairn_tx);

impl Drop for Loan {
    fn drop(&mut self) {
        if let Ok(mut held) = take_patiently::<HeldTx>(self.0) {
            end_scans(&mut held);
        }
    }
}
