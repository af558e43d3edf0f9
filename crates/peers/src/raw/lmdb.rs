//! The functions of liblmdb that are used.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use super::{c_path, text};
use crate::store::{How, Room, Session, Store, Txn, Work, copy};
use crate::{Error, Result};

#[repr(C)]
struct Val {
    bytes: usize,
    at: *const c_void,
}

/// `MDB_env`, `MDB_txn`, `MDB_cursor`.
type Opaque = *mut c_void;

unsafe extern "C" {
    fn mdb_env_create(out: *mut Opaque) -> c_int;
    fn mdb_env_set_mapsize(env: Opaque, bytes: usize) -> c_int;
    fn mdb_env_set_maxreaders(env: Opaque, readers: c_uint) -> c_int;
    fn mdb_env_open(env: Opaque, path: *const c_char, flags: c_uint, mode: c_uint) -> c_int;
    fn mdb_env_close(env: Opaque);
    fn mdb_txn_begin(env: Opaque, parent: Opaque, flags: c_uint, out: *mut Opaque) -> c_int;
    fn mdb_txn_commit(txn: Opaque) -> c_int;
    fn mdb_txn_abort(txn: Opaque);
    fn mdb_txn_reset(txn: Opaque);
    fn mdb_txn_renew(txn: Opaque) -> c_int;
    fn mdb_dbi_open(txn: Opaque, name: *const c_char, flags: c_uint, out: *mut c_uint) -> c_int;
    fn mdb_get(txn: Opaque, dbi: c_uint, key: *const Val, value: *mut Val) -> c_int;
    fn mdb_put(txn: Opaque, dbi: c_uint, key: *const Val, value: *const Val, flags: c_uint) -> c_int;
    fn mdb_del(txn: Opaque, dbi: c_uint, key: *const Val, value: *const Val) -> c_int;
    fn mdb_cursor_open(txn: Opaque, dbi: c_uint, out: *mut Opaque) -> c_int;
    fn mdb_cursor_renew(txn: Opaque, cursor: Opaque) -> c_int;
    fn mdb_cursor_close(cursor: Opaque);
    fn mdb_cursor_get(cursor: Opaque, key: *mut Val, value: *mut Val, op: c_int) -> c_int;
    fn mdb_strerror(code: c_int) -> *const c_char;
}

const LIBRARY: &str = "lmdb";
const RDONLY: c_uint = 0x2_0000;
const WRITEMAP: c_uint = 0x8_0000;
const NOTLS: c_uint = 0x20_0000;
const NORDAHEAD: c_uint = 0x80_0000;
const CREATE: c_uint = 0x4_0000;
const NOTFOUND: c_int = -30798;
const NEXT: c_int = 8;
const SET_RANGE: c_int = 17;
const MODE: c_uint = 0o600;

/// An environment with one database.
struct Env {
    env: NonNull<c_void>,
    dbi: c_uint,
}

// SAFETY: an environment may be used from all threads at once; write transactions stay on their thread, because `transact` ends what it begins.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: created by `open`; each session holds an `Arc` of this and ends its reader first, so that none is left.
        unsafe { mdb_env_close(self.env.as_ptr()) }
    }
}

impl Env {
    fn begin(&self, flags: c_uint) -> Result<Opaque> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open.
        check(unsafe { mdb_txn_begin(self.env.as_ptr(), ptr::null_mut(), flags, &raw mut txn) })?;
        Ok(txn)
    }
}

/// An open store.
pub struct Lmdb(Arc<Env>);

impl Lmdb {
    pub fn open(dir: &Path, room: Room, writemap: bool) -> Result<Self> {
        // Copied pages wait until no reader needs them; the map is address space, not memory.
        let map_bytes = (room.bytes as usize * 6).next_multiple_of(1 << 20) + (1 << 30);
        let name = c_path(LIBRARY, dir)?;
        let mut env = ptr::null_mut();
        // SAFETY: `env` is a place for a pointer.
        check(unsafe { mdb_env_create(&raw mut env) })?;
        let Some(env) = NonNull::new(env) else { return Err(refused(NOTFOUND)) };
        let mut env = Env { env, dbi: 0 };
        // Readers keep their slot; random reads gain nothing from reading ahead.
        let flags = NOTLS | NORDAHEAD | if writemap { WRITEMAP } else { 0 };
        let readers = room.sessions as c_uint + 16;
        // SAFETY: created above and not yet open; `name` ends in a zero byte.
        let open = unsafe {
            check(mdb_env_set_mapsize(env.env.as_ptr(), map_bytes))
                .and_then(|()| check(mdb_env_set_maxreaders(env.env.as_ptr(), readers)))
                .and_then(|()| check(mdb_env_open(env.env.as_ptr(), name.as_ptr(), flags, MODE)))
        };
        open.map_err(|error| error.at(dir))?;
        let txn = env.begin(0)?;
        // SAFETY: `txn` was just begun and ends here.
        unsafe {
            let opened = check(mdb_dbi_open(txn, ptr::null(), CREATE, &raw mut env.dbi));
            if opened.is_err() {
                mdb_txn_abort(txn);
            }
            opened?;
            check(mdb_txn_commit(txn))?;
        }
        Ok(Self(Arc::new(env)))
    }
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session>> {
        let reader = self.0.begin(RDONLY)?;
        let mut cursor = ptr::null_mut();
        // SAFETY: `reader` was just begun and goes to the session; the cursor of a reader may be renewed with it.
        unsafe {
            let opened = check(mdb_cursor_open(reader, self.0.dbi, &raw mut cursor));
            if opened.is_err() {
                mdb_txn_abort(reader);
            }
            opened?;
            mdb_txn_reset(reader);
        }
        Ok(Box::new(LmdbSession { env: self.0.clone(), reader, cursor }))
    }
}

/// With a reader that is renewed for each transaction, as the manual recommends.
struct LmdbSession {
    env: Arc<Env>,
    /// Of this environment; reset except during a read.
    reader: Opaque,
    /// Of `reader`.
    cursor: Opaque,
}

// SAFETY: with MDB_NOTLS a reader belongs to no thread; this session alone uses it, through `&mut`.
unsafe impl Send for LmdbSession {}

impl Drop for LmdbSession {
    fn drop(&mut self) {
        // SAFETY: both were opened by `session` and are closed only here; the environment is still open.
        unsafe {
            mdb_cursor_close(self.cursor);
            mdb_txn_abort(self.reader);
        }
    }
}

impl LmdbSession {
    fn read<R>(&mut self, work: impl FnOnce(&mut View<'_>) -> Result<R>) -> Result<R> {
        // SAFETY: the reader is reset: `read` is the only one that renews it, and resets it again.
        check(unsafe { mdb_txn_renew(self.reader) })?;
        let mut view = View { txn: self.reader, dbi: self.env.dbi, cursor: self.cursor, _while: PhantomData };
        let done = work(&mut view);
        // SAFETY: renewed above.
        unsafe { mdb_txn_reset(self.reader) };
        done
    }

    fn write(&mut self, work: impl FnOnce(&mut View<'_>) -> Result<()>) -> Result<()> {
        let txn = self.env.begin(0)?;
        let mut view = View { txn, dbi: self.env.dbi, cursor: ptr::null_mut(), _while: PhantomData };
        match work(&mut view) {
            // SAFETY: begun above, on this thread, and ended only here.
            Ok(()) => check(unsafe { mdb_txn_commit(txn) }),
            Err(error) => {
                // SAFETY: as above.
                unsafe { mdb_txn_abort(txn) };
                Err(error)
            }
        }
    }
}

impl Session for LmdbSession {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.read(|view| view.get(key, out))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|view| view.put(key, value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(|view| view.delete(key))
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        self.read(|view| view.scan(from, count, out))
    }

    /// One writer at a time: every level is serializable.
    fn transact(&mut self, how: How, work: Work<'_>) -> Result<()> {
        if how.read_only { self.read(|view| work(view)) } else { self.write(|view| work(view)) }
    }
}

/// A transaction that is open for as long as this is there.
struct View<'a> {
    txn: Opaque,
    dbi: c_uint,
    /// Of a reader; null in a writer, whose cursors last no longer than it.
    cursor: Opaque,
    _while: PhantomData<&'a ()>,
}

impl Txn for View<'_> {
    #[inline]
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let mut value = NOTHING;
        // SAFETY: the transaction is open; the library reads the key within its length.
        let rc = unsafe { mdb_get(self.txn, self.dbi, &val(key), &raw mut value) };
        // SAFETY: the library says where the bytes are; they stay until the transaction changes something or ends.
        found(rc).map(|found| found.then(|| copy(unsafe { bytes(&value) }, out)))
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: the transaction is open; the library copies both.
        check(unsafe { mdb_put(self.txn, self.dbi, &val(key), &val(value), 0) })
    }

    #[inline]
    fn delete(&mut self, key: &[u8]) -> Result<()> {
        // SAFETY: the transaction is open.
        found(unsafe { mdb_del(self.txn, self.dbi, &val(key), ptr::null()) }).map(|_| ())
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        let mut cursor = self.cursor;
        // SAFETY: the transaction is open; a cursor that is there is of this reader.
        check(unsafe {
            if cursor.is_null() {
                mdb_cursor_open(self.txn, self.dbi, &raw mut cursor)
            } else {
                mdb_cursor_renew(self.txn, cursor)
            }
        })?;
        let scanned = walk(cursor, from, count, out);
        if self.cursor.is_null() {
            // SAFETY: opened above, before its transaction ends.
            unsafe { mdb_cursor_close(cursor) };
        }
        scanned
    }
}

/// `cursor` is open, in an open transaction.
fn walk(cursor: Opaque, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
    let (mut key, mut value, mut op) = (val(from), NOTHING, SET_RANGE);
    for at in 0..count {
        // SAFETY: the caller's.
        if !found(unsafe { mdb_cursor_get(cursor, &raw mut key, &raw mut value, op) })? {
            return Ok(at);
        }
        // SAFETY: as in `get`.
        copy(unsafe { bytes(&value) }, out);
        op = NEXT;
    }
    Ok(count)
}

const NOTHING: Val = Val { bytes: 0, at: ptr::null() };

fn val(bytes: &[u8]) -> Val {
    Val { bytes: bytes.len(), at: bytes.as_ptr().cast() }
}

/// # Safety
/// The library has set it, and nothing has changed since.
unsafe fn bytes(value: &Val) -> &[u8] {
    if value.bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(value.at.cast(), value.bytes) }
}

#[inline]
fn check(rc: c_int) -> Result<()> {
    if rc == 0 { Ok(()) } else { Err(refused(rc)) }
}

#[inline]
fn found(rc: c_int) -> Result<bool> {
    if rc == NOTFOUND { Ok(false) } else { check(rc).map(|()| true) }
}

#[cold]
fn refused(rc: c_int) -> Error {
    // SAFETY: the library's strings are constant, or this thread's until it asks again.
    Error::of(LIBRARY, 0, unsafe { text(mdb_strerror(rc)) })
}
