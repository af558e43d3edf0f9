//! Stores: ordered keys and their values, in serializable transactions of many writers.
//!
//! All threads may use one store at once. It is closed last, when no other thread is in a call with it and no transaction is open.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use kv::Batch;

use super::{Growing, Out, bytes, fill, options, path};
use crate::call::{call, done};
use crate::code::cairn_code::{CAIRN_END, CAIRN_INVALID, CAIRN_OK, CAIRN_SHORT};
use crate::code::cairn_status;
use crate::failure::Failure;
use crate::handles::with;
use crate::kv_side::OpenStore;
use crate::options::{cairn_kv_counts, cairn_kv_options, domain};
use crate::types::kv::{cairn_change, cairn_kv};

// SAFETY: integers alone, without padding: their sizes are asserted beside them.
unsafe impl Growing for cairn_kv_options {}
// SAFETY: as above.
unsafe impl Growing for cairn_kv_counts {}

/// Sets all options to their defaults. `size` is `sizeof(cairn_kv_options)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_options_init(options: *mut cairn_kv_options, size: usize) -> cairn_status {
    // SAFETY: the caller's.
    done(|| unsafe { fill(options, size, cairn_kv_options::default(), "options") })
}

/// Makes a store in a file that does not exist yet. `options` may be null: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_create(
    path: *const c_char,
    options: *const cairn_kv_options,
    store: *mut *mut cairn_kv,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (path, options, store) = unsafe { (self::path(path)?, self::options(options)?, Out::new(store, "store")?) };
        store.set(OpenStore::give(options.options()?.create(path)?)?);
        Ok(())
    })
}

/// Opens a store, and recovers it if it was not closed. `options` may be null: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_open(
    path: *const c_char,
    options: *const cairn_kv_options,
    store: *mut *mut cairn_kv,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (path, given, store) = unsafe { (self::path(path)?, self::options(options)?, Out::new(store, "store")?) };
        let options = given.options()?;
        store.set(OpenStore::give(if given.read_only == 0 {
            options.open(path)?
        } else {
            options.open_read_only(path)?
        })?);
        Ok(())
    })
}

/// Makes a checkpoint, and closes the store. The handle is closed whatever this returns, but for `CAIRN_BUSY`: then a transaction is open, or a thread is in a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_close(store: *mut cairn_kv) -> cairn_status {
    done(|| OpenStore::close(store))
}

/// Copies the key's value to `buffer`, which has room for `room` bytes; `len`, which may be null, gets its length. `CAIRN_END` if the key has no value; `CAIRN_SHORT`
/// if it has more bytes than there is room for: nothing is copied, and `len` says how many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_get(
    store: *mut cairn_kv,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    room: usize,
    len: *mut usize,
) -> cairn_status {
    call(|| {
        // SAFETY: the caller's.
        let (key, len) = unsafe { (bytes(key, key_len, "key")?, Out::wanted(len)) };
        if buffer.is_null() && room > 0 {
            return Err(Failure::null("buffer"));
        }
        with(store, |open: &Arc<OpenStore>| {
            open.store.view(key, |value| {
                let Some(value) = value else { return Ok(CAIRN_END) };
                len.set(value.len());
                if value.len() > room {
                    let message = format!("the value has {} bytes, the buffer {room}", value.len());
                    return Err(Failure::new(CAIRN_SHORT, message));
                }
                if !value.is_empty() {
                    // SAFETY: the caller's, with room for them; a store's memory is nowhere in it.
                    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len()) };
                }
                Ok(CAIRN_OK)
            })?
        })
    })
}

/// Sets the key's value, durably by the store's options; waits for a transaction that writes the key. `had`, which may be null, gets whether it had one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_put(
    store: *mut cairn_kv,
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
        had.set(with(store, |open: &Arc<OpenStore>| Ok(open.store.put(key, value)?))?);
        Ok(())
    })
}

/// Removes the key, durably by the store's options. `had`, which may be null, gets whether it had a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_delete(
    store: *mut cairn_kv,
    key: *const c_void,
    key_len: usize,
    had: *mut bool,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (key, had) = unsafe { (bytes(key, key_len, "key")?, Out::wanted(had)) };
        had.set(with(store, |open: &Arc<OpenStore>| Ok(open.store.delete(key)?))?);
        Ok(())
    })
}

/// Makes all of `count` changes, or none of them, in one transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_write(
    store: *mut cairn_kv,
    changes: *const cairn_change,
    count: usize,
) -> cairn_status {
    done(|| {
        if changes.is_null() && count > 0 {
            return Err(Failure::null("changes"));
        }
        if count > isize::MAX as usize / size_of::<cairn_change>() {
            return Err(Failure::new(CAIRN_INVALID, format!("there cannot be {count} changes")));
        }
        let mut batch = Batch::new();
        for at in 0..count {
            // SAFETY: the caller's, one of `count`. `remove` may be any byte, so no whole struct is read.
            let (key, value, remove) = unsafe {
                let change = changes.add(at);
                let (key, key_len) = ((&raw const (*change).key).read(), (&raw const (*change).key_len).read());
                let (value, value_len) = ((&raw const (*change).value).read(), (&raw const (*change).value_len).read());
                let remove = (&raw const (*change).remove).cast::<u8>().read() != 0;
                (bytes(key, key_len, "a key")?, bytes(value, value_len, "a value")?, remove)
            };
            if remove {
                batch.delete(key)
            } else {
                batch.put(key, value)
            };
        }
        with(store, |open: &Arc<OpenStore>| Ok(open.store.write(&batch)?))
    })
}

/// Makes every commit that has returned durable, if the store's options leave some at risk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_sync(store: *mut cairn_kv) -> cairn_status {
    done(|| with(store, |open: &Arc<OpenStore>| Ok(open.store.sync()?)))
}

/// Makes a checkpoint now: an open then has nothing to read, and what is not needed any more is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_checkpoint(store: *mut cairn_kv) -> cairn_status {
    done(|| with(store, |open: &Arc<OpenStore>| Ok(open.store.checkpoint()?)))
}

/// Counts. `size` is `sizeof(cairn_kv_counts)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_get_counts(
    store: *mut cairn_kv,
    counts: *mut cairn_kv_counts,
    size: usize,
) -> cairn_status {
    done(|| {
        let now = with(store, |open: &Arc<OpenStore>| {
            let stats = open.store.stats();
            Ok(cairn_kv_counts {
                size: 0,
                entries: stats.entries,
                commits: stats.commits,
                conflicts: stats.conflicts,
                active: stats.active as u64,
                at_risk: open.store.at_risk(),
                index_bytes: stats.index_bytes,
                file_bytes: stats.file_bytes,
                live_bytes: stats.live_bytes,
                checkpoints: stats.checkpoints,
                barriers: stats.pool.drains,
                syncs: stats.pool.syncs,
                domain: domain(open.store.effective_durability()),
            })
        })?;
        // SAFETY: the caller's.
        unsafe { fill(counts, size, now, "counts") }
    })
}
