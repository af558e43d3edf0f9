//! All the unsafe code of the heap: references into the pool, and state that a slot's holder has alone.
//!
//! Nothing here is public. Whoever asks for bytes says by what [`Claim`] they are its own for as long as it uses them; what each claim promises, and who
//! sees to it, stands there. References that leave the crate borrow the transaction, which holds the lock to its end.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use pmem::{Allocator, Block, Found, Pool, SealKey};
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

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", crate::lock::load(self.get()))
    }
}

/// Why the bytes asked for are used by nobody else meanwhile, or changed by nobody. The contract of this module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// A transaction holds the block's lock, shared or as the writer, to its end; it writes through `&mut` of itself only.
    Reader,
    /// A transaction is the block's writer, to its end (`lock.rs`).
    Writer,
    /// The block was reserved just now, or by this transaction for its log, and nothing points to it.
    Reserved,
    /// Main is pending, so nobody writes it; its backup is used by who holds the slot's log lock, and no range is pending in two slots.
    Settling,
    /// The heap is being opened: nobody else has it.
    Recovery,
    /// The zone is clean and kept so, and live blocks in it are not written.
    Quiet,
    /// A copy (`copies`): its first words under the arena's lock; the rest by the writer of its object, by who settles it, or by who has found, under
    /// the lock of its shard, that it has no writer.
    Copies,
    /// The zone table, under the lock of the zones, or while the heap is being opened.
    Marks,
}

/// Bytes of the pool.
/// By `_claim` nobody changes them while `by` is borrowed.
#[inline]
pub(crate) fn bytes<'a>(_claim: Claim, by: &'a impl ?Sized, pool: &'a Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
    // SAFETY: what the claim promises.
    Ok(unsafe { pool.slice(by, offset, len)? })
}

/// Bytes of the pool, to be changed.
/// By `_claim` nobody else uses them while `by` is borrowed.
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

/// Copies inside of the pool, past the cache where that is faster; persistent after this thread's next drain. By `_claim` nobody changes the first
/// range or uses the second meanwhile; they lie in different regions or blocks.
#[inline]
#[track_caller]
pub(crate) fn copy(_claim: Claim, pool: &Pool, from: u64, to: u64, len: u64) -> Result<()> {
    // SAFETY: no overlap, and nobody else, as the claim promises.
    unsafe { pool.copy(from, to, len)? };
    Ok(())
}

/// Stores bytes past the cache where that is faster; persistent after this thread's next drain. By `_claim` nobody uses them meanwhile; they are not `data`.
#[inline]
#[track_caller]
pub(crate) fn store(_claim: Claim, pool: &Pool, to: u64, data: &[u8]) -> Result<()> {
    // SAFETY: no overlap, and nobody else, as the claim promises.
    unsafe { pool.store(to, data)? };
    Ok(())
}

/// Stores whole lines as [`store`] does, and returns their seal, taken in the same pass. By `_claim` nobody uses them meanwhile; they are not `data`.
#[inline]
#[track_caller]
pub(crate) fn store_sealing(_claim: Claim, pool: &Pool, to: u64, key: &SealKey, data: &[u8]) -> Result<u64> {
    // SAFETY: no overlap, and nobody else, as the claim promises.
    Ok(unsafe { pool.store_sealing(to, key, &[], data)? })
}

/// One value per slot, used by whoever has claimed the slot.
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
