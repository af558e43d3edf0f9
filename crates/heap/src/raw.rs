//! All the unsafe code of the heap: references into the pool, and state that a slot's holder has alone.
//!
//! Nothing here is public. A caller that asks for bytes says by what [`Claim`] they are its own for as long as it uses them; what each claim promises, and what
//! sees to it, stands there. References that leave the crate borrow the transaction, which holds the lock to its end.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use pmem::{Allocator, Block, ChecksumKey, Found, Pool};
use tx::Result;

/// A block's lock word. Kept only by what the heap owns, or borrows: it lives as long as the allocator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(NonNull<AtomicU32>);

// SAFETY: points to an atomic, which any thread may use.
unsafe impl Send for Word {}

impl Word {
    #[inline]
    pub(crate) fn of(alloc: &Allocator, block: &Block) -> Result<Self> {
        Ok(Self(NonNull::from(alloc.engine_word(block)?)))
    }

    #[inline]
    pub(crate) fn at(found: &Found<'_>) -> Self {
        Self(NonNull::from(found.word()))
    }

    #[inline]
    pub(crate) fn get(&self) -> &AtomicU32 {
        // SAFETY: the allocator never frees a word while it lives, and every holder of a `Word` lives inside of the heap that owns
        // the allocator, or borrows it.
        unsafe { self.0.as_ref() }
    }

    /// Tells words apart.
    #[inline]
    pub(crate) fn id(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

/// Why nothing else uses the bytes asked for meanwhile, or nothing changes them. The contract of this module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// A transaction holds the block's lock, shared or as the writer, to its end; it writes through `&mut` of itself only.
    Reader,
    /// A transaction is the block's writer, to its end (`lock.rs`).
    Writer,
    /// The block was reserved just now, or by this transaction for its log, and nothing points to it.
    Reserved,
    /// Main is pending, so nothing writes it; its backup is used by the thread that holds the slot's log lock, and no range is pending in two slots.
    Applying,
    /// The heap is being opened: nothing else uses it.
    Recovery,
    /// The zone is clean and kept so, and live blocks in it are not written.
    Quiet,
    /// A copy (`copies`): its first words under the arena's lock; the rest by the writer of its object, by the thread that applies it, or by one that has
    /// found, under the lock of its shard, that it has no writer.
    Copies,
    /// The zone table, under the lock of the zones, or while the heap is being opened.
    Marks,
}

/// Bytes of the pool.
/// By `_claim` nothing changes them while `by` is borrowed.
#[inline]
pub(crate) fn bytes<'a>(_claim: Claim, by: &'a impl ?Sized, pool: &'a Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
    // SAFETY: what the claim promises.
    Ok(unsafe { pool.slice(by, offset, len)? })
}

/// Bytes of the pool, to be changed.
/// By `_claim` nothing else uses them while `by` is borrowed.
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

/// Copies inside of the pool, past the cache where that is faster; persistent after this thread's next drain. By `_claim` nothing changes the first
/// range or uses the second meanwhile; they lie in different regions or blocks.
#[inline]
#[track_caller]
pub(crate) fn copy(_claim: Claim, pool: &Pool, from: u64, to: u64, len: u64) -> Result<()> {
    // SAFETY: no overlap, and no other use, as the claim promises.
    unsafe { pool.copy(from, to, len)? };
    Ok(())
}

/// Stores bytes past the cache where that is faster; persistent after this thread's next drain. By `_claim` nothing uses them meanwhile; they are not `data`.
#[inline]
#[track_caller]
pub(crate) fn store(_claim: Claim, pool: &Pool, to: u64, data: &[u8]) -> Result<()> {
    // SAFETY: no overlap, and no other use, as the claim promises.
    unsafe { pool.store(to, data)? };
    Ok(())
}

/// Stores whole lines as [`store`] does, and returns their checksum, taken in the same pass. By `_claim` nothing uses them meanwhile; they are not `data`.
#[inline]
#[track_caller]
pub(crate) fn store_checksumming(_claim: Claim, pool: &Pool, to: u64, key: &ChecksumKey, data: &[u8]) -> Result<u64> {
    // SAFETY: no overlap, and no other use, as the claim promises.
    Ok(unsafe { pool.store_checksumming(to, key, &[], data)? })
}

/// One value per slot, used by the thread that has claimed the slot.
pub(crate) struct PerSlot<T>(Box<[Own<T>]>);

#[repr(align(128))]
struct Own<T>(UnsafeCell<T>);

// SAFETY: a value is reached by the thread that holds its slot alone (`get`), and travels between threads only through
// `Slots::release` and `claim`, which synchronise.
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

/// Bytes in DRAM, from a multiple of every alignment on. They move when there are more of them, and only then.
#[derive(Default)]
pub(crate) struct Aligned(Vec<Page>);

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

impl Aligned {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Makes it `bytes` long at least.
    #[inline]
    pub(crate) fn reserve(&mut self, bytes: usize) {
        if bytes > self.len() {
            self.grow(bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.0.resize(bytes.max(2 * self.len()).div_ceil(size_of::<Page>()), Page([0; 4096]));
    }

    /// Gives memory back, if it is more than this.
    pub(crate) fn give_up_beyond(&mut self, bytes: usize) {
        if self.len() > bytes {
            self.0 = Vec::new();
        }
    }

    /// Where byte `at` is. Makes no reference: those to other bytes stay valid.
    #[inline]
    pub(crate) fn at(&mut self, at: usize) -> NonNull<u8> {
        NonNull::new(self.0.as_mut_ptr().cast::<u8>().wrapping_add(at)).unwrap_or(NonNull::dangling())
    }

    #[inline]
    pub(crate) fn slice(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: a page is as many bytes, all of them initialised.
        let all = unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>(), self.len()) };
        &all[at..at + len]
    }

    #[inline]
    pub(crate) fn slice_mut(&mut self, at: usize, len: usize) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed exclusively.
        let all = unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<u8>(), self.len()) };
        &mut all[at..at + len]
    }

    /// Copies bytes to where others were, which they do not overlap with.
    pub(crate) fn copy_within(&mut self, from: usize, to: usize, len: usize) {
        let all = self.len();
        self.slice_mut(0, all).copy_within(from..from + len, to);
    }
}

/// Bytes of an entry of the transaction `by` (`entries`), which stay where they are until it is borrowed exclusively.
#[inline]
pub(crate) fn entry<T: ?Sized>(by: &T, bytes: NonNull<u8>, len: u64) -> &[u8] {
    let _ = by;
    // SAFETY: `Entries::look` gave the place just now, with so many bytes; entries are changed, moved and given up by methods only that borrow the transaction exclusively.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len as usize) }
}

/// The same, to be changed, from a method that borrows the transaction exclusively.
#[inline]
#[expect(clippy::mut_from_ref, reason = "as just said")]
pub(crate) fn entry_mut<T: ?Sized>(by: &T, bytes: NonNull<u8>, len: u64) -> &mut [u8] {
    let _ = by;
    // SAFETY: as above; entries do not overlap, and others are handed out beside this one for other objects alone.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr(), len as usize) }
}
