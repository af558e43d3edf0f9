//! What C names of a store.

use std::ffi::c_void;

/// An open store.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_kv {
    opaque: [u8; 0],
}

/// A key and its value, where they stand: not to be changed, and there until the transaction that showed them writes or ends.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cairn_pair {
    /// The key.
    pub key: *const c_void,
    /// Its bytes.
    pub key_len: usize,
    /// The value.
    pub value: *const c_void,
    /// Its bytes.
    pub value_len: usize,
}

/// A change, for `cairn_kv_write`.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cairn_change {
    /// The key.
    pub key: *const c_void,
    /// Its bytes.
    pub key_len: usize,
    /// What it is set to.
    pub value: *const c_void,
    /// Bytes of the value.
    pub value_len: usize,
    /// The key is removed instead.
    pub remove: bool,
}

impl cairn_pair {
    pub(crate) fn of(key: &[u8], value: &[u8]) -> Self {
        Self { key: key.as_ptr().cast(), key_len: key.len(), value: value.as_ptr().cast(), value_len: value.len() }
    }
}
