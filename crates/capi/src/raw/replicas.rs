//! Several machines: the replicas of a log, which a program leads, alone or for a store.
//!
//! Each other machine serves a replica, with `cairn log-replica` or, of a store, `cairn kv follow`. The program names the replicas once, in a list, and makes or takes over
//! the log with it; the list can be freed then. What is appended or committed is durable when a write quorum of the replicas has it. A program that begins to
//! lead a log takes a record's number for itself.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use log::fabric::{Secret, Tls};
use log::{FlushOrder, ReplicaHealth};

use super::{Out, bytes, options, path, text};
use crate::call::{call, done};
use crate::code::cairn_code::{CAIRN_END, CAIRN_INVALID, CAIRN_OK};
use crate::code::cairn_status;
use crate::failure::{Failure, Result};
use crate::handles::{give, take, with};
use crate::kv_side::OpenStore;
use crate::log_side::OpenLog;
use crate::options::{cairn_kv_options, cairn_log_options};
use crate::replicas_side::HeldReplicas;
use crate::types::kv::cairn_kv;
use crate::types::log::cairn_log;
use crate::types::replicas::{cairn_order, cairn_replica_state, cairn_replicas};

/// An empty list. Free it when the log or store is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_new(replicas: *mut *mut cairn_replicas) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let replicas = unsafe { Out::new(replicas, "replicas")? };
        replicas.set(give(HeldReplicas::default())?);
        Ok(())
    })
}

/// Frees it. What was opened with it stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_free(replicas: *mut cairn_replicas) -> cairn_status {
    done(|| take(replicas, |_: &mut HeldReplicas| Ok(())).map(drop))
}

/// The program's own replica is in this file. Without one its log is in memory, and only the others are durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_local(replicas: *mut cairn_replicas, path: *const c_char) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let path = unsafe { self::path(path)? };
        HeldReplicas::change(replicas, |named| {
            named.replicas = named.replicas.clone().local(path);
            Ok(())
        })
    })
}

/// A replica is served at this address, host and port.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_at(replicas: *mut cairn_replicas, address: *const c_char) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let address = unsafe { text(address, "the address")? };
        HeldReplicas::change(replicas, |named| {
            named.replicas = named.replicas.clone().at(address);
            Ok(())
        })
    })
}

/// So many replicas must have what is durable, of a new log; all of them if this is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_quorum(replicas: *mut cairn_replicas, count: u32) -> cairn_status {
    done(|| {
        HeldReplicas::change(replicas, |named| {
            named.replicas = named.replicas.clone().write_quorum(count);
            Ok(())
        })
    })
}

/// All machines know each other by these random bytes, 16 or more: see `cairn help log-replica`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_secret(
    replicas: *mut cairn_replicas,
    secret: *const c_void,
    len: usize,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let secret = Secret::new(unsafe { bytes(secret, len, "the secret")? }).map_err(log::Error::from)?;
        HeldReplicas::change(replicas, |named| {
            named.trust.secret = Some(secret);
            Ok(())
        })
    })
}

/// All machines know each other by certificates, and encrypt: this one's and those up to the root, its private key, and the roots that the others' lead to. PEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_certificates(
    replicas: *mut cairn_replicas,
    chain: *const c_void,
    chain_len: usize,
    key: *const c_void,
    key_len: usize,
    roots: *const c_void,
    roots_len: usize,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (chain, key, roots) = unsafe {
            (bytes(chain, chain_len, "chain")?, bytes(key, key_len, "key")?, bytes(roots, roots_len, "roots")?)
        };
        let tls = Tls::from_pem(chain, key, roots).map_err(log::Error::from)?;
        HeldReplicas::change(replicas, |named| {
            named.trust.tls = Some(tls);
            Ok(())
        })
    })
}

/// A replica that has not acknowledged for so many microseconds is given up; two seconds if this is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_timeout(replicas: *mut cairn_replicas, us: u64) -> cairn_status {
    done(|| {
        HeldReplicas::change(replicas, |named| {
            named.replicas = named.replicas.clone().timeout(Duration::from_micros(us));
            Ok(())
        })
    })
}

/// When the program's own replica is flushed: one of `enum cairn_order`; `CAIRN_BESIDE` if this is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_order(replicas: *mut cairn_replicas, order: u32) -> cairn_status {
    use cairn_order::{CAIRN_AFTER, CAIRN_BEFORE, CAIRN_BESIDE};
    done(|| {
        let order = match order {
            o if o == CAIRN_BESIDE as u32 => FlushOrder::Beside,
            o if o == CAIRN_AFTER as u32 => FlushOrder::After,
            o if o == CAIRN_BEFORE as u32 => FlushOrder::Before,
            other => return Err(Failure::new(CAIRN_INVALID, format!("order is {other}: one of enum cairn_order"))),
        };
        HeldReplicas::change(replicas, |named| {
            named.replicas = named.replicas.clone().order(order);
            Ok(())
        })
    })
}

/// Opens although a record may be lost that was acknowledged, which is `CAIRN_LOST` otherwise: for replicas that will never come back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_accept_doubt(replicas: *mut cairn_replicas) -> cairn_status {
    done(|| {
        HeldReplicas::change(replicas, |named| {
            named.replicas = named.replicas.clone().accept_doubt(true);
            Ok(())
        })
    })
}

/// The replica with this id is lost for good, with its medium: a new, empty one of those that are named takes its place when the log is opened, for which all the others must be there. Once for each. Messages name
/// ids, in hexadecimal. A replica that was said to be lost must never be served again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_replicas_lost(replicas: *mut cairn_replicas, id: u64) -> cairn_status {
    done(|| {
        HeldReplicas::change(replicas, |named| {
            named.replicas = named.replicas.clone().lost(id);
            Ok(())
        })
    })
}

/// Makes a log with these replicas, all of which are there and empty. `options` may be null: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_create_replicated(
    replicas: *const cairn_replicas,
    options: *const cairn_log_options,
    log: *mut *mut cairn_log,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (options, log) = unsafe { (for_leaders(options)?, Out::new(log, "log")?) };
        let made = options.create_replicated(&HeldReplicas::named(replicas)?)?;
        log.set(OpenLog::give(made, None)?);
        Ok(())
    })
}

/// Takes a log over: the previous leader is fenced, replicas are repaired, nothing that was acknowledged is missing. `options` may be null: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_open_replicated(
    replicas: *const cairn_replicas,
    options: *const cairn_log_options,
    log: *mut *mut cairn_log,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (options, log) = unsafe { (for_leaders(options)?, Out::new(log, "log")?) };
        let (opened, found) = options.open_replicated(&HeldReplicas::named(replicas)?)?;
        log.set(OpenLog::give(opened, Some(found))?);
        Ok(())
    })
}

/// `CAIRN_OK` as long as this program leads the log, or has it for itself; `CAIRN_FENCED`, `CAIRN_QUORUM_LOST`. Forces and appends say the same by themselves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_check_leading(log: *mut cairn_log) -> cairn_status {
    done(|| with(log, |open: &Arc<OpenLog>| Ok(open.log.check_leading()?)))
}

/// Takes a replica in while the log is used: one that was given up and is there again, or a new, empty one, which is served at `address`. It counts when this returns, and has the whole log. With a
/// new one the log has a replica more. The write quorum stays as it is. `trust` is a list that has the secret or the certificates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_join(
    log: *mut cairn_log,
    address: *const c_char,
    trust: *const cairn_replicas,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (address, trust) = (unsafe { text(address, "the address")? }, HeldReplicas::trust(trust)?);
        with(log, |open: &Arc<OpenLog>| Ok(open.log.join(address, &trust)?))
    })
}

/// The replica with this id is none of the log's any more: it is lost for good, or not needed. `CAIRN_INVALID` if it is the program's own, if without it there are fewer than the write quorum, or if
/// there is no such replica; `CAIRN_NO_QUORUM` if too few of those that would be left are live. Then nothing is changed. A replica that was removed must not be served again as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_remove(log: *mut cairn_log, id: u64) -> cairn_status {
    done(|| {
        with(log, |open: &Arc<OpenLog>| {
            let ids = open.log.members().0;
            if !ids.is_empty() && !ids.contains(&id) {
                let ids = ids.iter().map(|id| format!("{id:x}")).collect::<Vec<_>>().join(", ");
                return Err(Failure::new(
                    CAIRN_INVALID,
                    format!("{id:x} is none of the log's replicas: they are {ids}"),
                ));
            }
            Ok(open.log.remove(id)?)
        })
    })
}

/// The replica of this number, from 0 on, of all that count, in no order: its id, how it is doing (one of `enum cairn_replica_state`), and through which record it has all, 0 if that is not known: the
/// program's own through the last that is durable. `CAIRN_END` if there are not so many; a log without other replicas has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_log_replica(
    log: *mut cairn_log,
    number: u32,
    id: *mut u64,
    state: *mut u32,
    through: *mut u64,
) -> cairn_status {
    use cairn_replica_state::{CAIRN_REPLICA_AWAY, CAIRN_REPLICA_LIVE, CAIRN_REPLICA_OWN};
    call(|| {
        // SAFETY: the caller's.
        let (id, state, through) =
            unsafe { (Out::new(id, "id")?, Out::new(state, "state")?, Out::new(through, "through")?) };
        let found = with(log, |open: &Arc<OpenLog>| {
            let log = &open.log;
            let Some(one) = log.members().0.get(number as usize).copied() else { return Ok(None) };
            if log.own_replica() == Some(one) {
                return Ok(Some((one, CAIRN_REPLICA_OWN, log.forced().get())));
            }
            let known = log.replicas().into_iter().find(|(id, ..)| *id == one);
            Ok(Some(known.map_or((one, CAIRN_REPLICA_AWAY, 0), |(id, health, lsn)| {
                (
                    id,
                    if matches!(health, ReplicaHealth::Live) { CAIRN_REPLICA_LIVE } else { CAIRN_REPLICA_AWAY },
                    lsn.get(),
                )
            })))
        })?;
        let Some((one, how, lsn)) = found else { return Ok(CAIRN_END) };
        id.set(one);
        state.set(how as u32);
        through.set(lsn);
        Ok(CAIRN_OK)
    })
}

/// As `cairn_log_join`, of a store that leads; `CAIRN_INVALID` if it has no replicas. A follower whose store lacks what the log has no more needs a seed of the store first (`cairn kv seed`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_join(
    store: *mut cairn_kv,
    address: *const c_char,
    trust: *const cairn_replicas,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (address, trust) = (unsafe { text(address, "the address")? }, HeldReplicas::trust(trust)?);
        with(store, |open: &Arc<OpenStore>| of_leader(open.store.join(address, &trust)))
    })
}

/// As `cairn_log_remove`, of a store that leads; `CAIRN_INVALID` if it has no replicas.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_remove(store: *mut cairn_kv, id: u64) -> cairn_status {
    done(|| with(store, |open: &Arc<OpenStore>| of_leader(open.store.remove_copy(id))))
}

/// Makes a store of a log with these replicas, all of which are there and empty. A commit is durable when a write quorum has it, and the number of commits `at_risk` must be 0.
/// Options may be null: the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_create_replicated(
    path: *const c_char,
    replicas: *const cairn_replicas,
    log_options: *const cairn_log_options,
    options: *const cairn_kv_options,
    store: *mut *mut cairn_kv,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (path, log, options, store) =
            unsafe { (self::path(path)?, for_leaders(log_options)?, of_store(options)?, Out::new(store, "store")?) };
        store.set(OpenStore::give(options.replicated(&HeldReplicas::named(replicas)?, &log).create(path)?)?);
        Ok(())
    })
}

/// Takes a store over, with its log: what the log has and this file has not is repeated. With `CAIRN_FOREIGN` the file is of another log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_open_replicated(
    path: *const c_char,
    replicas: *const cairn_replicas,
    log_options: *const cairn_log_options,
    options: *const cairn_kv_options,
    store: *mut *mut cairn_kv,
) -> cairn_status {
    done(|| {
        // SAFETY: the caller's.
        let (path, log, options, store) =
            unsafe { (self::path(path)?, for_leaders(log_options)?, of_store(options)?, Out::new(store, "store")?) };
        store.set(OpenStore::give(options.replicated(&HeldReplicas::named(replicas)?, &log).open(path)?)?);
        Ok(())
    })
}

/// As `cairn_log_check_leading`, of a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kv_check_leading(store: *mut cairn_kv) -> cairn_status {
    done(|| with(store, |open: &Arc<OpenStore>| Ok(open.store.check_leading()?)))
}

/// A store without replicas is no place for such a change, as a log without them is none.
fn of_leader(done: kv::Result<()>) -> Result<()> {
    match done {
        Err(error @ kv::Error::NotReplicated) => Err(Failure::new(CAIRN_INVALID, error.to_string())),
        other => Ok(other?),
    }
}

/// Options of a log that is led.
///
/// # Safety
/// As [`options`].
unsafe fn for_leaders(given: *const cairn_log_options) -> Result<log::Options> {
    // SAFETY: the caller's.
    let given = unsafe { options(given)? };
    only_writing(given.read_only)?;
    given.options()
}

/// Options of a store that leads.
///
/// # Safety
/// As [`options`].
unsafe fn of_store(given: *const cairn_kv_options) -> Result<kv::Options> {
    // SAFETY: the caller's.
    let given = unsafe { options(given)? };
    only_writing(given.read_only)?;
    if given.at_risk > 0 {
        let message = "at_risk must be 0: commits of a store on several machines are durable when they return";
        return Err(Failure::new(CAIRN_INVALID, message));
    }
    given.options()
}

fn only_writing(read_only: u32) -> Result<()> {
    let message =
        "read_only must be 0: whoever leads writes; to look at a log's replicas use `cairn log cat --replica`";
    if read_only == 0 { Ok(()) } else { Err(Failure::new(CAIRN_INVALID, message)) }
}
