//! Types that may be stored on media.
//!
//! A [`Persist`] type is plain bytes with a name for each: whatever bytes the media holds are one of its values, and each of its
//! bytes is defined. The check is a constant, [`Persist::LAYOUT`]; every function that stores or loads a
//! `T: Persist` evaluates it, so a generic struct is checked for the parameters it is used with.

use std::marker::PhantomData;
use std::mem::{MaybeUninit, align_of, size_of};
use std::slice;

/// What a [`Persist`] type looks like on media.
///
/// ```
/// use pmem::{Layout, Persist};
///
/// assert_eq!(<[u16; 3]>::LAYOUT.size, 6);
/// assert_ne!(u32::LAYOUT.hash, f32::LAYOUT.hash);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Hash over the type's name and, in order, the names and hashes of its fields.
    pub hash: u64,
}

impl Layout {
    /// The layout of a primitive type called `name`.
    #[must_use]
    pub const fn primitive<T>(name: &str) -> Self {
        Self { size: size_of::<T>(), align: align_of::<T>(), hash: hash_str(hash_word(SEED, KIND_PRIMITIVE), name) }
    }

    /// The layout of `[T; count]`.
    #[must_use]
    pub const fn array(element: Self, count: usize) -> Self {
        Self {
            size: element.size * count,
            align: element.align,
            hash: hash_word(hash_word(hash_word(SEED, KIND_ARRAY), element.hash), count as u64),
        }
    }

    /// The layout of the struct `T`, called `name`, with these fields in order of declaration.
    ///
    /// # Panics
    /// When `T` is larger than its fields together, that is, when it has padding. In a constant, as the derive uses it, this
    /// is a compile error.
    #[must_use]
    pub const fn of_struct<T>(name: &str, fields: &[(&str, Layout)]) -> Self {
        let mut hash = hash_str(hash_word(SEED, KIND_STRUCT), name);
        let mut fields_bytes = 0;
        let mut index = 0;
        while index < fields.len() {
            let (field, layout) = fields[index];
            hash = hash_word(hash_str(hash, field), layout.hash);
            fields_bytes += layout.size;
            index += 1;
        }
        assert!(
            fields_bytes == size_of::<T>(),
            "persistent struct has padding: reorder its fields or name the gap, as in `_reserved: [u8; 4]`"
        );
        Self { size: size_of::<T>(), align: align_of::<T>(), hash: hash_word(hash, fields.len() as u64) }
    }
}

/// A type whose values may live on media.
///
/// Derive it; integers from 8 to 128 bits, floats, arrays, `()` and `PhantomData` have it. `usize`, `bool`, `char`, enums,
/// references and anything with interior mutability cannot have it.
///
/// ```
/// use pmem::Persist;
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Record<T> {
///     key: u64,
///     value: T,
/// }
///
/// assert_eq!(Record::<[u8; 16]>::LAYOUT.size, 24);
/// ```
///
/// The names of a struct and its fields are part of its layout, so that a pool is not read as what it is not. One that is
/// renamed keeps the old name there, and pools of earlier builds open:
///
/// ```
/// use pmem::Persist;
///
/// mod earlier {
///     #[derive(Clone, Copy, pmem::Persist)]
///     #[repr(C)]
///     pub struct Account { pub sum: u64 }
/// }
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// #[persist(name = "Account")]
/// struct Balance {
///     #[persist(name = "sum")]
///     cents: u64,
/// }
///
/// assert_eq!(Balance::LAYOUT, earlier::Account::LAYOUT);
/// ```
///
/// A struct with padding does not compile where it is used:
///
/// ```compile_fail
/// # use pmem::Persist;
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Gap {
///     small: u32,
///     large: u64,
/// }
/// ```
///
/// # Safety
///
/// The type has a fixed layout (`repr(C)`, `repr(transparent)` or a primitive), no padding, every bit pattern is a valid value, and
/// it holds no reference, pointer or interior mutability. Evaluating `LAYOUT` must fail to compile for any instance of
/// a generic type where this is not so.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored on media",
    label = "not `Persist`",
    note = "allowed are u8 to u128, i8 to i128, f32, f64, arrays, and structs of these with #[repr(C)] and #[derive(Persist)]",
    note = "use u64 for usize, u8 for bool, u32 for char and enums (checked when read), PPtr for pointers"
)]
pub unsafe trait Persist: Copy + Send + Sync + 'static {
    /// Size, alignment and hash; evaluating it proves at compile time that there is no padding.
    const LAYOUT: Layout;
}

macro_rules! primitives {
    ($($ty:ty),*) => {$(
        // SAFETY: a number: fixed size, no padding, every bit pattern is a value.
        unsafe impl Persist for $ty {
            const LAYOUT: Layout = Layout::primitive::<$ty>(stringify!($ty));
        }
    )*};
}

primitives!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, ());

// SAFETY: elements follow each other without gaps, and each is `Persist`.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {
    const LAYOUT: Layout = Layout::array(T::LAYOUT, N);
}

// SAFETY: no byte of it is ever on media. `T` is not asked for its layout (it need not have one, and `Node` may hold a
// `PhantomData<Node>`), so it does not enter the hash.
unsafe impl<T: ?Sized + Send + Sync + 'static> Persist for PhantomData<T> {
    const LAYOUT: Layout = Layout::primitive::<Self>("PhantomData");
}

/// The bytes of a value, as they go to media.
///
/// ```
/// assert_eq!(pmem::bytes_of(&0x0102_u16), [2, 1]);
/// ```
#[inline]
pub const fn bytes_of<T: Persist>(value: &T) -> &[u8] {
    let layout = const { T::LAYOUT };
    // SAFETY: the reference covers `size` bytes for its lifetime; `Persist` (checked just above) says that all of them are
    // initialised and that none changes behind a shared reference.
    unsafe { slice::from_raw_parts((&raw const *value).cast(), layout.size) }
}

/// The value with these bytes, of any alignment; `None` unless there are exactly as many as `T` has.
///
/// ```
/// assert_eq!(pmem::from_bytes::<u16>(&[2, 1]), Some(0x0102));
/// assert_eq!(pmem::from_bytes::<u16>(&[2, 1, 0]), None);
/// ```
#[inline]
#[must_use]
pub const fn from_bytes<T: Persist>(bytes: &[u8]) -> Option<T> {
    let layout = const { T::LAYOUT };
    if bytes.len() != layout.size {
        return None;
    }
    // SAFETY: as many bytes as `T` has, read without regard to alignment; any bit pattern is a `T`.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// These bytes seen as a `T`; `None` unless size and alignment are those of `T`.
///
/// ```
/// let words = [7_u64, 8];
/// assert_eq!(pmem::view::<[u64; 2]>(pmem::bytes_of(&words)), Some(&words));
/// ```
#[inline]
#[must_use]
pub fn view<T: Persist>(bytes: &[u8]) -> Option<&T> {
    let pointer: *const T = bytes.as_ptr().cast();
    if bytes.len() != const { T::LAYOUT }.size || !pointer.is_aligned() {
        return None;
    }
    // SAFETY: size and alignment were checked, the lifetime is that of the bytes, any bit pattern is a `T`.
    Some(unsafe { &*pointer })
}

/// Like [`view`], to change the bytes in place.
///
/// ```
/// let mut pair = [7_u64, 8];
/// let bytes = pmem::view_mut::<[u8; 16]>(pmem::bytes_of_mut(&mut pair)).unwrap();
/// bytes[8] = 9;
/// assert_eq!(pair, [7, 9]);
/// ```
#[inline]
#[must_use]
pub fn view_mut<T: Persist>(bytes: &mut [u8]) -> Option<&mut T> {
    let pointer: *mut T = bytes.as_mut_ptr().cast();
    if bytes.len() != const { T::LAYOUT }.size || !pointer.is_aligned() {
        return None;
    }
    // SAFETY: as in `view`; the exclusive borrow of the bytes becomes that of the `T`, and whatever is stored
    // through it leaves initialised bytes, since `T` has no padding.
    Some(unsafe { &mut *pointer })
}

/// The bytes of a value, to be filled from media.
///
/// ```
/// let mut number = 0_u32;
/// pmem::bytes_of_mut(&mut number).copy_from_slice(&[1, 0, 0, 0]);
/// assert_eq!(number, 1);
/// ```
#[inline]
pub const fn bytes_of_mut<T: Persist>(value: &mut T) -> &mut [u8] {
    let layout = const { T::LAYOUT };
    // SAFETY: as in `bytes_of`, exclusively; any bytes stored through it are a `T`.
    unsafe { slice::from_raw_parts_mut((&raw mut *value).cast(), layout.size) }
}

/// The value whose bytes are all zero: what a fresh region holds.
///
/// ```
/// assert_eq!(pmem::zeroed::<[u32; 2]>(), [0, 0]);
/// ```
#[inline]
#[must_use]
pub const fn zeroed<T: Persist>() -> T {
    const { T::LAYOUT };
    // SAFETY: zero is a bit pattern, and any is a `T`.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

// Tags keep a struct called `u8` apart from the primitive, and an array from a struct of its element.
const KIND_PRIMITIVE: u64 = 1;
const KIND_ARRAY: u64 = 2;
const KIND_STRUCT: u64 = 3;

/// FNV-1a, byte by byte.
const fn hash_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(PRIME)
}

const fn hash_word(mut hash: u64, word: u64) -> u64 {
    let bytes = word.to_le_bytes();
    let mut index = 0;
    while index < bytes.len() {
        hash = hash_byte(hash, bytes[index]);
        index += 1;
    }
    hash
}

/// The length goes first, so that moving a letter from one name to the next changes the hash.
const fn hash_str(hash: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = hash_word(hash, bytes.len() as u64);
    let mut index = 0;
    while index < bytes.len() {
        hash = hash_byte(hash, bytes[index]);
        index += 1;
    }
    hash
}
