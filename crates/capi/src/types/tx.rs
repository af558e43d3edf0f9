//! What C names of a transaction on a store.

use std::ffi::c_void;

use crate::code::cairn_status;

/// A transaction.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_tx {
    opaque: [u8; 0],
}

/// Goes through a range of keys.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_scan {
    opaque: [u8; 0],
}

/// What a transaction may see of others.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum cairn_isolation {
    /// As if transactions had run one after the other, in an order that agrees with real time.
    CAIRN_SERIALIZABLE = 0,
    /// One committed state, the same to the end; of two that change one key only the first commits. For reading alone nothing else is needed.
    CAIRN_SNAPSHOT = 1,
}

/// Which keys, and in which direction.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cairn_range {
    /// The smallest key; null: from the first one on.
    pub from: *const c_void,
    /// Its bytes.
    pub from_len: usize,
    /// What is before this one; null: to the last one.
    pub to: *const c_void,
    /// Its bytes.
    pub to_len: usize,
    /// Not 0: all keys that begin with `from`; then there is no `to`.
    pub prefix: u32,
    /// Not 0: the largest key first.
    pub reverse: u32,
}

/// What runs in a transaction: see `cairn_kv_transact`.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type cairn_body = Option<unsafe extern "C-unwind" fn(tx: *mut cairn_tx, context: *mut c_void) -> cairn_status>;
