//! All the unsafe code of the engine: bytes of the pool, versions in DRAM and the chains they form, and state that a slot's holder has alone.
//!
//! Two rules make references sound. A [`TxSlot`] says that a transaction runs, and what it may have seen: nothing that was linked, and no master that could be resolved, when it was
//! taken is given up or overwritten before it goes (`upkeep`). And what is being written belongs to the transaction that has the object's lock: a version of its own that
//! nothing else can reach, or a block that is not there yet for others.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

use pmem::{Found, Pool};
use tx::Result;

use crate::tx_slot::TxSlot;

/// Why the bytes asked for are changed by nothing, or used by nothing else, meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// A master that a transaction slot's snapshot resolves to.
    Seated,
    /// A block of the transaction that has reserved it, to its end.
    Fresh,
    /// The store is being made or opened: nothing else uses it.
    Alone,
    /// A master that no transaction slot can resolve to (`upkeep`), or one that is read by the thread that alone overwrites masters.
    Upkeep,
    /// A block for a record that is too long for its ring.
    Spilled,
}

/// Bytes of the pool. By `_claim` nothing changes them while `by` is borrowed.
#[inline]
pub(crate) fn bytes<'a>(_claim: Claim, by: &'a impl ?Sized, pool: &'a Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
    // SAFETY: what the claim promises.
    Ok(unsafe { pool.slice(by, offset, len)? })
}

/// Bytes of the pool, to be changed. By `_claim` nothing else uses them while `by` is borrowed.
#[inline]
#[expect(clippy::mut_from_ref, reason = "the claim says that they are nobody else's")]
pub(crate) fn bytes_mut<'a>(
    _claim: Claim,
    by: &'a impl ?Sized,
    pool: &'a Pool,
    offset: u64,
    len: u64,
) -> Result<&'a mut [u8]> {
    // SAFETY: what the claim promises.
    Ok(unsafe { pool.slice_mut(by, offset, len)? })
}

/// Stores bytes past the cache where that is faster; persistent after this thread's next drain. By `_claim` nothing uses them meanwhile; they are not `data`.
#[inline]
#[track_caller]
pub(crate) fn store(_claim: Claim, pool: &Pool, to: u64, data: &[u8]) -> Result<()> {
    // SAFETY: no overlap, and no other use, as the claim promises.
    unsafe { pool.store(to, data)? };
    Ok(())
}

/// A block's word in the allocator. Kept only by what the engine owns, or borrows: it lives as long as the allocator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Word(NonNull<AtomicU32>);

// SAFETY: points to an atomic, which any thread may use.
unsafe impl Send for Word {}

impl Word {
    #[inline]
    pub(crate) fn at(found: &Found<'_>) -> Self {
        Self(NonNull::from(found.word()))
    }

    pub(crate) fn of(word: &AtomicU32) -> Self {
        Self(NonNull::from(word))
    }

    #[inline]
    pub(crate) fn get(&self) -> &AtomicU32 {
        // SAFETY: the allocator never frees a word while it lives, and every holder of a `Word` lives inside of the engine that owns the allocator, or borrows it.
        unsafe { self.0.as_ref() }
    }
}

// ---- versions -------------------------------------------------------------------------------------------------------

/// What an object holds from a commit on. Its bytes follow in the same memory.
pub(crate) struct Version {
    /// When it was committed.
    stamp: u64,
    /// The object was freed then; there are no bytes.
    gone: bool,
    /// By a call, whose record does not hold the bytes.
    called: bool,
    older: AtomicPtr<Self>,
    bytes: NonNull<u8>,
    len: usize,
    layout: Layout,
}

/// Largest alignment of an object.
const ALIGN_MAX: u64 = 4096;

/// A version that is in no chain, or that no thread can have found there any more.
pub(crate) struct Owned(NonNull<Version>);

// SAFETY: nothing else refers to it.
unsafe impl Send for Owned {}

impl Owned {
    /// Zeros for a block of `len` bytes at `offset`, aligned as objects there may be.
    pub(crate) fn new(offset: u64, len: u64) -> Self {
        // Every alignment divides the size of its blocks, and where they begin.
        let align = 1u64 << (offset | len | ALIGN_MAX).trailing_zeros();
        Self::make(len as usize, align as usize, false)
    }

    /// Says that the object is not there.
    pub(crate) fn gone() -> Self {
        Self::make(0, 1, true)
    }

    fn make(len: usize, align: usize, gone: bool) -> Self {
        let body = Layout::from_size_align(len, align).unwrap_or(Layout::new::<u64>());
        assert!(body.size() >= len, "no block is longer than memory");
        let (layout, at) = Layout::new::<Version>().extend(body).unwrap_or((Layout::new::<Version>(), 0));
        assert!(at > 0, "no block is longer than memory");
        // SAFETY: the layout has a size.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: inside of what was just allocated.
        let bytes = unsafe { start.add(at) };
        let version = start.cast::<Version>();
        let older = AtomicPtr::new(std::ptr::null_mut());
        // SAFETY: room for it, aligned, and used by nothing else.
        unsafe { version.write(Version { stamp: 0, gone, called: false, older, bytes, len, layout }) };
        Self(version)
    }

    #[inline]
    fn get(&self) -> &Version {
        // SAFETY: allocated by `make`, and freed by `drop` alone.
        unsafe { self.0.as_ref() }
    }

    /// A call has made it, whose record does not hold the bytes.
    pub(crate) fn set_called(&mut self) {
        // SAFETY: nothing else refers to it.
        unsafe { self.0.as_mut() }.called = true;
    }

    /// All its bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let version = self.get();
        // SAFETY: as many were allocated, zeroed, with the version.
        unsafe { std::slice::from_raw_parts(version.bytes.as_ptr(), version.len) }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let version = self.get();
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(version.bytes.as_ptr(), version.len) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let layout = self.get().layout;
        // SAFETY: allocated with this layout, and used by nothing else.
        unsafe { dealloc(self.0.as_ptr().cast(), layout) };
    }
}

/// Bytes of a version that the transaction `by` has not published, from a method that borrows it shared.
#[inline]
pub(crate) fn own<'a, T: ?Sized>(by: &'a T, version: &Owned, at: u64, len: u64) -> Option<&'a [u8]> {
    let (at, len) = (at as usize, len as usize);
    let bytes: *const [u8] = version.bytes().get(at..at + len)?;
    let _ = by;
    // SAFETY: versions of a transaction stay where they are until it ends, and are changed by methods only that borrow it exclusively.
    Some(unsafe { &*bytes })
}

/// The same, to be changed, from a method that borrows the transaction exclusively.
#[inline]
#[expect(clippy::mut_from_ref, reason = "as just said")]
pub(crate) fn own_mut<'a, T: ?Sized>(by: &'a T, version: &mut Owned, at: u64, len: u64) -> Option<&'a mut [u8]> {
    let (at, len) = (at as usize, len as usize);
    let bytes: *mut [u8] = version.bytes_mut().get_mut(at..at + len)?;
    let _ = by;
    // SAFETY: as above; others are handed out beside this one for other objects alone.
    Some(unsafe { &mut *bytes })
}

// ---- chains ---------------------------------------------------------------------------------------------------------

/// The versions of an object, newest first. The holder of the object's lock adds one in front; the holder of the upkeep's lock takes others out, and puts saved ones in
/// between.
#[derive(Default)]
pub(crate) struct Chain(AtomicPtr<Version>);

/// A version, as a transaction slot sees it.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'s> {
    pub(crate) stamp: u64,
    pub(crate) gone: bool,
    pub(crate) bytes: &'s [u8],
}

impl Chain {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Acquire).is_null()
    }

    /// How many there are. For the upkeep.
    pub(crate) fn len(&self) -> u64 {
        self.each().count() as u64
    }

    /// When the newest was committed, and whether it says that the object is gone. For a transaction slot, the holder of the object's lock, or the upkeep.
    #[inline]
    pub(crate) fn newest(&self) -> Option<(u64, bool)> {
        // SAFETY: the caller keeps it from being given up, as just said: versions are by the upkeep alone, and behind the transaction slots that could have found them.
        NonNull::new(self.0.load(Acquire)).map(|v| unsafe { v.as_ref() }).map(|v| (v.stamp, v.gone))
    }

    /// The newest version that is no newer than `stamp`.
    #[inline]
    pub(crate) fn at<'s>(&self, _tx_slot: &'s TxSlot<'_>, stamp: u64) -> Option<Seen<'s>> {
        self.each().find(|v| v.stamp <= stamp).map(see)
    }

    /// The same, for a caller that has the lock of the upkeep, and gives up no version while the reference lives.
    pub(crate) fn at_upkeep(&self, stamp: u64) -> Option<Seen<'_>> {
        self.each().find(|v| v.stamp <= stamp).map(see)
    }

    /// From the newest to the oldest. For transaction slots and for the upkeep: a version that was in the chain when either began is not given up meanwhile.
    fn each<'s>(&self) -> impl Iterator<Item = &'s Version> {
        let mut next = self.0.load(Acquire);
        std::iter::from_fn(move || {
            // SAFETY: as just said.
            let version = unsafe { NonNull::new(next)?.as_ref() };
            next = version.older.load(Acquire);
            Some(version)
        })
    }

    /// Adds a version of the transaction that has the object's lock.
    pub(crate) fn push(&self, version: Owned, stamp: u64) {
        let node = version.0;
        std::mem::forget(version);
        // SAFETY: nothing else refers to it yet.
        unsafe { (*node.as_ptr()).stamp = stamp };
        let mut head = self.0.load(Acquire);
        loop {
            // SAFETY: as above.
            unsafe { node.as_ref() }.older.store(head, Release);
            match self.0.compare_exchange(head, node.as_ptr(), AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => head = now, // the upkeep took it out
            }
        }
    }

    /// Puts a version between those that are newer and those that are older; one that is newer is there. For the upkeep.
    pub(crate) fn save(&self, version: Owned, stamp: u64) {
        let Some(before) = self.each().take_while(|v| v.stamp > stamp).last() else { return };
        let node = version.0;
        std::mem::forget(version);
        // SAFETY: nothing else refers to it yet.
        unsafe { (*node.as_ptr()).stamp = stamp };
        // SAFETY: as above.
        unsafe { node.as_ref() }.older.store(before.older.load(Acquire), Release);
        before.older.store(node.as_ptr(), Release);
    }

    /// Of the versions above `base`, through `through`: whether calls have made some, and whether they have made all. For the upkeep.
    pub(crate) fn called(&self, base: u64, through: u64) -> (bool, bool) {
        let between = || self.each().filter(|v| v.stamp > base && v.stamp <= through);
        (between().any(|v| v.called), between().all(|v| v.called))
    }

    /// When its versions were committed, newest first. For the upkeep.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = u64> {
        self.each().map(|version| version.stamp)
    }

    /// Takes out the versions for which `keep` does not hold: given when it was committed, and when the next newer one was. They may still be looked at by the transaction slots there are. For the upkeep.
    pub(crate) fn prune(&self, mut keep: impl FnMut(u64, Option<u64>) -> bool, mut out: impl FnMut(Owned)) {
        let mut before: Option<&Version> = None;
        let mut newest = None;
        let mut next = self.0.load(Acquire);
        // SAFETY: in the chain, and given up by no other thread.
        while let Some(version) = NonNull::new(next).map(|v| unsafe { &*v.as_ptr() }) {
            next = version.older.load(Acquire);
            let newer = newest.replace(version.stamp);
            if keep(version.stamp, newer) {
                before = Some(version);
                continue;
            }
            let node = std::ptr::from_ref(version).cast_mut();
            if before.is_none() && self.0.compare_exchange(node, next, AcqRel, Acquire).is_err() {
                before = self.each().take_while(|newer| newer.stamp > version.stamp).last(); // come in front of it
            }
            if let Some(before) = before {
                before.older.store(next, Release);
            }
            out(Owned(NonNull::from(version)));
        }
    }
}

fn see<'s>(version: &'s Version) -> Seen<'s> {
    // SAFETY: as many bytes were allocated with it, and nothing changes them once it is in a chain.
    let bytes = unsafe { std::slice::from_raw_parts(version.bytes.as_ptr(), version.len) };
    Seen { stamp: version.stamp, gone: version.gone, bytes }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let mut next = *self.0.get_mut();
        while let Some(node) = NonNull::new(next) {
            let version = Owned(node);
            next = version.get().older.load(Acquire);
        }
    }
}

// ---- slots ----------------------------------------------------------------------------------------------------------

/// One value per slot, used by the thread that has claimed the slot.
pub(crate) struct PerSlot<T>(Box<[Own<T>]>);

#[repr(align(128))]
struct Own<T>(UnsafeCell<T>);

// SAFETY: a value is reached by the thread that holds its slot alone (`get`), and travels between threads only through `Slots::release` and `claim`, which synchronise.
unsafe impl<T: Send> Sync for PerSlot<T> {}

impl<T> PerSlot<T> {
    pub(crate) fn new(slots: usize, mut make: impl FnMut() -> T) -> Self {
        Self((0..slots).map(|_| Own(UnsafeCell::new(make()))).collect())
    }

    /// The value of a slot that the calling thread holds for as long as it uses the reference: by `Tx`, which is not `Send`.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> &T {
        // SAFETY: shared references on one thread only, as just said; nothing makes an exclusive one.
        unsafe { &*self.0[slot].0.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_version_lie_as_their_block() {
        for (offset, len, align) in [(4096 * 3, 8192, 4096), (64 * 5, 64, 64), (48 * 4, 48, 16), (4096, 16, 16)] {
            let version = Owned::new(offset, len);
            assert!(version.bytes().as_ptr().addr().is_multiple_of(align), "{offset} {len}");
            assert_eq!(version.bytes().len() as u64, len);
        }
    }

    #[test]
    fn versions_come_and_go() {
        let chain = Chain::default();
        for stamp in [2, 5, 9] {
            let mut version = Owned::new(64, 64);
            version.bytes_mut()[0] = stamp as u8;
            chain.push(version, stamp);
        }
        let mut saved = Owned::new(64, 64);
        saved.bytes_mut()[0] = 1;
        chain.save(saved, 1);
        chain.save(Owned::gone(), 4);
        let all = || chain.each().map(|v| v.stamp).collect::<Vec<_>>();
        assert_eq!(all(), [9, 5, 4, 2, 1]);
        assert_eq!(chain.at_upkeep(8).map(|v| (v.stamp, v.bytes[0])), Some((5, 5)));
        assert_eq!(chain.at_upkeep(4).map(|v| v.gone), Some(true));
        assert!(chain.at_upkeep(0).is_none());
        let mut out = Vec::new();
        chain.prune(|stamp, _| stamp == 5 || stamp == 1, |version| out.push(version));
        assert_eq!((all(), out.len()), (vec![5, 1], 3));
        chain.prune(|stamp, newer| stamp == 1 && newer == Some(5), |version| out.push(version));
        chain.prune(|_, _| false, |version| out.push(version));
        assert!(chain.is_empty());
    }
}
