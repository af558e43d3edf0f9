//! Arrays: files that are striped over several members and written atomically, in any number of places.
//!
//! A transaction is used by the thread that began it, which ends it with `cairn_array_tx_commit`; any thread may end it with `cairn_array_tx_abort`. It keeps no other
//! transaction away from the bytes it is going to write: of two that write the same, the one that commits later wins.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::Arc;

use eaw::array::{Array, Options};

use super::held::array::{ArrayTxState, HeldArrayTx, end, in_tx};
use super::{Growing, Out, Room, bytes, fill, options, path, text};
use crate::array_side::OpenArray;
use crate::call::done;
use crate::code::cairn_code::CAIRN_INVALID;
use crate::code::cairn_status;
use crate::failure::{Failure, Result};
use crate::handles::{give, take, with};
use crate::options::{cairn_array_counts, cairn_array_found, cairn_array_options};
use crate::types::array::{cairn_array, cairn_array_tx};

// SAFETY: integers alone, without padding: their sizes are asserted beside them. The same for those below.
unsafe impl Growing for cairn_array_options {}
// SAFETY: as above.
unsafe impl Growing for cairn_array_counts {}
// SAFETY: as above.
unsafe impl Growing for cairn_array_found {}

/// Paths of members at most: as many as an array can have.
const MEMBERS_MAX: usize = eaw::array::MEMBERS_MAX;

/// # Safety
/// `at` is null or leads to `count` pointers, each of which is null or leads to a string that ends with a zero.
unsafe fn paths(at: *const *const c_char, count: usize) -> Result<Vec<PathBuf>> {
    if at.is_null() {
        return Err(Failure::null("members"));
    }
    if count > MEMBERS_MAX {
        let message = format!("an array cannot have {count} members: {MEMBERS_MAX} at most");
        return Err(Failure::new(CAIRN_INVALID, message));
    }
    // SAFETY: the caller's.
    let one = |member| unsafe { path(at.add(member).read()).map(PathBuf::from) };
    (0..count).map(one).collect()
}

/// # Safety
/// As [`paths`]; that of [`options()`](super::options) and of [`Out::new`].
unsafe fn give_array(
    members: *const *const c_char,
    count: usize,
    options: *const cairn_array_options,
    array: *mut *mut cairn_array,
    make: fn(&Options, &[PathBuf]) -> eaw::Result<Array>,
) -> Result<()> {
    // SAFETY: the caller's.
    let (paths, given, array) = unsafe { (paths(members, count)?, self::options(options)?, Out::new(array, "array")?) };
    array.set(OpenArray::give(make(&given.options()?, &paths)?)?);
    Ok(())
}

/// Sets all options to their defaults. `size` is `sizeof(cairn_array_options)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_options_init(options: *mut cairn_array_options, size: usize) -> cairn_status {
    // SAFETY: the caller's.
    done(|| unsafe { fill(options, size, cairn_array_options::default(), "options") })
}

/// Makes an array, a member at each of `count` paths, where there is nothing yet. `options` may be null: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_create(
    members: *const *const c_char,
    count: usize,
    options: *const cairn_array_options,
    array: *mut *mut cairn_array,
) -> cairn_status {
    // SAFETY: the caller's.
    done(|| unsafe { give_array(members, count, options, array, Options::create) })
}

/// Opens an array whose members are at these paths, in any order, and recovers it if it was not closed. `options` may be null: the defaults. What was found is told by
/// `cairn_array_get_found`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_open(
    members: *const *const c_char,
    count: usize,
    options: *const cairn_array_options,
    array: *mut *mut cairn_array,
) -> cairn_status {
    // SAFETY: the caller's.
    done(|| unsafe { give_array(members, count, options, array, Options::open) })
}

/// Leaves nothing to be recovered, and closes it. The handle is closed whatever this returns, but for `CAIRN_BUSY`: then a transaction is open, or a thread is in a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_close(array: *mut cairn_array) -> cairn_status {
    done(|| OpenArray::close(array))
}

/// Makes a file of `len` zero bytes. `file` gets the number by which it is known while the array is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_create_file(
    array: *mut cairn_array,
    name: *const c_char,
    len: u64,
    file: *mut u32,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (name, file) = unsafe { (text(name, "name")?, Out::new(file, "file")?) };
        file.set(with(array, |open: &Arc<OpenArray>| Ok(open.number_of(open.array.create_file(name, len)?)))?);
        Ok(())
    })
}

/// Finds a file by its name. `file` gets the number by which it is known while the array is open, `len`, which may be null, its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_find_file(
    array: *mut cairn_array,
    name: *const c_char,
    file: *mut u32,
    len: *mut u64,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (name, file, len) = unsafe { (text(name, "name")?, Out::new(file, "file")?, Out::wanted(len)) };
        let (number, bytes) = with(array, |open: &Arc<OpenArray>| {
            let found = open.array.file(name)?;
            let bytes = found.len();
            Ok((open.number_of(found), bytes))
        })?;
        file.set(number);
        len.set(bytes);
        Ok(())
    })
}

/// Writes `len` bytes at `offset`: all of them or none, whatever happens. They are durable and visible when this returns. One barrier for each member's file that has a part of
/// them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_atomic_write(
    array: *mut cairn_array,
    file: u32,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let bytes = unsafe { self::bytes(bytes, len, "bytes")? };
        with(array, |open: &Arc<OpenArray>| Ok(open.array.atomic_write(&open.file(file)?, offset, bytes)?))
    })
}

/// Reads `len` bytes at `offset` into `buffer`: what is committed. Of a transaction that commits meanwhile all or nothing is seen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_read(
    array: *mut cairn_array,
    file: u32,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let room = unsafe { Room::new(buffer, len, "buffer")? };
        with(array, |open: &Arc<OpenArray>| {
            let file = open.file(file)?;
            check_end(open, &file, offset, len)?;
            room.fill(|into| Ok(open.array.read(&file, offset, into)?))
        })
    })
}

/// Begins a transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_begin(array: *mut cairn_array, tx: *mut *mut cairn_array_tx) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let tx = unsafe { Out::new(tx, "tx")? };
        tx.set(give(with(array, |open: &Arc<OpenArray>| HeldArrayTx::begin(open))?)?);
        Ok(())
    })
}

/// Logs a write: after the commit the bytes are in the file at `offset`. `entry`, which may be null, gets the number by which `cairn_array_tx_edit` changes them until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_write(
    tx: *mut cairn_array_tx,
    file: u32,
    offset: u64,
    bytes: *const c_void,
    len: usize,
    entry: *mut u64,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (bytes, entry) = unsafe { (self::bytes(bytes, len, "bytes")?, Out::wanted(entry)) };
        let file = with_array_of(tx, |open| open.file(file))?;
        entry.set(in_tx(tx, |state: &mut ArrayTxState| {
            let logged = state.tx.log_write(&file, offset, bytes)?;
            state.entries.push(logged);
            Ok(state.entries.len() as u64 - 1)
        })?);
        Ok(())
    })
}

/// Changes `len` bytes of what was logged, `at` from its start. No barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_edit(
    tx: *mut cairn_array_tx,
    entry: u64,
    at: u64,
    bytes: *const c_void,
    len: usize,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let bytes = unsafe { self::bytes(bytes, len, "bytes")? };
        in_tx(tx, |state: &mut ArrayTxState| {
            let entry = state.entry(entry)?;
            Ok(state.tx.edit(&entry, at, bytes)?)
        })
    })
}

/// Reads `len` bytes at `offset` into `buffer`, as they will be: what is committed, with what this transaction has logged over it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_read(
    tx: *mut cairn_array_tx,
    file: u32,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let room = unsafe { Room::new(buffer, len, "buffer")? };
        let file = with_array_of(tx, |open| {
            let file = open.file(file)?;
            check_end(open, &file, offset, len)?;
            Ok(file)
        })?;
        room.fill(|into| in_tx(tx, |state: &mut ArrayTxState| Ok(state.tx.read(&file, offset, into)?)))
    })
}

/// A moment to return to: `savepoint` gets its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_savepoint(tx: *mut cairn_array_tx, savepoint: *mut u64) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let savepoint = unsafe { Out::new(savepoint, "savepoint")? };
        savepoint.set(in_tx(tx, |state: &mut ArrayTxState| {
            let made = state.tx.savepoint();
            state.savepoints.push(made);
            Ok(state.savepoints.len() as u64 - 1)
        })?);
        Ok(())
    })
}

/// Takes back what was logged behind a savepoint, which stays. Savepoints behind it are gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_rollback(tx: *mut cairn_array_tx, savepoint: u64) -> cairn_status {
    done(|| {
        in_tx(tx, |state: &mut ArrayTxState| {
            let savepoint = state.savepoint(savepoint)?;
            Ok(state.tx.rollback_to(savepoint)?)
        })
    })
}

/// Commits what was logged behind a savepoint, whatever becomes of the rest. It must not write what was logged before. `number`, which may be null, gets its place among all
/// commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_nested_top(
    tx: *mut cairn_array_tx,
    savepoint: u64,
    number: *mut u64,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let number = unsafe { Out::wanted(number) };
        number.set(in_tx(tx, |state: &mut ArrayTxState| {
            let savepoint = state.savepoint(savepoint)?;
            Ok(state.tx.nested_top(savepoint)?)
        })?);
        Ok(())
    })
}

/// Makes all that was logged durable and visible, as a whole. The transaction ends whatever this returns, but for `CAIRN_BUSY`, `CAIRN_CLOSED` and, on another thread than began
/// it, `CAIRN_INVALID`. `number`, which may be null, gets its place among all commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_commit(tx: *mut cairn_array_tx, number: *mut u64) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let number = unsafe { Out::wanted(number) };
        number.set(end(tx)?.commit()?);
        Ok(())
    })
}

/// Gives everything up: nothing changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_tx_abort(tx: *mut cairn_array_tx) -> cairn_status {
    done(|| take(tx, |_: &mut HeldArrayTx| Ok(())).map(drop))
}

/// Everything committed is persistent in the files, and no log is needed any more. Three barriers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_checkpoint(array: *mut cairn_array) -> cairn_status {
    done(|| with(array, |open: &Arc<OpenArray>| Ok(open.array.checkpoint()?)))
}

/// Counts. `size` is `sizeof(cairn_array_counts)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_get_counts(
    array: *mut cairn_array,
    counts: *mut cairn_array_counts,
    size: usize,
) -> cairn_status {
    done(|| {
        let now = with(array, |open: &Arc<OpenArray>| {
            let (status, stats) = (open.array.status(), open.array.stats());
            Ok(cairn_array_counts {
                size: 0,
                members: status.members as u64,
                stripe: status.stripe_bytes,
                transactions: status.transactions.into(),
                free: status.free as u64,
                last: status.last,
                retired: status.retired,
                barriers: stats.drains,
                syncs: stats.syncs,
            })
        })?;
        // SAFETY: the caller's.
        unsafe { fill(counts, size, now, "counts") }
    })
}

/// What opening the array found; of a new one all is zero. `size` is `sizeof(cairn_array_found)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_array_get_found(
    array: *mut cairn_array,
    found: *mut cairn_array_found,
    size: usize,
) -> cairn_status {
    done(|| {
        let then = with(array, |open: &Arc<OpenArray>| {
            let found = open.array.recovered();
            let (applied, dropped, in_doubt) = (found.applied, found.dropped, found.in_doubt);
            Ok(cairn_array_found { size: 0, applied, dropped, lost: found.lost.len() as u64, in_doubt })
        })?;
        // SAFETY: the caller's.
        unsafe { fill(found, size, then, "found") }
    })
}

/// An error if a range goes beyond its file: before there is memory for it.
fn check_end(open: &OpenArray, file: &eaw::array::File, offset: u64, len: usize) -> Result<()> {
    Ok(open.array.read(file, offset.saturating_add(len as u64), &mut [])?)
}

/// Asks the array of a transaction.
fn with_array_of<R>(tx: *const cairn_array_tx, body: impl FnOnce(&OpenArray) -> Result<R>) -> Result<R> {
    with(tx, |held: &HeldArrayTx| body(held.owner()))
}
