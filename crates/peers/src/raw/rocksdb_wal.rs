//! The functions of `c/rocksdb_wal.cc`. Those of the Cairn log that they call are crate `capi`'s.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::ptr::NonNull;

use cairn as _;

use super::{c_path, text};
use crate::{Error, Result};

#[repr(C)]
struct Database {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn rw_open(
        dir: *const c_char,
        wal: c_int,
        addresses: *const c_char,
        secret: *const c_char,
        secret_bytes: usize,
        log_bytes: u64,
        warm_bytes: usize,
        message: *mut c_char,
        room: usize,
    ) -> *mut Database;
    fn rw_close(database: *mut Database);
    fn rw_put(
        database: *mut Database,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        bytes: usize,
        message: *mut c_char,
        room: usize,
    ) -> c_int;
    fn rw_get(
        database: *mut Database,
        key: *const c_char,
        key_bytes: usize,
        out: *mut c_char,
        out_room: usize,
        bytes: *mut usize,
        message: *mut c_char,
        room: usize,
    ) -> c_int;
    fn rw_costs(database: *mut Database, barriers: *mut u64, syncs: *mut u64, domain: *mut u64) -> c_int;
}

const LIBRARY: &str = "rocksdb";
/// Bytes of a message, its end included.
const ROOM: usize = 512;

/// An open database.
pub struct Handle(NonNull<Database>);

// SAFETY: all threads may use a database at once; the C side keeps nothing else.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed only here, when nothing borrows it.
        unsafe { rw_close(self.0.as_ptr()) }
    }
}

impl Handle {
    pub fn open(
        dir: &Path,
        wal: c_int,
        (addresses, secret): (&[String], &[u8]),
        log_bytes: u64,
        warm_bytes: usize,
    ) -> Result<Self> {
        let (name, addresses) = (c_path(LIBRARY, dir)?, c_path(LIBRARY, addresses.join(",").as_ref())?);
        let mut message = [0; ROOM];
        // SAFETY: both strings end in a zero byte; the secret and the message have their lengths.
        let database = unsafe {
            let (name, addresses, message) = (name.as_ptr(), addresses.as_ptr(), message.as_mut_ptr());
            rw_open(name, wal, addresses, secret.as_ptr().cast(), secret.len(), log_bytes, warm_bytes, message, ROOM)
        };
        NonNull::new(database).map(Self).ok_or_else(|| refused(&message).at(dir))
    }

    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut message = [0; ROOM];
        // SAFETY: the database is open; both are read within their lengths; the message has its room.
        let code = unsafe {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            rw_put(self.0.as_ptr(), key_at, key.len(), value_at, value.len(), message.as_mut_ptr(), ROOM)
        };
        if code == 0 { Ok(()) } else { Err(refused(&message)) }
    }

    pub fn get(&self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let (mut message, mut bytes) = ([0; ROOM], 0);
        // SAFETY: as above; `out` is written within its length.
        let code = unsafe {
            let (key_at, out_at) = (key.as_ptr().cast(), out.as_mut_ptr().cast());
            let (room, message) = (out.len(), message.as_mut_ptr());
            rw_get(self.0.as_ptr(), key_at, key.len(), out_at, room, &raw mut bytes, message, ROOM)
        };
        if code == 0 { Ok((bytes != usize::MAX).then_some(bytes)) } else { Err(refused(&message)) }
    }

    /// Barriers, syncs and domain.
    pub fn costs(&self) -> Option<[u64; 3]> {
        let [mut barriers, mut syncs, mut domain] = [0; 3];
        // SAFETY: the database is open; the places are there.
        let code = unsafe { rw_costs(self.0.as_ptr(), &raw mut barriers, &raw mut syncs, &raw mut domain) };
        (code == 0).then_some([barriers, syncs, domain])
    }
}

#[cold]
fn refused(message: &[c_char; ROOM]) -> Error {
    // SAFETY: it was zero, and the C side ends it with one.
    Error::of(LIBRARY, 0, unsafe { text(message.as_ptr()) })
}
