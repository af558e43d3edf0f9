//! What C names of a log.

use std::ffi::c_void;

/// An open log.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_log {
    opaque: [u8; 0],
}

/// A place in a log for one record.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_reservation {
    opaque: [u8; 0],
}

/// Reads a log.
#[allow(non_camel_case_types, reason = "its name in C")]
#[repr(C)]
pub struct cairn_iter {
    opaque: [u8; 0],
}

/// A record where it stands.
#[allow(non_camel_case_types, reason = "its name in C")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cairn_record {
    /// Its number: the first record of a log has 1, each further one the next. 0 stands before the first.
    pub lsn: u64,
    /// What was appended: not to be changed, and there until the iterator goes on or is closed.
    pub bytes: *const c_void,
    /// How many bytes.
    pub len: usize,
}
