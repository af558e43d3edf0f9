//! The functions of `c/bdb.c`.

use std::ffi::c_char;
use std::path::Path;

use super::session::{CStore, Calls, Raw, calls};
use crate::Result;
use crate::store::Room;

unsafe extern "C" {
    fn bk_open(dir: *const c_char, cache_bytes: usize, message: *mut c_char, room: usize) -> Raw;
}

static CALLS: Calls = calls!("bdb", "bk");

pub fn open(dir: &Path, room: Room) -> Result<CStore> {
    // All pages fit, half empty as pages of a tree are after splits.
    let cache_bytes = room.bytes as usize * 3 + (64 << 20);
    // SAFETY: the C side opens with DB_THREAD, reads a string, and writes one of at most that length.
    unsafe { CStore::open(&CALLS, dir, |name, message, room| bk_open(name, cache_bytes, message, room)) }
}
