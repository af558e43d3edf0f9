//! The counter of `c/sync.c`.

use std::ffi::c_ulong;

unsafe extern "C" {
    safe fn peers_syncs() -> c_ulong;
}

pub fn syncs() -> u64 {
    peers_syncs()
}
