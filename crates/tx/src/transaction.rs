//! The object level: a transaction over blocks of a pool.
//!
//! [`Transaction`] works on bytes and can be used as a trait object; [`Typed`] is the thin shell that every transaction has.
//!
//! Why handing out plain references is sound. A reference into an object borrows the transaction, shared for reading and
//! exclusively for writing, so inside one transaction Rust's own rules hold. Between transactions the engine's locks or versions hold
//! them: what was handed out stays as it is until the transaction ends, and objects that are being changed are handed to no other transaction.
//! A [`PPtr`] is a number; one that is made up meets the check that it lies in one live block of this engine's pool.

use std::marker::PhantomData;

use pmem::{PPtr, Persist, bytes_of, view, view_mut};

use crate::{Error, Isolation, Result};

/// Bytes of an object: where they begin, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub at: PPtr<u8>,
    /// How many.
    pub len: u64,
}

impl Range {
    /// `len` bytes at `at`.
    pub fn new(at: PPtr<u8>, len: u64) -> Self {
        Self { at, len }
    }
}

/// What can be named as a range: a typed pointer is its whole object.
pub trait ToRange {
    /// The bytes it stands for.
    fn range(self) -> Range;
}

impl<T: Persist> ToRange for PPtr<T> {
    fn range(self) -> Range {
        Range::new(self.cast(), size_of::<T>() as u64)
    }
}

/// Why a transaction can only be aborted.
#[derive(Clone, Debug)]
pub struct Doom {
    /// The first error's message.
    pub first: String,
    /// Offset of the object that two transactions wanted, if that was it: running it again may succeed.
    pub conflict: Option<u64>,
}

impl From<&Error> for Doom {
    fn from(error: &Error) -> Self {
        let conflict = match error {
            Error::Conflict { offset } => Some(*offset),
            Error::NoSlot { .. } => Some(0),
            _ => None,
        };
        Self { first: error.to_string(), conflict }
    }
}

/// A transaction on the objects of a pool.
///
/// Dropping it aborts. Every error it returns dooms it: it can be aborted, and [`commit`](Self::commit) fails. It stays on its thread.
pub trait Transaction {
    /// The level it runs at, at least what was asked for.
    fn isolation(&self) -> Isolation;

    /// `len` bytes at `ptr`, inside one live block.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`pmem::Error::BadPointer`] for anything but a live object.
    fn bytes(&self, ptr: PPtr<u8>, len: u64) -> Result<&[u8]>;

    /// `len` bytes at `ptr`, to be changed.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    fn bytes_mut(&mut self, ptr: PPtr<u8>, len: u64) -> Result<&mut [u8]>;

    /// Overwrites the bytes at `ptr` by `data`. As `bytes_mut(ptr, len)?.copy_from_slice(data)`, and cheaper where an engine need not look at what they hold now.
    ///
    /// ```
    /// # use tx::{Engine, Isolation::Serializable, Reference, Transaction, Typed};
    /// # let engine = Reference::new();
    /// engine.transact(Serializable, |tx| {
    ///     let text = tx.alloc_slice(b"one two")?;
    ///     tx.put_bytes(text, b"six")?;
    ///     assert_eq!(tx.bytes(text, 7)?, b"six two");
    ///     Ok::<(), tx::Error>(())
    /// })?;
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    #[inline]
    fn put_bytes(&mut self, ptr: PPtr<u8>, data: &[u8]) -> Result<()> {
        self.bytes_mut(ptr, data.len() as u64)?.copy_from_slice(data);
        Ok(())
    }

    /// Ranges of *distinct* objects, to be changed together.
    ///
    /// # Errors
    /// [`Error::Overlap`] if two lie in one object; as [`bytes`](Self::bytes).
    fn bytes_mut_many(&mut self, ranges: &[Range]) -> Result<Vec<&mut [u8]>>;

    /// Declares that these ranges are about to be changed. Never needed; an engine that has to do something persistent before
    /// a change does it once for all of them.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    fn intend(&mut self, ranges: &[Range]) -> Result<()>;

    /// A new object of `len` bytes, all zero, at a multiple of `align`.
    ///
    /// # Errors
    /// [`pmem::Error::HeapFull`] and its like; [`pmem::Error::Limit`] for a strange alignment.
    fn alloc_bytes(&mut self, len: u64, align: u64) -> Result<PPtr<u8>>;

    /// Frees the object that begins at `ptr`.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`Error::Freed`].
    fn free_bytes(&mut self, ptr: PPtr<u8>) -> Result<()>;

    /// Bytes from `ptr` to the end of its block: at least what was allocated.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    fn room(&self, ptr: PPtr<u8>) -> Result<u64>;

    /// All bytes from `ptr` to the end of its block: for objects that tell their own length.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    #[inline]
    fn rest(&self, ptr: PPtr<u8>) -> Result<&[u8]> {
        let len = self.room(ptr)?;
        self.bytes(ptr, len)
    }

    /// Asks for the bytes from `ptr` to the end of its block, all of which are about to be read. A hint: it locks nothing, and takes any pointer.
    #[inline]
    fn prefetch(&self, _ptr: PPtr<u8>) {}

    /// Asks for the first `len` bytes at `ptr`, as [`prefetch`](Self::prefetch) for all that follow.
    #[inline]
    fn prefetch_bytes(&self, _ptr: PPtr<u8>, _len: u64) {}

    /// The object that holds the root: a word for the pointer, a word for the layout hash of what it points to.
    fn root_cell(&self) -> PPtr<[u64; 2]>;

    /// What dooms the transaction, if anything does.
    fn doom(&self) -> Option<Doom>;

    /// Dooms the transaction, unless it is already.
    fn set_doom(&self, doom: Doom);

    /// Makes all changes durable, as a whole.
    ///
    /// # Errors
    /// [`Error::Doomed`], [`Error::Conflict`]: nothing has changed. Errors of a drain: only the next open tells.
    fn commit(self) -> Result<()>
    where
        Self: Sized;

    /// Undoes all changes.
    ///
    /// # Errors
    /// Those of a drain; [`Error::NoRollback`] on an engine that cannot, if something was changed.
    fn abort(self) -> Result<()>
    where
        Self: Sized;
}

/// A field of a persistent struct, as [`field!`](crate::field) makes it.
#[derive(Debug)]
pub struct Field<T, F> {
    offset: usize,
    of: PhantomData<fn(T) -> F>,
}

impl<T, F> Clone for Field<T, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, F> Copy for Field<T, F> {}

impl<T: Persist, F: Persist> Field<T, F> {
    /// The field at `offset`; `_of` gives the type.
    ///
    /// # Panics
    /// If it is not inside of `T`.
    pub const fn new(offset: usize, _of: fn(&T) -> &F) -> Self {
        assert!(offset + size_of::<F>() <= size_of::<T>(), "a field lies inside its struct");
        Self { offset, of: PhantomData }
    }

    /// The pointer to this field of the object at `ptr`.
    pub const fn of(self, ptr: PPtr<T>) -> PPtr<F> {
        PPtr::new(ptr.tag(), ptr.offset() + self.offset as u64)
    }
}

/// Names a field of a persistent struct: `field!(Account, balance)`.
///
/// ```
/// use pmem::{PPtr, Persist};
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Account { owner: [u8; 56], balance: i64 }
///
/// let account = PPtr::<Account>::new(1, 4096);
/// let balance: PPtr<i64> = tx::field!(Account, balance).of(account);
/// assert_eq!(balance.offset(), 4096 + 56);
/// ```
#[macro_export]
macro_rules! field {
    ($of:ty, $field:tt) => {
        $crate::Field::<$of, _>::new(::core::mem::offset_of!($of, $field), |of: &$of| &of.$field)
    };
}

/// The typed shell of a [`Transaction`]: every transaction has it.
pub trait Typed: Transaction {
    /// The object at `ptr`.
    ///
    /// # Errors
    /// As [`Transaction::bytes`]; [`pmem::Error::Unaligned`].
    #[inline]
    fn read<T: Persist>(&self, ptr: PPtr<T>) -> Result<&T> {
        const { T::LAYOUT };
        let bytes = self.bytes(ptr.cast(), size_of::<T>() as u64)?;
        view(bytes).ok_or_else(|| unaligned(self, ptr))
    }

    /// The object at `ptr`, to be changed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    fn write<T: Persist>(&mut self, ptr: PPtr<T>) -> Result<&mut T> {
        const { T::LAYOUT };
        check_align(self, ptr)?;
        let bytes = self.bytes_mut(ptr.cast(), size_of::<T>() as u64)?;
        view_mut(bytes).ok_or_else(|| Error::from(misaligned(ptr)))
    }

    /// Distinct objects, to be changed together.
    ///
    /// # Errors
    /// As [`Transaction::bytes_mut_many`]; [`pmem::Error::Unaligned`].
    fn write_many<T: Persist, const N: usize>(&mut self, ptrs: [PPtr<T>; N]) -> Result<[&mut T; N]> {
        const { T::LAYOUT };
        let mut views = Vec::with_capacity(N);
        ptrs.iter().try_for_each(|&ptr| check_align(self, ptr))?;
        for (bytes, ptr) in self.bytes_mut_many(&ptrs.map(ToRange::range))?.into_iter().zip(ptrs) {
            views.push(view_mut(bytes).ok_or_else(|| Error::from(misaligned(ptr)))?);
        }
        views.try_into().map_err(|_| Error::Overlap { offset: 0 }) // as many as asked for
    }

    /// One field of the object at `ptr`: nothing else of it is copied or logged.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[inline]
    fn write_field<T: Persist, F: Persist>(&mut self, ptr: PPtr<T>, field: Field<T, F>) -> Result<&mut F> {
        self.write(field.of(ptr))
    }

    /// A new object with this value.
    ///
    /// # Errors
    /// As [`Transaction::alloc_bytes`].
    fn alloc<T: Persist>(&mut self, value: &T) -> Result<PPtr<T>> {
        let ptr: PPtr<T> = self.alloc_bytes(size_of::<T>() as u64, align_of::<T>() as u64)?.cast();
        self.bytes_mut(ptr.cast(), size_of::<T>() as u64)?.copy_from_slice(bytes_of(value));
        Ok(ptr)
    }

    /// A new object with these bytes.
    ///
    /// # Errors
    /// As [`Transaction::alloc_bytes`].
    fn alloc_slice(&mut self, bytes: &[u8]) -> Result<PPtr<u8>> {
        let ptr = self.alloc_bytes(bytes.len() as u64, 8)?;
        self.bytes_mut(ptr, bytes.len() as u64)?.copy_from_slice(bytes);
        Ok(ptr)
    }

    /// Frees the object at `ptr`.
    ///
    /// # Errors
    /// As [`Transaction::free_bytes`].
    fn free<T: ?Sized>(&mut self, ptr: PPtr<T>) -> Result<()> {
        self.free_bytes(ptr.cast())
    }

    /// The root object, null if none was set.
    ///
    /// # Errors
    /// [`pmem::Error::WrongLayout`] if it is of another type.
    fn root<T: Persist>(&self) -> Result<PPtr<T>> {
        let [raw, layout] = *self.read(self.root_cell())?;
        if raw != 0 && layout != const { T::LAYOUT.hash } {
            return Err(doomed_by(
                self,
                pmem::Error::WrongLayout {
                    what: "root type",
                    found: format!("{layout:016x}"),
                    expected: format!("{} ({:016x})", std::any::type_name::<T>(), T::LAYOUT.hash),
                },
            ));
        }
        Ok(PPtr::from_raw(raw))
    }

    /// The hash of the root's layout ([`pmem::Layout`]), `None` if no root was set: which of several types [`root`](Self::root) will give.
    ///
    /// ```
    /// # use tx::{Engine, Isolation::Serializable, Reference, Typed};
    /// use pmem::Persist;
    /// # let engine = Reference::new();
    /// engine.transact(Serializable, |tx| -> tx::Result<()> {
    ///     assert_eq!(tx.root_layout()?, None);
    ///     let number = tx.alloc(&7u32)?;
    ///     tx.set_root(number)?;
    ///     assert_eq!(tx.root_layout()?, Some(u32::LAYOUT.hash));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn root_layout(&self) -> Result<Option<u64>> {
        let [raw, layout] = *self.read(self.root_cell())?;
        Ok((raw != 0).then_some(layout))
    }

    /// Makes `ptr` the root object: where the next open begins.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn set_root<T: Persist>(&mut self, ptr: PPtr<T>) -> Result<()> {
        *self.write(self.root_cell())? = [ptr.raw(), const { T::LAYOUT.hash }];
        Ok(())
    }

    /// Frees the object at `old`, and makes one of another type in its place, with the value that `f` makes of the old one. What points to it is the caller's to change.
    ///
    /// ```
    /// # use tx::{Engine, Isolation::Serializable, Reference, Typed};
    /// # let engine = Reference::new();
    /// let number = engine.transact(Serializable, |tx| tx.alloc(&7u32))?;
    /// let number = engine.transact(Serializable, |tx| tx.replace(number, |&old| u64::from(old)))?;
    /// assert_eq!(engine.transact(Serializable, |tx| tx.read(number).copied())?, 7);
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read), [`alloc`](Self::alloc) and [`free`](Self::free).
    fn replace<Old: Persist, New: Persist>(
        &mut self,
        old: PPtr<Old>,
        f: impl FnOnce(&Old) -> New,
    ) -> Result<PPtr<New>> {
        let value = f(self.read(old)?);
        let new = self.alloc(&value)?;
        self.free(old)?;
        Ok(new)
    }

    /// Runs `f` as part of this transaction. If it fails or panics, the whole transaction can only be aborted.
    ///
    /// # Errors
    /// What `f` returns.
    fn nested<R, E>(&mut self, f: impl FnOnce(&mut Self) -> Result<R, E>) -> Result<R, E>
    where
        Self: Sized,
        E: From<Error>,
    {
        if let Some(doom) = self.doom() {
            return Err(Error::Doomed { first: doom.first }.into());
        }
        let mut guard = Nested { tx: self, returned: false };
        let result = f(guard.tx);
        guard.returned = true;
        let tx = &mut *guard.tx;
        if result.is_err() && tx.doom().is_none() {
            tx.set_doom(Doom { first: "a nested call failed".into(), conflict: None });
        }
        result
    }

    /// An error that rolls the transaction back: `return Err(tx.refuse("no funds"))`.
    fn refuse(&mut self, reason: impl Into<String>) -> Error {
        let error = Error::Aborted { reason: reason.into() };
        self.set_doom(Doom::from(&error));
        error
    }
}

impl<X: Transaction + ?Sized> Typed for X {}

/// Dooms the transaction if the nested call panics: a caller may catch that and go on.
pub(crate) struct Nested<'a, X: Transaction> {
    pub(crate) tx: &'a mut X,
    pub(crate) returned: bool,
}

impl<X: Transaction> Drop for Nested<'_, X> {
    fn drop(&mut self) {
        if !self.returned {
            self.tx.set_doom(Doom { first: "a nested call panicked".into(), conflict: None });
        }
    }
}

/// Where in the pool an object lies decides: a pool is mapped at a multiple of every alignment there is.
#[inline]
fn check_align<X: Transaction + ?Sized, T>(tx: &X, ptr: PPtr<T>) -> Result<()> {
    if ptr.offset().is_multiple_of(align_of::<T>() as u64) { Ok(()) } else { Err(unaligned(tx, ptr)) }
}

#[cold]
fn unaligned<X: Transaction + ?Sized, T>(tx: &X, ptr: PPtr<T>) -> Error {
    doomed_by(tx, misaligned(ptr))
}

fn misaligned<T>(ptr: PPtr<T>) -> pmem::Error {
    pmem::Error::Unaligned { offset: ptr.offset(), align: align_of::<T>() as u64 }
}

#[cold]
fn doomed_by<X: Transaction + ?Sized>(tx: &X, error: pmem::Error) -> Error {
    let error = Error::from(error);
    tx.set_doom(Doom::from(&error));
    error
}
