//! Reading what is published, and publishing.

use super::action::{ALLOC, Action, FREE, Logged, ROOT, SET, logged};
use super::{ACTIONS_MAX, Log, Objects, Root};
use crate::Persist;
use crate::alloc::{Block, Intent};
use crate::error::{Error, Result};
use crate::persist::{bytes_of, from_bytes, view};
use crate::ptr::PPtr;
use crate::ring::Ring;
use crate::ring_record::Position;
use crate::sim::here;
use crate::sync::MutexGuard;

/// Exclusive access to the published objects.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # use pmem::{Action, Objects, ObjectsOptions, PPtr};
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
/// let text = objects.reserve_value(b"hello")?;
/// let ptr = text.ptr::<[u8; 5]>();
/// let mut session = objects.lock();
/// session.publish(&mut [Action::Alloc(text), Action::root(ptr)])?;
/// assert_eq!(session.bytes(ptr.cast(), 5)?, b"hello");
/// assert_eq!(session.root::<[u8; 5]>()?, ptr);
/// assert!(session.root::<u64>().is_err()); // of another type
/// # Ok(()) }
/// ```
pub struct Session<'a> {
    pub(super) objects: &'a Objects,
    pub(super) log: MutexGuard<'a, Log>,
}

impl Session<'_> {
    /// The published block in which `len` bytes at `ptr` lie.
    #[inline]
    fn published<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<Block> {
        let block = self.objects.heap.resolve(ptr, len)?;
        if !self.objects.heap.is_published(&block)? {
            return Err(Error::BadPointer { ptr: ptr.raw(), why: "reserved, not published" });
        }
        Ok(block)
    }

    /// `len` bytes at `ptr`, inside one published block.
    ///
    /// # Errors
    /// [`Error::BadPointer`] for anything else.
    #[inline]
    pub fn bytes(&self, ptr: PPtr<u8>, len: u64) -> Result<&[u8]> {
        self.published(ptr, len)?;
        let base = self.objects.mapping().access(ptr.offset(), len, false)?;
        // SAFETY: in bounds of one published block. Those change by `publish` only, which needs `&mut` of the one session there is.
        Ok(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) })
    }

    /// The object at `ptr`.
    ///
    /// # Errors
    /// [`Error::BadPointer`] unless a whole `T` lies there in one published block; [`Error::Unaligned`].
    #[inline]
    pub fn get<T: Persist>(&self, ptr: PPtr<T>) -> Result<&T> {
        const { T::LAYOUT };
        let bytes = self.bytes(ptr.cast(), size_of::<T>() as u64)?;
        view(bytes).ok_or_else(|| Error::Unaligned { offset: ptr.offset(), align: align_of::<T>() as u64 })
    }

    /// The root object, null if none was set.
    ///
    /// # Errors
    /// [`Error::WrongLayout`] if it is of another type; [`Error::Damaged`].
    pub fn root<T: Persist>(&self) -> Result<PPtr<T>> {
        let root: Root = *self.log.root.get(0)?;
        let check = self.log.root_key.checksum(&bytes_of(&root)[..16]);
        if root.check != check {
            let offset = self.log.root.offset();
            return Err(Error::Damaged { what: "root pointer", offset, found: root.check, expected: check });
        }
        if root.ptr == 0 && root.layout == 0 {
            return Ok(PPtr::NULL);
        }
        if root.layout != const { T::LAYOUT.hash } {
            return Err(Error::WrongLayout {
                what: "root type",
                found: format!("{:016x}", root.layout),
                expected: format!("{} ({:016x})", std::any::type_name::<T>(), T::LAYOUT.hash),
            });
        }
        Ok(PPtr::from_raw(root.ptr))
    }

    /// Carries these actions out as a whole, durably: one barrier. After an error nothing has changed, except after a failed
    /// sync, when only the next open tells.
    ///
    /// # Errors
    /// [`Error::BadPointer`], [`Error::DoubleFree`]; [`Error::Limit`] for too many actions; those of a drain.
    pub fn publish(&mut self, actions: &mut [Action<'_>]) -> Result<()> {
        if actions.len() > ACTIONS_MAX {
            let (found, max) = (actions.len() as u64, ACTIONS_MAX as u64);
            return Err(Error::Limit { what: "actions in a publication", found, min: 0, max });
        }
        let mut freed = Vec::new();
        let prepared = self.prepare(actions, &mut freed).and_then(|()| self.append(actions));
        let end = match prepared {
            Ok(end) => end,
            Err(e) => {
                for block in &freed {
                    self.objects.heap.cancel_free(block)?;
                }
                return Err(e);
            }
        };
        self.objects.pool.flush_set(&mut self.log.lines)?;
        let persisted = self.objects.pool.drain()?; // the one barrier
        self.log.ring.forced(&persisted);
        if let Some(applied) = self.log.applied.replace(end) {
            self.log.ring.retire(applied); // flushed before this drain
        }
        let encoded = std::mem::take(&mut self.log.scratch);
        for action in encoded.chunks_exact(size_of::<Logged>()).filter_map(from_bytes::<Logged>) {
            self.objects.carry_out(&mut self.log, &action)?;
        }
        self.log.scratch = encoded;
        for action in actions {
            if let Action::Alloc(reserved) = action {
                reserved.block = None; // published: dropping it gives nothing back
            }
        }
        // In this ring's order a later record may reuse the block at once.
        freed.into_iter().try_for_each(|block| self.objects.heap.release(block))
    }

    /// Checks every action and encodes it; takes freed blocks out of use.
    fn prepare(&mut self, actions: &[Action<'_>], freed: &mut Vec<Block>) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.log.scratch);
        encoded.clear();
        for action in actions {
            let logged = match action {
                Action::Alloc(reserved) => {
                    if !std::ptr::eq(reserved.objects, self.objects) {
                        return Err(Error::BadPointer { ptr: reserved.ptr::<()>().raw(), why: "reserved elsewhere" });
                    }
                    logged(ALLOC, &Intent::alloc(reserved.block()?), reserved.len)
                }
                Action::Free(ptr) => {
                    let block = self.published(*ptr, 0)?;
                    if block.offset() != ptr.offset() {
                        return Err(Error::BadPointer { ptr: ptr.raw(), why: "not the start of its block" });
                    }
                    self.objects.heap.begin_free(&block)?;
                    freed.push(block);
                    logged(FREE, &Intent::free(&block), 0)
                }
                Action::Set(ptr, value) => {
                    self.published(*ptr, 8)?;
                    if ptr.offset() % 8 != 0 {
                        return Err(Error::Unaligned { offset: ptr.offset(), align: 8 });
                    }
                    Logged { kind: SET, a: ptr.offset(), b: *value, c: 0 }
                }
                Action::Root(ptr, layout) => Logged { kind: ROOT, a: ptr.raw(), b: *layout, c: 0 },
            };
            encoded.extend_from_slice(bytes_of(&logged));
        }
        self.log.scratch = encoded;
        Ok(())
    }

    /// Flushes new blocks and the record; makes room in the ring if it must.
    fn append(&mut self, actions: &[Action<'_>]) -> Result<Position> {
        let (objects, log) = (self.objects, &mut *self.log);
        let mut contents: Vec<&[u8]> = Vec::new();
        for action in actions {
            if let Action::Alloc(reserved) = action {
                let (offset, len) = (reserved.block()?.offset(), reserved.len);
                let base = objects.mapping().access(offset, len, false)?;
                // SAFETY: in bounds; the reservation, borrowed here, is its only user.
                contents.push(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) });
                objects.mapping().flush(offset, len, here())?;
            }
        }
        let append = |ring: &mut Ring| ring.append_checksumming(&[&log.scratch], contents.iter().copied());
        let appended = match append(&mut log.ring) {
            Err(Error::RingFull { .. }) => {
                objects.pool.flush_set(&mut log.lines)?;
                let persisted = objects.pool.drain()?;
                log.ring.forced(&persisted);
                if let Some(applied) = log.applied.take() {
                    log.ring.retire(applied);
                }
                append(&mut log.ring)?
            }
            other => other?,
        };
        Ok(appended.end)
    }
}
