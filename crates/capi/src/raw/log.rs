//! Logs: records that any number of threads append to at once, durable in order.
//!
//! All threads may use one log at once. A reservation or an iterator is used by one thread at a time; another one that comes in between gets `CAIRN_BUSY`. A log is
//! closed last, when no other thread is in a call with it.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use log::{Lsn, Tail};

use super::held::log::{HeldIter, HeldReservation};
use super::{Growing, Out, bytes, fill, options, path};
use crate::call::{call, done};
use crate::code::cairn_code::{CAIRN_END, CAIRN_OK};
use crate::code::cairn_status;
use crate::handles::{alone, give, take, with};
use crate::log_side::OpenLog;
use crate::options::{cairn_log_counts, cairn_log_found, cairn_log_options, domain};
use crate::types::log::{cairn_iter, cairn_log, cairn_record, cairn_reservation};

// SAFETY: integers alone, without padding: their sizes are asserted beside them. The same for those below.
unsafe impl Growing for cairn_log_options {}
// SAFETY: as above.
unsafe impl Growing for cairn_log_counts {}
// SAFETY: as above.
unsafe impl Growing for cairn_log_found {}

/// Sets all options to their defaults. `size` is `sizeof(cairn_log_options)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_options_init(options: *mut cairn_log_options, size: usize) -> cairn_status {
    // SAFETY: the caller's.
    done(|| unsafe { fill(options, size, cairn_log_options::default(), "options") })
}

/// Makes a log in a file that does not exist yet. `options` may be null: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_create(
    path: *const c_char,
    options: *const cairn_log_options,
    log: *mut *mut cairn_log,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (path, options, log) = unsafe { (self::path(path)?, self::options(options)?, Out::new(log, "log")?) };
        log.set(OpenLog::give(options.options()?.create(path)?, None)?);
        Ok(())
    })
}

/// Opens a log, and recovers it if it was not closed. `options` may be null: the defaults. What was found is told by `cairn_log_get_found`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_open(
    path: *const c_char,
    options: *const cairn_log_options,
    log: *mut *mut cairn_log,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (path, given, log) = unsafe { (self::path(path)?, self::options(options)?, Out::new(log, "log")?) };
        let options = given.options()?;
        let (opened, found) = if given.read_only == 0 { options.open(path)? } else { options.open_read_only(path)? };
        log.set(OpenLog::give(opened, Some(found))?);
        Ok(())
    })
}

/// Forces all there is, says on media where the log ends, and closes it. The handle is closed whatever this returns, but for `CAIRN_BUSY`: then a reservation or an
/// iterator is open, or a thread is in a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_close(log: *mut cairn_log) -> cairn_status {
    done(|| OpenLog::close(log))
}

/// Appends a record and forces it by the policy: with a frequency of 1 it is durable when this returns. `lsn`, which may be null, gets its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_append(
    log: *mut cairn_log,
    bytes: *const c_void,
    len: usize,
    lsn: *mut u64,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (bytes, lsn) = unsafe { (self::bytes(bytes, len, "bytes")?, Out::wanted(lsn)) };
        lsn.set(with(log, |open: &Arc<OpenLog>| Ok(open.log.append(bytes)?))?.get());
        Ok(())
    })
}

/// Takes a place for a record of `len` bytes. The caller fills it through `bytes`, at leisure and from any thread, and completes or discards it: later records become
/// durable only behind it, and the log does not close before. `lsn` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_reserve(
    log: *mut cairn_log,
    len: usize,
    reservation: *mut *mut cairn_reservation,
    bytes: *mut *mut c_void,
    lsn: *mut u64,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (reservation, bytes, lsn) =
            unsafe { (Out::new(reservation, "reservation")?, Out::new(bytes, "bytes")?, Out::wanted(lsn)) };
        let handle = give(with(log, |open: &Arc<OpenLog>| HeldReservation::new(open, len))?)?;
        // The address is taken where the reservation stays, so that it is good until that is taken out again.
        let (at, number) = alone::<HeldReservation, _, _>(handle, |place: &mut log::Reservation<'static>| {
            Ok((place.as_mut_ptr(), place.lsn().get()))
        })?;
        bytes.set(at.cast());
        lsn.set(number);
        reservation.set(handle);
        Ok(())
    })
}

/// The record is whole: durable by the next force. No barrier. The reservation ends, and its bytes are not to be changed any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_reservation_complete(reservation: *mut cairn_reservation) -> cairn_status {
    done(|| take(reservation, |_: &mut HeldReservation| Ok(()))?.complete().map(|_| ()))
}

/// Gives the place up: readers skip it. The reservation ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_reservation_discard(reservation: *mut cairn_reservation) -> cairn_status {
    done(|| take(reservation, |_: &mut HeldReservation| Ok(())).map(drop))
}

/// Forces by the policy: with a frequency of 1 everything through `lsn` is durable when this returns, else whenever so many records have gathered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_force(log: *mut cairn_log, lsn: u64) -> cairn_status {
    done(|| with(log, |open: &Arc<OpenLog>| Ok(open.log.force(Lsn::new(lsn))?)))
}

/// Everything through `lsn` is durable when this returns, whatever the policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_force_now(log: *mut cairn_log, lsn: u64) -> cairn_status {
    done(|| with(log, |open: &Arc<OpenLog>| Ok(open.log.force_now(Lsn::new(lsn))?)))
}

/// Through where everything is durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_forced(log: *mut cairn_log, lsn: *mut u64) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let lsn = unsafe { Out::new(lsn, "lsn")? };
        lsn.set(with(log, |open: &Arc<OpenLog>| Ok(open.log.forced()))?.get());
        Ok(())
    })
}

/// Reads the durable records that are not discarded, from the number `from` on. What the iterator has not passed is not reclaimed before it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_iterate(log: *mut cairn_log, from: u64, iter: *mut *mut cairn_iter) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let iter = unsafe { Out::new(iter, "iter")? };
        iter.set(give(with(log, |open: &Arc<OpenLog>| Ok(HeldIter::new(open, Lsn::new(from))))?)?);
        Ok(())
    })
}

/// The next record. `CAIRN_END` if none is durable by now; later there may be one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_iter_next(iter: *mut cairn_iter, record: *mut cairn_record) -> cairn_status {
    call(|| {
        // SAFETY: the caller's.
        let out = unsafe { Out::new(record, "record")? };
        let found = alone::<HeldIter, _, _>(iter, |records: &mut log::Iter<'static>| {
            Ok(records.next()?.map(|record| cairn_record {
                lsn: record.lsn.get(),
                bytes: record.payload.as_ptr().cast(),
                len: record.payload.len(),
            }))
        })?;
        Ok(found.map_or(CAIRN_END, |record| {
            out.set(record);
            CAIRN_OK
        }))
    })
}

/// Ends reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_iter_close(iter: *mut cairn_iter) -> cairn_status {
    done(|| take(iter, |_: &mut HeldIter| Ok(())).map(drop))
}

/// The record is not needed any more. Its space is used again once all before it is discarded too; until then a crash may bring it back. No barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_discard(log: *mut cairn_log, lsn: u64) -> cairn_status {
    done(|| with(log, |open: &Arc<OpenLog>| Ok(open.log.discard(Lsn::new(lsn))?)))
}

/// No record through `lsn` is needed any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_truncate_to(log: *mut cairn_log, lsn: u64) -> cairn_status {
    done(|| with(log, |open: &Arc<OpenLog>| Ok(open.log.truncate_to(Lsn::new(lsn))?)))
}

/// Forces all there is, discards it, and makes that persistent: none of it ever comes back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_truncate_all(log: *mut cairn_log) -> cairn_status {
    done(|| with(log, |open: &Arc<OpenLog>| Ok(open.log.truncate_all()?)))
}

/// Makes persistent what was discarded. Two barriers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_reclaim(log: *mut cairn_log) -> cairn_status {
    done(|| with(log, |open: &Arc<OpenLog>| Ok(open.log.reclaim()?)))
}

/// Makes room for at least `by` more bytes, while others append and read. `capacity`, which may be null, gets the bytes there are then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_grow(log: *mut cairn_log, by: u64, capacity: *mut u64) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let capacity = unsafe { Out::wanted(capacity) };
        capacity.set(with(log, |open: &Arc<OpenLog>| Ok(open.log.grow(by)?))?);
        Ok(())
    })
}

/// Counts. `size` is `sizeof(cairn_log_counts)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_get_counts(
    log: *mut cairn_log,
    counts: *mut cairn_log_counts,
    size: usize,
) -> cairn_status {
    done(|| {
        let now = with(log, |open: &Arc<OpenLog>| {
            let (stats, pool) = (open.log.stats(), open.log.pool().stats());
            Ok(cairn_log_counts {
                size: 0,
                head: stats.head.get(),
                next: stats.next.get(),
                forced: stats.forced.get(),
                live_bytes: stats.live_bytes,
                capacity: stats.capacity,
                segment_bytes: stats.segment_bytes,
                growths: stats.growths,
                reclaims: stats.reclaims,
                epoch: stats.epoch.into(),
                barriers: pool.drains,
                syncs: pool.syncs,
                domain: domain(open.log.pool().domain()),
            })
        })?;
        // SAFETY: the caller's.
        unsafe { fill(counts, size, now, "counts") }
    })
}

/// What opening the log found; of a new one all is zero. `size` is `sizeof(cairn_log_found)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_get_found(
    log: *mut cairn_log,
    found: *mut cairn_log_found,
    size: usize,
) -> cairn_status {
    done(|| {
        let then = with(log, |open: &Arc<OpenLog>| {
            Ok(open.found.map_or_else(cairn_log_found::default, |found| cairn_log_found {
                size: 0,
                records: found.records,
                bytes: found.bytes,
                head: found.head.get(),
                next: found.next.get(),
                in_doubt: if let Tail::InDoubt { lsn, .. } = found.tail { lsn.get() } else { 0 },
                was_closed: found.was_closed.into(),
            }))
        })?;
        // SAFETY: the caller's.
        unsafe { fill(found, size, then, "found") }
    })
}
