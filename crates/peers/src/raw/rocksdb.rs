//! The functions of `c/rocksdb.c`.

use std::ffi::{c_char, c_int};
use std::path::Path;

use super::session::{CStore, Calls, Raw, calls};
use crate::Result;
use crate::store::Room;

unsafe extern "C" {
    fn rk_open(dir: *const c_char, kind: c_int, cache_bytes: usize, message: *mut c_char, room: usize) -> Raw;
}

static CALLS: Calls = calls!("rocksdb", "rk");

/// As `c/rocksdb.c` numbers them.
#[derive(Clone, Copy)]
pub enum Kind {
    Plain,
    Optimistic,
    Locking,
}

pub fn open(dir: &Path, room: Room, kind: Kind) -> Result<CStore> {
    // All of it fits into the cache of blocks, as it does into the page cache of others.
    let cache_bytes = room.bytes as usize * 2 + (64 << 20);
    // SAFETY: all threads may use a database at once; the C side reads a string, and writes one of at most that length.
    unsafe { CStore::open(&CALLS, dir, |name, message, room| rk_open(name, kind as c_int, cache_bytes, message, room)) }
}
