//! Stores and sessions whose functions are C: `c/rocksdb.c` and `c/bdb.c` have the same ones.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{c_path, text};
use crate::store::{How, Level, Session, Store, Txn, Work};
use crate::{Error, Result};

/// A store or a session of the C side.
pub type Raw = *mut c_void;
type Get = unsafe extern "C" fn(Raw, *const c_char, usize, *mut c_void, usize, *mut usize) -> c_int;
type Scan = unsafe extern "C" fn(Raw, *const c_char, usize, usize, *mut c_void, usize, *mut usize) -> c_int;
type Put = unsafe extern "C" fn(Raw, *const c_char, usize, *const c_char, usize) -> c_int;
type Delete = unsafe extern "C" fn(Raw, *const c_char, usize) -> c_int;

/// What returns a number returns [`DONE`] or one of those below it.
pub struct Calls {
    pub library: &'static str,
    pub close: unsafe extern "C" fn(Raw),
    pub session: unsafe extern "C" fn(Raw) -> Raw,
    pub session_close: unsafe extern "C" fn(Raw),
    pub message: unsafe extern "C" fn(Raw) -> *const c_char,
    pub get: Get,
    pub scan: Scan,
    pub put: Put,
    pub delete: Delete,
    pub begin: unsafe extern "C" fn(Raw, c_int, c_int) -> c_int,
    pub commit: unsafe extern "C" fn(Raw) -> c_int,
    pub abort: unsafe extern "C" fn(Raw) -> c_int,
    pub txn_get: Get,
    pub txn_scan: Scan,
    pub txn_put: Put,
    pub txn_delete: Delete,
}

/// The [`Calls`] of a C file whose names begin so.
macro_rules! calls {
    ($library:literal, $prefix:literal) => {{
        use std::ffi::{c_char, c_int, c_void};

        use super::session::{Calls, Raw};

        unsafe extern "C" {
            #[link_name = concat!($prefix, "_close")]
            fn close(store: Raw);
            #[link_name = concat!($prefix, "_session")]
            fn session(store: Raw) -> Raw;
            #[link_name = concat!($prefix, "_session_close")]
            fn session_close(s: Raw);
            #[link_name = concat!($prefix, "_message")]
            fn message(s: Raw) -> *const c_char;
            #[link_name = concat!($prefix, "_get")]
            fn get(s: Raw, key: *const c_char, bytes: usize, out: *mut c_void, room: usize, len: *mut usize) -> c_int;
            #[link_name = concat!($prefix, "_scan")]
            fn scan(
                s: Raw,
                from: *const c_char,
                bytes: usize,
                count: usize,
                out: *mut c_void,
                room: usize,
                found: *mut usize,
            ) -> c_int;
            #[link_name = concat!($prefix, "_put")]
            fn put(s: Raw, key: *const c_char, key_bytes: usize, value: *const c_char, bytes: usize) -> c_int;
            #[link_name = concat!($prefix, "_delete")]
            fn delete(s: Raw, key: *const c_char, bytes: usize) -> c_int;
            #[link_name = concat!($prefix, "_begin")]
            fn begin(s: Raw, serializable: c_int, read_only: c_int) -> c_int;
            #[link_name = concat!($prefix, "_commit")]
            fn commit(s: Raw) -> c_int;
            #[link_name = concat!($prefix, "_abort")]
            fn abort(s: Raw) -> c_int;
            #[link_name = concat!($prefix, "_txn_get")]
            fn txn_get(
                s: Raw,
                key: *const c_char,
                bytes: usize,
                out: *mut c_void,
                room: usize,
                len: *mut usize,
            ) -> c_int;
            #[link_name = concat!($prefix, "_txn_scan")]
            fn txn_scan(
                s: Raw,
                from: *const c_char,
                bytes: usize,
                count: usize,
                out: *mut c_void,
                room: usize,
                found: *mut usize,
            ) -> c_int;
            #[link_name = concat!($prefix, "_txn_put")]
            fn txn_put(s: Raw, key: *const c_char, key_bytes: usize, value: *const c_char, bytes: usize) -> c_int;
            #[link_name = concat!($prefix, "_txn_delete")]
            fn txn_delete(s: Raw, key: *const c_char, bytes: usize) -> c_int;
        }

        Calls {
            library: $library,
            close,
            session,
            session_close,
            message,
            get,
            scan,
            put,
            delete,
            begin,
            commit,
            abort,
            txn_get,
            txn_scan,
            txn_put,
            txn_delete,
        }
    }};
}

pub(super) use calls;

const DONE: c_int = 0;
const NOT_FOUND: c_int = 1;
const CONFLICT: c_int = 2;

struct Db {
    raw: NonNull<c_void>,
    calls: &'static Calls,
}

// SAFETY: `CStore::open` says that threads may share it.
unsafe impl Send for Db {}
// SAFETY: as above.
unsafe impl Sync for Db {}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: `CStore::open` says what it is; each session holds an `Arc` of this and is closed first.
        unsafe { (self.calls.close)(self.raw.as_ptr()) }
    }
}

/// An open store.
pub struct CStore(Arc<Db>);

impl CStore {
    /// `open` gets the path, a string, and where a message goes, of at most so many bytes.
    ///
    /// # Safety
    /// `open` gives null or a store that `calls` are for, that nothing else has, and that all threads may use at once. Its message is a string.
    pub unsafe fn open(
        calls: &'static Calls,
        dir: &Path,
        open: impl FnOnce(*const c_char, *mut c_char, usize) -> Raw,
    ) -> Result<Self> {
        let name = c_path(calls.library, dir)?;
        let mut message = [0; 256];
        let raw = open(name.as_ptr(), message.as_mut_ptr(), message.len());
        // SAFETY: the caller's.
        let refused = || Error::of(calls.library, 0, unsafe { text(message.as_ptr()) }).at(dir);
        Ok(Self(Arc::new(Db { raw: NonNull::new(raw).ok_or_else(refused)?, calls })))
    }
}

impl Store for CStore {
    fn session(&self) -> Result<Box<dyn Session>> {
        let calls = self.0.calls;
        // SAFETY: the store is open.
        let raw = NonNull::new(unsafe { (calls.session)(self.0.raw.as_ptr()) });
        let raw = raw.ok_or_else(|| Error::of(calls.library, 0, "no session".into()))?;
        Ok(Box::new(CSession { raw, calls, _store: self.0.clone() }))
    }
}

/// A session, and the store it is of, which stays open as long.
struct CSession {
    raw: NonNull<c_void>,
    calls: &'static Calls,
    _store: Arc<Db>,
}

// SAFETY: a session is used by one thread at a time, through `&mut`, and a transaction does not outlast the call that begins it.
unsafe impl Send for CSession {}

impl Drop for CSession {
    fn drop(&mut self) {
        // SAFETY: made by `CStore::session`; closed only here, before the store, for fields go after this.
        unsafe { (self.calls.session_close)(self.raw.as_ptr()) }
    }
}

impl CSession {
    #[inline]
    fn found(&self, rc: c_int) -> Result<bool> {
        match rc {
            DONE => Ok(true),
            NOT_FOUND => Ok(false),
            rc => Err(self.refused(rc)),
        }
    }

    #[inline]
    fn check(&self, rc: c_int) -> Result<()> {
        if rc == DONE { Ok(()) } else { Err(self.refused(rc)) }
    }

    #[cold]
    fn refused(&self, rc: c_int) -> Error {
        // SAFETY: the session's string stays until its next call.
        let message = unsafe { text((self.calls.message)(self.raw.as_ptr())) };
        if rc == CONFLICT {
            Error::conflict(self.calls.library, message)
        } else {
            Error::of(self.calls.library, 0, message)
        }
    }

    #[inline]
    fn get_by(&self, call: Get, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let mut bytes = 0;
        let (key_at, out_at) = (key.as_ptr().cast(), out.as_mut_ptr().cast());
        // SAFETY: the session is open; the C side copies no more than there is room for.
        let rc = unsafe { call(self.raw.as_ptr(), key_at, key.len(), out_at, out.len(), &raw mut bytes) };
        Ok(self.found(rc)?.then_some(bytes))
    }

    #[inline]
    fn put_by(&self, call: Put, key: &[u8], value: &[u8]) -> Result<()> {
        let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the session is open; lengths are those of the slices.
        self.check(unsafe { call(self.raw.as_ptr(), key_at, key.len(), value_at, value.len()) })
    }

    #[inline]
    fn delete_by(&self, call: Delete, key: &[u8]) -> Result<()> {
        // SAFETY: as in `put_by`.
        self.found(unsafe { call(self.raw.as_ptr(), key.as_ptr().cast(), key.len()) }).map(|_| ())
    }

    #[inline]
    fn scan_by(&self, call: Scan, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        let mut found = 0;
        let (from_at, out_at) = (from.as_ptr().cast(), out.as_mut_ptr().cast());
        // SAFETY: as in `get_by`, for each value.
        let rc = unsafe { call(self.raw.as_ptr(), from_at, from.len(), count, out_at, out.len(), &raw mut found) };
        self.check(rc).map(|()| found)
    }
}

impl Session for CSession {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.get_by(self.calls.get, key, out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_by(self.calls.put, key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.delete_by(self.calls.delete, key)
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        self.scan_by(self.calls.scan, from, count, out)
    }

    fn transact(&mut self, how: How, work: Work<'_>) -> Result<()> {
        let serializable = (how.level == Level::Serializable).into();
        // SAFETY: the session is open, and in no transaction: the one that is begun here ends here.
        self.check(unsafe { (self.calls.begin)(self.raw.as_ptr(), serializable, how.read_only.into()) })?;
        match work(&mut Under(self)) {
            // SAFETY: begun above.
            Ok(()) => self.check(unsafe { (self.calls.commit)(self.raw.as_ptr()) }),
            Err(error) => {
                // SAFETY: as above. What it returns matters less than why.
                unsafe { (self.calls.abort)(self.raw.as_ptr()) };
                Err(error)
            }
        }
    }
}

/// A session with a transaction under way.
struct Under<'a>(&'a CSession);

impl Txn for Under<'_> {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.0.get_by(self.0.calls.txn_get, key, out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put_by(self.0.calls.txn_put, key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.delete_by(self.0.calls.txn_delete, key)
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        self.0.scan_by(self.0.calls.txn_scan, from, count, out)
    }
}
