//! Pointers that mean the same after a restart.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::persist::{Layout, Persist};

/// Largest offset a pointer holds: pools are smaller than 256 TiB.
pub const OFFSET_MAX: u64 = (1 << 48) - 1;

/// A pointer to an object of type `T` in a pool: 16 bits of pool tag, 48 bits of offset; null is 0.
///
/// It is a number, not an address: `Copy`, cheap to resolve again, and worth nothing until the pool has checked that it names
/// one live block of its own (a forged one is an error).
///
/// ```
/// # use pmem::PPtr;
/// let none = PPtr::<u64>::NULL;
/// assert!(none.is_null());
/// ```
#[repr(transparent)]
pub struct PPtr<T: ?Sized> {
    raw: u64,
    to: PhantomData<fn() -> *const T>,
}

impl<T: ?Sized> PPtr<T> {
    /// Points nowhere.
    pub const NULL: Self = Self::from_raw(0);

    /// The pointer with these 64 bits, whatever they mean.
    pub const fn from_raw(raw: u64) -> Self {
        Self { raw, to: PhantomData }
    }

    /// The pointer to byte `offset` of the pool tagged `tag`.
    pub const fn new(tag: u16, offset: u64) -> Self {
        Self::from_raw((tag as u64) << 48 | offset & OFFSET_MAX)
    }

    /// The 64 bits as stored.
    pub const fn raw(self) -> u64 {
        self.raw
    }

    /// Tag of the pool it belongs to.
    pub const fn tag(self) -> u16 {
        (self.raw >> 48) as u16
    }

    /// Bytes from the start of the pool.
    pub const fn offset(self) -> u64 {
        self.raw & OFFSET_MAX
    }

    /// True for [`NULL`](Self::NULL).
    pub const fn is_null(self) -> bool {
        self.raw == 0
    }

    /// The same offset, seen as another type. Resolving checks the size.
    pub const fn cast<U: ?Sized>(self) -> PPtr<U> {
        PPtr::from_raw(self.raw)
    }
}

impl<T: ?Sized> Clone for PPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for PPtr<T> {}

impl<T: ?Sized> PartialEq for PPtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T: ?Sized> Eq for PPtr<T> {}

impl<T: ?Sized> Hash for PPtr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<T: ?Sized> Default for PPtr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T: ?Sized> fmt::Debug for PPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PPtr({:04x}:{:#x})", self.tag(), self.offset())
    }
}

// SAFETY: transparent over a u64, for which every bit pattern is valid. What it points to is no part of its layout: a list node
// may point to its own type.
unsafe impl<T: ?Sized + 'static> Persist for PPtr<T> {
    const LAYOUT: Layout = Layout { size: 8, align: 8, hash: 0x5050_7472_u64 };
}
