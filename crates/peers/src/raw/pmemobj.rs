//! The C functions of `c/`, and the types that hold what each of them needs to be safe.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{EINVAL, EIO, ENOENT, c_path, text};
use crate::{Error, Result};

#[repr(C)]
struct Po {
    _opaque: [u8; 0],
}

type Get = unsafe extern "C" fn(*mut Po, *const c_void, usize, *mut c_void, usize, *mut usize) -> c_int;
type Put = unsafe extern "C" fn(*mut Po, *const c_void, usize, *const c_void, usize) -> c_int;
type Rmw = unsafe extern "C" fn(*mut Po, *const c_void, usize, *mut c_void, *const c_void, usize) -> c_int;
type Delete = unsafe extern "C" fn(*mut Po, *const c_void, usize) -> c_int;

/// One structure's functions: `struct kind` of peer.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Kind {
    get: Get,
    put: Put,
    rmw: Rmw,
    delete: Delete,
    ordered: bool,
}

/// `struct step` of peer.h.
#[repr(C)]
struct RawStep {
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    len: usize,
}

unsafe extern "C" {
    fn po_create(path: *const c_char, bytes: usize, out: *mut *mut Po) -> c_int;
    fn po_open(path: *const c_char, out: *mut *mut Po) -> c_int;
    fn po_close(po: *mut Po);
    fn po_error() -> *const c_char;
    fn po_flushes(po: *const Po) -> c_int;
    fn po_alloc(po: *mut Po, n: usize, bytes: usize, out: *mut u64) -> c_int;
    fn po_read(po: *mut Po, object: u64, bytes: usize, out: *mut c_void) -> c_int;
    fn po_overwrite(po: *mut Po, objects: *const u64, n: usize, data: *const c_void, bytes: usize) -> c_int;
    fn po_push(po: *mut Po, list: usize, data: *const c_void, bytes: usize) -> c_int;
    fn po_pop(po: *mut Po, list: usize) -> c_int;
    fn po_hash_create(po: *mut Po, buckets: u64) -> c_int;
    fn po_hash_there(po: *const Po) -> c_int;
    fn po_tree_there(po: *const Po) -> c_int;
    fn po_hash_transact(
        po: *mut Po,
        steps: *const RawStep,
        n: usize,
        out: *mut c_void,
        room: usize,
        found: *mut usize,
    ) -> c_int;
    fn po_tree_create(po: *mut Po, key_bytes: usize) -> c_int;
    fn po_tree_scan(
        po: *mut Po,
        from: *const c_void,
        key_len: usize,
        n: usize,
        out: *mut c_void,
        room: usize,
        found: *mut usize,
    ) -> c_int;
    // Constant on the C side.
    safe static po_hash: Kind;
    safe static po_tree: Kind;
}

/// An open pool, without what is in it.
pub struct Handle(NonNull<Po>);

// SAFETY: libpmemobj pools may be used from all threads at once. The structures in them have locks of their own (hashmap.c, btree.c);
// lists and objects have one owner each, `List` and `Objects`, which take `&mut self`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by `started`, closed only here.
        unsafe { po_close(self.0.as_ptr()) }
    }
}

impl Handle {
    pub fn create(path: &Path, bytes: usize) -> Result<Arc<Self>> {
        let name = c_path("libpmemobj", path)?;
        // SAFETY: `name` ends in a zero byte, `out` is a place for a pointer.
        Self::started(path, |out| unsafe { po_create(name.as_ptr(), bytes, out) })
    }

    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let name = c_path("libpmemobj", path)?;
        // SAFETY: as in `create`.
        Self::started(path, |out| unsafe { po_open(name.as_ptr(), out) })
    }

    fn started(path: &Path, start: impl FnOnce(*mut *mut Po) -> c_int) -> Result<Arc<Self>> {
        let mut po = ptr::null_mut();
        check(start(&raw mut po)).map_err(|e| e.at(path))?;
        Ok(Arc::new(Self(NonNull::new(po).ok_or_else(|| refused(EIO))?)))
    }

    pub fn flushes(&self) -> bool {
        // SAFETY: the handle is open.
        unsafe { po_flushes(self.0.as_ptr()) != 0 }
    }
}

/// Objects of one length, with one owner.
pub struct Objects {
    handle: Arc<Handle>,
    /// Each from `po_alloc` of this handle, `bytes` long.
    offsets: Vec<u64>,
    bytes: usize,
    chosen: Vec<u64>,
}

impl Objects {
    pub(crate) fn make(handle: &Arc<Handle>, count: usize, bytes: usize) -> Result<Self> {
        let mut offsets = vec![0; count];
        // SAFETY: `offsets` has room for `count`.
        check(unsafe { po_alloc(handle.0.as_ptr(), count, bytes, offsets.as_mut_ptr()) })?;
        Ok(Self { handle: handle.clone(), offsets, bytes, chosen: Vec::new() })
    }

    /// Overwrites the beginnings of objects with `data`, in one transaction.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Panics
    /// If one is not there, or `data` is longer than an object.
    #[inline]
    pub fn overwrite(&mut self, which: &[usize], data: &[u8]) -> Result<()> {
        assert!(data.len() <= self.bytes, "data of {} bytes for objects of {}", data.len(), self.bytes);
        self.chosen.clear();
        self.chosen.extend(which.iter().map(|at| self.offsets[*at]));
        let (objects, n) = (self.chosen.as_ptr(), self.chosen.len());
        // SAFETY: the objects are there and long enough, as the field says and the assertion checks; `&mut self` is alone with them.
        check(unsafe { po_overwrite(self.handle.0.as_ptr(), objects, n, data.as_ptr().cast(), data.len()) })
    }

    /// An object's bytes.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn read(&self, which: usize) -> Vec<u8> {
        let mut out = vec![0; self.bytes];
        // SAFETY: the object is there and as long as `out`; no thread writes it while `self` is borrowed.
        unsafe { po_read(self.handle.0.as_ptr(), self.offsets[which], out.len(), out.as_mut_ptr().cast()) };
        out
    }
}

/// A list of its own.
pub struct List {
    handle: Arc<Handle>,
    /// No other `List` has it.
    index: usize,
}

impl List {
    /// `index` is given out once.
    pub(crate) fn claimed(handle: &Arc<Handle>, index: usize) -> Self {
        Self { handle: handle.clone(), index }
    }

    /// Allocates an object of 8 bytes more than `data`, the link, and makes it the first, in one transaction.
    ///
    /// # Errors
    /// No space.
    #[inline]
    pub fn push(&mut self, data: &[u8]) -> Result<()> {
        // SAFETY: the C side copies the bytes less the link, and checks the number; `&mut self` is alone with the list.
        check(unsafe { po_push(self.handle.0.as_ptr(), self.index, data.as_ptr().cast(), data.len() + LINK) })
    }

    /// Unlinks the first and frees it, in one transaction; false if there is none.
    ///
    /// # Errors
    /// The library's.
    #[inline]
    pub fn pop(&mut self) -> Result<bool> {
        // SAFETY: as in `push`.
        found(unsafe { po_pop(self.handle.0.as_ptr(), self.index) })
    }
}

/// Bytes of a list node that are the link.
const LINK: usize = 8;

/// Keys and values; may be used from all threads at once.
#[derive(Clone)]
pub struct Map {
    handle: Arc<Handle>,
    /// Of a structure that was made in this pool.
    kind: Kind,
}

impl Map {
    pub(crate) fn make_hash(handle: &Arc<Handle>, buckets: u64) -> Result<Self> {
        // SAFETY: the C side refuses a second one.
        check(unsafe { po_hash_create(handle.0.as_ptr(), buckets) })?;
        Ok(Self { handle: handle.clone(), kind: po_hash })
    }

    pub(crate) fn make_tree(handle: &Arc<Handle>, key_bytes: usize) -> Result<Self> {
        // SAFETY: the C side refuses a second one.
        check(unsafe { po_tree_create(handle.0.as_ptr(), key_bytes) })?;
        Ok(Self { handle: handle.clone(), kind: po_tree })
    }

    pub(crate) fn opened_hash(handle: &Arc<Handle>) -> Result<Self> {
        // SAFETY: the handle is open.
        check(unsafe { po_hash_there(handle.0.as_ptr()) })?;
        Ok(Self { handle: handle.clone(), kind: po_hash })
    }

    pub(crate) fn opened_tree(handle: &Arc<Handle>) -> Result<Self> {
        // SAFETY: the handle is open.
        check(unsafe { po_tree_there(handle.0.as_ptr()) })?;
        Ok(Self { handle: handle.clone(), kind: po_tree })
    }

    /// True if it can [`scan`](Self::scan).
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.kind.ordered
    }

    /// Copies the key's value to `out` and returns its length.
    ///
    /// # Errors
    /// The value is longer than `out`.
    #[inline]
    pub fn get(&self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let mut len = 0;
        let (key_at, out_at) = (key.as_ptr().cast(), out.as_mut_ptr().cast());
        // SAFETY: the structure is there; the C side copies no more than there is room for.
        let rc = unsafe { (self.kind.get)(self.handle.0.as_ptr(), key_at, key.len(), out_at, out.len(), &raw mut len) };
        Ok(found(rc)?.then_some(len))
    }

    /// Sets the key's value.
    ///
    /// # Errors
    /// No space; a key of the wrong length for the tree.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the structure is there; lengths are those of the slices.
        check(unsafe { (self.kind.put)(self.handle.0.as_ptr(), key_at, key.len(), value_at, value.len()) })
    }

    /// Copies the key's value to `out`, then sets it to `value`, both as one; false if it is not there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Panics
    /// If `out` is shorter than `value`.
    #[inline]
    pub fn read_modify_write(&self, key: &[u8], out: &mut [u8], value: &[u8]) -> Result<bool> {
        let out = &mut out[..value.len()];
        let (key_at, out_at, value_at) = (key.as_ptr().cast(), out.as_mut_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the structure is there; the C side copies at most as many bytes to `out` as `value` has.
        found(unsafe { (self.kind.rmw)(self.handle.0.as_ptr(), key_at, key.len(), out_at, value_at, value.len()) })
    }

    /// Removes the key; true if it was there.
    ///
    /// # Errors
    /// The library's.
    #[inline]
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        // SAFETY: the structure is there; the length is that of the slice.
        found(unsafe { (self.kind.delete)(self.handle.0.as_ptr(), key.as_ptr().cast(), key.len()) })
    }

    /// Runs steps, keys with the values they get or `None` to read them, as one transaction: all locks are known, and taken in order
    /// beforehand. Values that are read go to `out`, cut to its length, one over the other; returns how many there were.
    ///
    /// # Errors
    /// No space; not a hash map; too many steps.
    pub fn transact<'s>(
        &self,
        steps: impl Iterator<Item = (&'s [u8], Option<&'s [u8]>)>,
        out: &mut [u8],
    ) -> Result<usize> {
        if self.kind.ordered {
            return Err(refused(EINVAL));
        }
        let raw = |(key, value): (&[u8], Option<&[u8]>)| RawStep {
            key: key.as_ptr().cast(),
            key_len: key.len(),
            value: value.map_or(ptr::null(), |value| value.as_ptr().cast()),
            len: value.map_or(0, <[u8]>::len),
        };
        let steps: Vec<RawStep> = steps.map(raw).collect();
        let (mut found, out_at) = (0, out.as_mut_ptr().cast());
        // SAFETY: the map is there; what steps point at lives as long as `'s`; the C side copies no more to `out` than there is room for.
        let rc = unsafe {
            po_hash_transact(self.handle.0.as_ptr(), steps.as_ptr(), steps.len(), out_at, out.len(), &raw mut found)
        };
        check(rc).map(|()| found)
    }

    /// Copies up to `n` values from `from` on to `out`, one over the other, and returns how many there were.
    ///
    /// # Errors
    /// The hash map has no order.
    #[inline]
    pub fn scan(&self, from: &[u8], n: usize, out: &mut [u8]) -> Result<usize> {
        if !self.kind.ordered {
            return Err(refused(EINVAL));
        }
        let mut count = 0;
        let (from_at, out_at) = (from.as_ptr().cast(), out.as_mut_ptr().cast());
        // SAFETY: the tree is there; each value is cut to the room there is.
        check(unsafe {
            po_tree_scan(self.handle.0.as_ptr(), from_at, from.len(), n, out_at, out.len(), &raw mut count)
        })?;
        Ok(count)
    }
}

#[inline]
fn check(rc: c_int) -> Result<()> {
    if rc == 0 { Ok(()) } else { Err(refused(rc)) }
}

#[inline]
fn found(rc: c_int) -> Result<bool> {
    match rc {
        0 => Ok(true),
        ENOENT => Ok(false),
        rc => Err(refused(rc)),
    }
}

/// With the library's own words about this thread's last error.
#[cold]
fn refused(errno: c_int) -> Error {
    // SAFETY: the library's string is valid until this thread calls it again.
    Error::of("libpmemobj", errno, unsafe { text(po_error()) })
}
