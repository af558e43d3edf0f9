//! All the unsafe code of the store: bytes of the pool by offset, and nodes of the index that others may still be reading.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use pmem::Pool;

use crate::error::Result;
use crate::isolation::active::Pin;

/// Why no thread changes the bytes asked for, or no other one uses them. The contract of this module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// A version that the index or a newer version led to while the reader was pinned: it is freed only after the pin is gone.
    Pinned,
    /// The rest of a segment that its writer alone fills.
    Writer,
    /// Nodes of the index that no durable checkpoint names, given out to the one checkpoint in progress.
    Checkpoint,
    /// Segments in use, which the holder of the checkpointing lock alone could free.
    Checkpointing,
    /// The store is being opened: no other thread has it.
    Opening,
    /// Of a transaction's own image, which changes through `&mut` of the transaction alone.
    Own,
}

/// Bytes of the pool.
/// By `_claim` no thread changes them while `by` is borrowed.
#[inline]
pub(crate) fn bytes<'a>(_claim: Claim, by: &'a impl ?Sized, pool: &'a Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
    // SAFETY: what the claim promises.
    Ok(unsafe { pool.slice(by, offset, len)? })
}

/// The same bytes, for as long as their owner is borrowed, though they were reached through a guard that goes earlier.
/// By `_claim` no thread changes them while `'a` lasts.
#[inline]
pub(crate) fn kept<'a, T>(_claim: Claim, _owner: &'a T, bytes: &[u8]) -> &'a [u8] {
    // SAFETY: the owner keeps them, and the claim promises that they stay as they are as long as it is borrowed.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}

/// Stores bytes through the cache, and flushes nothing.
/// By `_claim` no other thread uses the place.
pub(crate) fn copy(_claim: Claim, pool: &Pool, offset: u64, bytes: &[u8]) -> Result<()> {
    let to = pool.address(offset, bytes.len() as u64, true)?;
    // SAFETY: in bounds; the place is the caller's alone.
    unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), bytes.len()) }.copy_from_slice(bytes);
    Ok(())
}

/// Stores bytes that begin on a line, and zeros to the end of the last one, past the cache where that is faster; persistent after this thread's
/// next drain. By `_claim` no other thread uses the place.
#[inline]
#[track_caller]
pub(crate) fn store(_claim: Claim, pool: &Pool, offset: u64, bytes: &[u8]) -> Result<()> {
    // SAFETY: the place is the caller's alone, to the end of its last line; what is stored is on no medium yet.
    unsafe { pool.store_joined(offset, bytes, &[])? };
    Ok(())
}

/// As [`store`]; returns the checksum of `before` and `bytes`, taken in the same pass where that can be done.
#[inline]
#[track_caller]
pub(crate) fn store_checksumming(
    _claim: Claim,
    pool: &Pool,
    key: &pmem::ChecksumKey,
    offset: u64,
    before: &[u8],
    bytes: &[u8],
) -> Result<u64> {
    // SAFETY: as in `store`.
    Ok(unsafe { pool.store_checksumming(offset, key, before, bytes)? })
}

/// A type that zeros are a value of: a number, atomic or not, an array of these, or a struct of nothing else, by [`zeros_are`]. Nothing
/// implements it otherwise.
pub(crate) trait Zeros: Sized {
    /// Shows all that it is made of to [`zeros_too`]. It is never called: that it compiles is the proof.
    fn proof(&self);
}

/// Takes what zeros are a value of.
pub(crate) fn zeros_too<T: Zeros>(_: &T) {}

/// Zeros are a value of a struct: all its fields are named, and are such themselves.
macro_rules! zeros_are {
    ($struct:ident { $($field:ident),* $(,)? }) => {
        impl $crate::raw::Zeros for $struct {
            fn proof(&self) {
                let Self { $($field),* } = self;
                $($crate::raw::zeros_too($field);)*
            }
        }
    };
}
pub(crate) use zeros_are;

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Zeros for $number {
            fn proof(&self) {}
        }
    )*};
}
numbers! { u32 u64 AtomicU32 AtomicU64 }

impl<T: Zeros, const N: usize> Zeros for [T; N] {
    fn proof(&self) {}
}

/// So many zeros. Of a long row the kernel makes each page when it is first used, so that no thread waits for all of them.
pub(crate) fn zeros<T: Zeros>(len: usize) -> Box<[T]> {
    let _ = T::proof;
    // SAFETY: what the trait promises, of numbers, and proves of what is made of them.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

/// What borrows from its owner, and from nothing else: its type, for any such borrow. An implementation claims so, as with a [`Claim`].
pub(crate) trait Borrows {
    type Owner: 'static;
    type Of<'o>;

    /// Whose it is.
    fn owner<'v>(of: &'v Self::Of<'_>) -> &'v Self::Owner;
}

/// Such a value with its owner, so that it can end on another thread and after its caller.
pub(crate) struct Held<B: Borrows> {
    /// Goes first.
    value: B::Of<'static>,
    owner: Arc<B::Owner>,
}

impl<B: Borrows> Held<B> {
    pub(crate) fn new(value: B::Of<'_>, owner: Arc<B::Owner>) -> Self {
        assert!(std::ptr::eq(B::owner(&value), Arc::as_ptr(&owner)), "a transaction of another store");
        let value = ManuallyDrop::new(value);
        // SAFETY: the same type, but for its lifetime, and not used again. Whatever it refers to is part of that owner, which is not dropped before it: fields are
        // dropped in their order.
        let value = unsafe { std::mem::transmute_copy::<B::Of<'_>, B::Of<'static>>(&value) };
        Self { value, owner }
    }

    /// Ends it, and lets the owner go.
    pub(crate) fn end<R>(self, end: impl for<'o> FnOnce(B::Of<'o>) -> R) -> R {
        let Self { value, owner } = self;
        let result = end(value);
        drop(owner);
        result
    }
}

/// An immutable value that is replaced as a whole while others read it.
pub(crate) struct Published<T>(AtomicPtr<T>);

impl<T> Published<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(value))))
    }

    /// The present value. It stays as long as the reader is pinned: see [`Retired`].
    #[inline]
    pub(crate) fn get<'p>(&self, _pin: &'p Pin<'_>) -> &'p T {
        let value = self.0.load(Acquire);
        // SAFETY: it came from a box. It is freed by `Drop` of `Retired`, which its holder defers until every pin that existed when it was replaced is
        // gone, this one included; or by `Drop` of `Published`, which has no readers.
        unsafe { &*value }
    }

    /// Puts another value in its place. One at a time: the caller has the lock of the tree.
    pub(crate) fn replace(&self, value: T) -> Retired<T> {
        Retired(self.0.swap(Box::into_raw(Box::new(value)), Release))
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: from a box, and `&mut self` proves that no thread reads through it.
        drop(unsafe { Box::from_raw(*self.0.get_mut()) });
    }
}

// SAFETY: a pointer to a value that is shared by reference and freed by the thread that drops it.
unsafe impl<T: Send + Sync> Sync for Published<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Published<T> {}

/// A value that was replaced and may still be read. To be dropped only when all who were pinned then are gone: `reclaim` sees to it.
pub(crate) struct Retired<T>(*mut T);

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: from a box; the contract of this type says that no thread reads it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

// SAFETY: it is only dropped, as a box of `T` would be.
unsafe impl<T: Send> Send for Retired<T> {}
