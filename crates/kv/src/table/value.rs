//! Values as bytes.

use std::marker::PhantomData;

use pmem::Persist;

use super::name::short;
use crate::error::DecodeError;

/// A type whose values are stored in a [`Table`](super::Table): bytes, text, integers, `bool`, [`Plain`] structs, options of these; with the feature
/// `serde`, `Json`.
///
/// A type of your own:
///
/// ```
/// use kv::{DecodeError, ValueCode};
/// enum Colour { Red, Green }
///
/// impl ValueCode for Colour {
///     type Put = Self;
///     type Value<'a> = Self;
///     type Owned = Self;
///     fn bytes<'a>(value: &'a Self, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
///         Ok(match value { Self::Red => b"red", Self::Green => b"green" })
///     }
///     fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
///         match bytes {
///             b"red" => Ok(Self::Red),
///             b"green" => Ok(Self::Green),
///             _ => Err("it is no colour".into()),
///         }
///     }
///     fn owned(value: Self) -> Self { value }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of a table",
    label = "not `ValueCode`",
    note = "values are bytes, text, integers, bool, options of these; `Plain<T>` for structs with #[derive(Persist)], `Json<T>` for what serde knows",
    note = "for a type of your own, write `impl kv::ValueCode`"
)]
pub trait ValueCode {
    /// What is put: the type itself, or what it is the encoding of.
    type Put: ?Sized;
    /// What reading gives: for bytes and text a reference to where they are.
    type Value<'a>;
    /// The same without a reference.
    type Owned;

    /// The value's bytes: part of itself, or put in `buffer`, which is empty.
    ///
    /// # Errors
    /// Why it has none.
    fn bytes<'a>(value: &'a Self::Put, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError>;

    /// The value with these bytes.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn decode(bytes: &[u8]) -> Result<Self::Value<'_>, DecodeError>;

    /// Copies what is a reference.
    fn owned(value: Self::Value<'_>) -> Self::Owned;

    /// What a store calls the type: as [`KeyCode::type_name`](super::KeyCode::type_name). Change it with the encoding, and old values are an error instead of nonsense.
    fn type_name() -> String {
        short::<Self>()
    }
}

impl ValueCode for [u8] {
    fn type_name() -> String {
        "bytes".to_owned()
    }
    type Put = Self;
    type Value<'a> = &'a [u8];
    type Owned = Vec<u8>;
    fn bytes<'a>(value: &'a Self, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        Ok(value)
    }
    fn decode(bytes: &[u8]) -> Result<&[u8], DecodeError> {
        Ok(bytes)
    }
    fn owned(value: &[u8]) -> Vec<u8> {
        value.to_vec()
    }
}

impl ValueCode for str {
    fn type_name() -> String {
        "text".to_owned()
    }
    type Put = Self;
    type Value<'a> = &'a str;
    type Owned = String;
    fn bytes<'a>(value: &'a Self, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        Ok(value.as_bytes())
    }
    fn decode(bytes: &[u8]) -> Result<&str, DecodeError> {
        std::str::from_utf8(bytes).map_err(|_| "the value is not UTF-8".into())
    }
    fn owned(value: &str) -> String {
        value.to_owned()
    }
}

/// What reading gives is the type itself.
macro_rules! itself {
    () => {
        type Put = Self;
        type Value<'a> = Self;
        type Owned = Self;
        fn owned(value: Self) -> Self {
            value
        }
    };
}

impl ValueCode for Vec<u8> {
    itself!();
    fn type_name() -> String {
        <[u8]>::type_name()
    }
    fn bytes<'a>(value: &'a Self, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        Ok(value)
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(bytes.to_vec())
    }
}

impl ValueCode for String {
    itself!();
    fn type_name() -> String {
        str::type_name()
    }
    fn bytes<'a>(value: &'a Self, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        Ok(value.as_bytes())
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        <str as ValueCode>::decode(bytes).map(str::to_owned)
    }
}

fn plain<T: Persist>(bytes: &[u8]) -> Result<T, DecodeError> {
    pmem::from_bytes(bytes).ok_or_else(|| format!("the value has {} bytes, not {}", bytes.len(), size_of::<T>()).into())
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl ValueCode for $t {
            itself!();
            fn bytes<'a>(value: &'a Self, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
                Ok(pmem::bytes_of(value))
            }
            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                plain(bytes)
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, ());

impl<const N: usize> ValueCode for [u8; N] {
    itself!();
    fn bytes<'a>(value: &'a Self, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        Ok(value)
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        plain(bytes)
    }
}

impl ValueCode for bool {
    itself!();
    fn bytes<'a>(value: &'a Self, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        Ok(if *value { &[1] } else { &[0] })
    }
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("the value is no bool".into()),
        }
    }
}

impl<T: ValueCode<Put: Sized>> ValueCode for Option<T> {
    type Put = Option<T::Put>;
    type Value<'a> = Option<T::Value<'a>>;
    type Owned = Option<T::Owned>;
    fn type_name() -> String {
        format!("Option<{}>", T::type_name())
    }
    fn bytes<'a>(value: &'a Self::Put, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        let Some(value) = value else { return Ok(&[0]) };
        let mut inner = Vec::new();
        let inner = T::bytes(value, &mut inner)?;
        buffer.push(1);
        buffer.extend_from_slice(inner);
        Ok(buffer)
    }
    fn decode(bytes: &[u8]) -> Result<Self::Value<'_>, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, value @ ..] => T::decode(value).map(Some),
            _ => Err("the value is no option".into()),
        }
    }
    fn owned(value: Self::Value<'_>) -> Self::Owned {
        value.map(T::owned)
    }
}

/// In the type of a table: values of a struct with `#[derive(Persist)]`, stored as its bytes.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = kv::Store::open(dir.path().join("s"))?;
/// use kv::Plain;
/// use pmem::Persist;
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Account { balance: i64, opened: u64 }
///
/// let accounts = store.table::<u64, Plain<Account>>("accounts")?;
/// accounts.on(&store).put(&7, &Account { balance: 100, opened: 2026 })?;
/// assert_eq!(accounts.on(&store).get(&7)?.map(|account| account.balance), Some(100));
/// # Ok(()) }
/// ```
pub struct Plain<T>(PhantomData<T>);

impl<T: Persist> ValueCode for Plain<T> {
    type Put = T;
    type Value<'a> = T;
    type Owned = T;
    /// With the hash of its layout: other fields are another type.
    fn type_name() -> String {
        format!("{} {:016x}", short::<T>(), const { T::LAYOUT.hash })
    }
    fn bytes<'a>(value: &'a T, _: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        Ok(pmem::bytes_of(value))
    }
    fn decode(bytes: &[u8]) -> Result<T, DecodeError> {
        plain(bytes)
    }
    fn owned(value: T) -> T {
        value
    }
}

/// In the type of a table: whatever serde knows, stored as JSON.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = kv::Store::open(dir.path().join("s"))?;
/// let friends = store.table::<str, kv::Json<Vec<String>>>("friends")?;
/// friends.on(&store).put("Ada", &vec!["Charles".into()])?;
/// assert_eq!(friends.on(&store).get("Ada")?, Some(vec!["Charles".into()]));
/// # Ok(()) }
/// ```
#[cfg(feature = "serde")]
pub struct Json<T>(PhantomData<T>);

#[cfg(feature = "serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> ValueCode for Json<T> {
    type Put = T;
    type Value<'a> = T;
    type Owned = T;
    /// Of whatever shape: serde says what fits.
    fn type_name() -> String {
        "JSON".to_owned()
    }
    fn bytes<'a>(value: &'a T, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
        serde_json::to_writer(&mut *buffer, value).map_err(|error| error.to_string())?;
        Ok(buffer)
    }
    fn decode(bytes: &[u8]) -> Result<T, DecodeError> {
        Ok(serde_json::from_slice(bytes).map_err(|error| error.to_string())?)
    }
    fn owned(value: T) -> T {
        value
    }
}
